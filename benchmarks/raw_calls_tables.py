"""What docs/benchmarks.md says about `raw_calls.py`'s record: each piece of learners' code, what 8.6 lacks of it, and how it ended."""

from __future__ import annotations

from benchmarks.markdown import Data, device, error, page, ratio, source, table, tensorrt


def raw_calls(data: Data) -> str:
    """A row for each piece of code, and what three of them measured in a sentence."""
    lines = [
        (row["code"] or row["section"], str(len(row.get("calls", ())) or ""), _lacks(row), _ended(row)) for row in data["rows"]
    ]
    about = f"""Learners' code as it is written for the stand-in, run unchanged with {tensorrt(data)} and pycuda
        {data["versions"]["pycuda"]} on one {device(data)}, {source("raw_calls_h100", data)}). The second column counts names as the
        conformance table lists them. {len(data["no_tensorrt_calls"])} files and answers make no TensorRT call."""
    return page(about, table(("code", "TensorRT names", "TensorRT 8.6 lacks", "result"), lines), _measured(data["rows"]))


def _lacks(row: Data) -> str:
    names = (name for name in row.get("missing", ()) if "(" not in name)
    return ", ".join(f"`{name}`" for name in names)


def _ended(row: Data) -> str:
    if not row["ran"]:
        return str(row.get("error") or row.get("failed"))
    return "right" if row["right"] else "**wrong**"


def _measured(rows: list[Data]) -> str:
    by_code = {row["code"]: row for row in rows if row["ran"]}
    said = []
    if loop := by_code.get("lab09: serving_loop.py"):
        one = loop["overlap"]
        scenes = [loop[name] for name in ("plain", "mixed", "broken")]
        left = max(scene["bytes_left_by_a_call"] for scene in scenes)
        worst = max(scene["largest_error"] or 0.0 for scene in scenes)
        said.append(f"""The loop's largest error is {error(worst)}, and a call left {max(left, 0):.0f} bytes on the device. With two sets of
            buffers in flight a request of {one["rows"]} rows takes {one["us"]:.0f} us. The same loop with a wait after each request takes
            {one["us_waiting"]:.0f} us: {ratio(one["speedup"], 2)}.""")
    if recipe := by_code.get("lab03: recipe.toml"):
        seconds, same = recipe["compiler"], {True: "the same tactics", False: "other tactics"}
        said.append(f"""Lab 03's recipe took {seconds["cold_s"]:.1f} s in the compiler, {seconds["warm_s"]:.1f} s with the timing cache of
            that build ({same[recipe["same_tactics_with_cache"]]}), and {seconds["without_s"]:.1f} s without a cache
            ({same[recipe["same_tactics_without"]]}).""")
    if quantized := by_code.get("lab06: model.onnx"):
        said.append(f"""Lab 06's network in INT8 gives {100 * quantized["same_classes"]:.0f} % of the images the class that ONNX Runtime
            gives them.""")
    return " ".join(said)
