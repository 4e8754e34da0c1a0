"""Wrong answers to the exercises of lecture 4."""

from math import ceil
from statistics import fmean, median


def _best(times_ms, of):
    return min(times_ms, key=lambda name: of(times_ms[name]))


MISTAKES = {
    "4.1": {
        "areas": lambda rows, columns, tile, m: ceil(ceil(rows * columns / (tile[0] * tile[1])) / m),
        "not rounded up": lambda rows, columns, tile, m: ceil(rows / tile[0]) * ceil(columns / tile[1]) / m,
        "rounded down": lambda rows, columns, tile, m: rows // tile[0] * (columns // tile[1]) // m,
        "tiles": lambda rows, columns, tile, m: ceil(rows / tile[0]) * ceil(columns / tile[1]),
        "one too many": lambda rows, columns, tile, m: ceil((rows // tile[0] + 1) * (columns // tile[1] + 1) / m),
    },
    "4.2": {
        "mean": lambda times, tolerance=0.02: _best(times, fmean),
        "smallest": lambda times, tolerance=0.02: _best(times, min),
        "first": lambda times, tolerance=0.02: _best(times, lambda one: one[0]),
        "no tolerance": lambda times, tolerance=0.02: _best(times, median),
        "milliseconds": ("* (1 + tolerance)", "+ tolerance"),
        "fixed": ("(1 + tolerance)", "1.2"),
    },
    "4.3": {
        "with the name": ('("operator", "shapes"', '("name", "operator", "shapes"'),
        "with the host": ('("gpu", "tensorrt"', '("host", "gpu", "tensorrt"'),
        "not sorted": ('in ("operator", "shapes", "types", "attributes")', 'in layer if field != "name"', "sort_keys=True", ""),
        "no batch": ("    where =", '    work["shapes"] = [shape[1:] for shape in work["shapes"]]\n    where ='),
        "no types": ('"types", ', ""),
        "no CUDA": (', "cuda"', ""),
        "no GPU": ('"gpu", ', ""),
        "a hash": ("return json.dumps([work, where], sort_keys=True)", "return hash(json.dumps([work, where], sort_keys=True))"),
    },
    "4.4": {
        "fastest quiet build": ("max(quiet_us)", "min(quiet_us)"),
        "no tolerance": (" * (1 + tolerance)", ""),
        "mean": ("median(times)", "sum(times) / len(times)"),
        "smallest": ("median(times)", "min(times)"),
        "fast first": ("-medians[name]", "medians[name]"),
        "by name": (", key=lambda name: -medians[name]", ""),
        "the others": ("time > limit), key=lambda name: -medians[name])", "time <= limit))"),
        "fixed tolerance": ("(1 + tolerance)", "1.02"),
        "at the limit": ("time > limit", "time >= limit"),
        "microseconds": ("* (1 + tolerance)", "+ 75 * tolerance"),
    },
    "4.5": {
        "one output": ("all(loss <= threshold for loss in losses)", "(not losses or losses[-1] <= threshold)"),
        "NaN": ("all(loss <= threshold for loss in losses)", "not any(loss > threshold for loss in losses)"),
        "slowest": ("return min(", "return max("),
        "no losses": (" and all(loss <= threshold for loss in losses)", ""),
        "strictly": ("loss <= threshold", "loss < threshold"),
        "always one": ('default=""', "default=sweep[0][0]"),
        "failed build": ("{route: ms for", "{route: ms or 0.0 for", "ms is not None and ", ""),
    },
}  # fmt: skip
