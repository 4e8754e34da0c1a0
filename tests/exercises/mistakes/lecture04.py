"""Wrong answers to the exercises of lecture 4."""

from __future__ import annotations

import json
from math import ceil
from statistics import fmean, median


def _near(times_ms, limit, key=None):
    medians = {name: median(times) for name, times in times_ms.items()}
    return min((name for name, time in medians.items() if time <= limit(min(medians.values()))), key=key)


def _best(times_ms, of):
    return min(times_ms, key=lambda name: of(times_ms[name]))


def _key(layer, machine, without=("name",), machine_without=("host",), sort=True):
    work = {field: value for field, value in layer.items() if field not in without}
    where = {field: value for field, value in machine.items() if field not in machine_without}
    return json.dumps([work, where], sort_keys=sort)


def _slow(quiet, engines, tolerance, *, limit=max, of=median, order=lambda us: -us, above=lambda us, most: us > most):
    times = {name: of(us) for name, us in engines.items()}
    most = limit(quiet) * (1 + tolerance)
    return sorted((name for name, us in times.items() if above(us, most)), key=lambda name: order(times[name]))


def _wins(within, best=min, always=False, failed=None):
    def winner(sweep, limit):
        times = {route: failed if ms is None else ms for route, ms, _ in sweep}
        good = [route for route, _, losses in sweep if within(losses, limit) and times[route] is not None]
        if always and not good:
            return sweep[0][0]
        return best(good, key=times.get, default="")

    return winner


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
        "milliseconds": lambda times, tolerance=0.02: _near(times, lambda best: best + tolerance),
        "fixed": lambda times, tolerance=0.02: _near(times, lambda best: best * 1.2),
    },
    "4.3": {
        "with the name": lambda layer, machine: _key(layer, machine, without=()),
        "with the host": lambda layer, machine: _key(layer, machine, machine_without=()),
        "not sorted": lambda layer, machine: _key(layer, machine, sort=False),
        "no batch": lambda layer, machine: _key({**layer, "shapes": [one[1:] for one in layer["shapes"]]}, machine),
        "no types": lambda layer, machine: _key(layer, machine, without=("name", "types")),
        "no CUDA": lambda layer, machine: _key(layer, machine, machine_without=("host", "cuda")),
        "no GPU": lambda layer, machine: _key(layer, machine, machine_without=("host", "gpu")),
        "a hash": lambda layer, machine: hash(_key(layer, machine)),
    },
    "4.4": {
        "fastest quiet build": lambda quiet, engines, tolerance=0.02: _slow(quiet, engines, tolerance, limit=min),
        "no tolerance": lambda quiet, engines, tolerance=0.02: _slow(quiet, engines, 0),
        "mean": lambda quiet, engines, tolerance=0.02: _slow(quiet, engines, tolerance, of=fmean),
        "smallest": lambda quiet, engines, tolerance=0.02: _slow(quiet, engines, tolerance, of=min),
        "fast first": lambda quiet, engines, tolerance=0.02: _slow(quiet, engines, tolerance, order=lambda us: us),
        "by name": lambda quiet, engines, tolerance=0.02: sorted(_slow(quiet, engines, tolerance)),
        "the others": lambda quiet, engines, tolerance=0.02: sorted(set(engines) - set(_slow(quiet, engines, tolerance))),
        "fixed tolerance": lambda quiet, engines, tolerance=0.02: _slow(quiet, engines, 0.02),
        "at the limit": lambda quiet, engines, tolerance=0.02: _slow(
            quiet, engines, tolerance, above=lambda us, most: us >= most
        ),
        "microseconds": lambda quiet, engines, tolerance=0.02: _slow([max(quiet) + 75 * tolerance], engines, 0),
    },
    "4.5": {
        "one output": _wins(lambda losses, limit: losses[-1:] == [] or losses[-1] <= limit),
        "NaN": _wins(lambda losses, limit: not any(loss > limit for loss in losses)),
        "slowest": _wins(lambda losses, limit: all(loss <= limit for loss in losses), best=max),
        "no losses": _wins(lambda losses, limit: True),
        "strictly": _wins(lambda losses, limit: all(loss < limit for loss in losses)),
        "always one": _wins(lambda losses, limit: all(loss <= limit for loss in losses), always=True),
        "failed build": _wins(lambda losses, limit: all(loss <= limit for loss in losses), failed=0.0),
    },
}
