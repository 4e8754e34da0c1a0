"""What trtexec exports: layer information, times of layers, and times of inferences.

Source: samples/common/sampleReporting.cpp of NVIDIA/TensorRT, the versions from 8.0 to 11.1.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib._util import text_files
from course_lib.engines.backends.tensorrt.layer_sources import NAMES_ONLY, parse_build_log, parse_inspector
from course_lib.errors import ProfileError
from course_lib.profiling.layer_tables.layer_times import LayerTimings

if TYPE_CHECKING:
    from course_lib.engines import LayerTable

_TIMES = {"latency": "latencyMs", "H2D": "h2dMs", "GPU compute": "computeMs", "D2H": "d2hMs"}
_LOG_PREFIX = re.compile(r"^(\[[\d/:-]+\] )?(\[[A-Z]\] )?")
_TIMES_OF_LAYER = r"\s*\d+\.\d+ +(?P<mean>\d+\.\d+)( +(?P<median>\d+\.\d+))? +\d+\.\d"  # total, mean, median since 8.4, share
_NAME_LAST, _NAME_FIRST = (
    re.compile(rf"{_TIMES_OF_LAYER}   (?P<name>.+)"),
    re.compile(rf" *(?P<name>\S.*?) {_TIMES_OF_LAYER}\s*"),
)
_NOT_JSON = re.compile(r":\s*-?(nan|inf)\b")  # C++ prints a share of no time like this


def read_layers(path: str | Path) -> LayerTable:
    """The layer table in a file of ``trtexec --exportLayerInfo``, or in a log of ``trtexec --dumpLayerInfo`` or of a verbose build.

    Raises:
        ProfileError: the file cannot be read, holds something else, or only the names of the layers.
    """
    text = _text(path)
    try:
        if "Layers:\n" in text or not text.lstrip().startswith(("{", "[")):  # the lines of a log begin with brackets, too
            table = parse_build_log(text)
        else:
            document = _json(text)
            if isinstance(document, list) and any(isinstance(row, dict) and _is_time(row) for row in document):
                raise ProfileError("this file holds times: run `course profile` on it")
            table = parse_inspector(text)
        if not table:
            named = text.rpartition("Layers:\n")[2].strip() if "Layers:\n" in text else ""
            raise ProfileError(NAMES_ONLY if named else "no layers: expected a file of `trtexec --exportLayerInfo=FILE`")
        return table
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from None


def read_layer_times(path: str | Path) -> LayerTimings:
    """The times of every layer in a file of ``trtexec --exportProfile``, or in a log of ``trtexec --dumpProfile``.

    It has one median for each layer, or one mean before TensorRT 8.4, not the single runs.

    Raises:
        ProfileError: the file cannot be read, or is not such a file.
    """
    rows = [row for row in _rows(path) if "name" in row]
    for key, statistic in (("medianMs", "median"), ("averageMs", "mean")):
        if rows and all(_is_number(row.get(key)) for row in rows):
            counts = [int(row["count"]) for row in _rows(path) if _is_number(row.get("count"))]
            ms = np.array([[float(row[key]) for row in rows]])
            return LayerTimings(
                tuple(str(row["name"]) for row in rows), ms, summarized_runs=sum(counts[:1]), statistic=statistic
            )
    raise ProfileError(f"{path} has no times of layers: expected `trtexec --exportProfile=FILE`, with name and averageMs")


@dataclass(frozen=True, eq=False)
class InferenceTimes:
    """The times of single inferences, in milliseconds, in the order in which they ran.

    Attributes:
        ms: one series for each of "latency", "H2D", "GPU compute", "D2H" and "enqueue" that was recorded, all of the same length.
            The latency is the sum of the two copies and the GPU's computation.
        wall_ms: time from the start of the first inference to the end of the last one; 0 if it was not recorded.
    """

    ms: Mapping[str, np.ndarray] = field(repr=False)
    wall_ms: float = 0.0

    def __len__(self) -> int:
        return len(self.ms["latency"])

    @property
    def per_second(self) -> float:
        """Inferences per second of wall time; 0 if it is unknown. Several streams, or the next inference's copies, overlap."""
        return 1e3 * len(self) / self.wall_ms if self.wall_ms else 0.0


def read_inference_times(path: str | Path) -> InferenceTimes:
    """The times of every inference in a file of ``trtexec --exportTimes``. trtexec leaves out those of the warm-up.

    Raises:
        ProfileError: the file cannot be read, or is not such a file.
    """
    rows = [row for row in _rows(path) if "computeMs" in row]
    series = {name: _column(rows, key) for name, key in _TIMES.items()}
    if not rows or any(column is None for column in series.values()):
        raise ProfileError(
            f"{path} has no times of inferences: expected `trtexec --exportTimes=FILE`, with computeMs and latencyMs"
        )
    start, end = _column(rows, "startEnqMs"), _column(rows, "endEnqMs")
    if start is not None and end is not None:
        series["enqueue"] = end - start
    first, last = _column(rows, "startH2dMs"), _column(rows, "endD2hMs")
    wall = float(last.max() - first.min()) if first is not None and last is not None else 0.0
    return InferenceTimes({name: column for name, column in series.items() if column is not None}, max(wall, 0.0))


def _column(rows: list[dict[str, Any]], key: str) -> np.ndarray | None:
    """One number of every row, if all rows have it."""
    if not rows or not all(_is_number(row.get(key)) for row in rows):
        return None
    return np.array([float(row[key]) for row in rows])


def _rows(path: str | Path) -> list[dict[str, Any]]:
    document = _json(text := _text(path))
    if document is None:
        return list(_printed(text))
    if isinstance(document, dict) and "Layers" in document:
        raise ProfileError(f"{path} holds layer information, not times: run `course layers` on it")
    return [row for row in document if isinstance(row, dict)] if isinstance(document, list) else []


def _printed(text: str) -> Iterator[dict[str, Any]]:
    """The rows of the table that trtexec prints, in the words of its JSON. Since TensorRT 8.6 the name is the last column."""
    _, found, table = text.rpartition("=== Profile (")
    head, *lines = table.split("\n") if found else [""]
    if count := re.match(r"\d+", head):
        yield {"count": int(count[0])}
    for line in lines:
        line = _LOG_PREFIX.sub("", line)
        row = _NAME_LAST.fullmatch(line) or _NAME_FIRST.fullmatch(line)
        if row and row["name"] == "Total":
            return
        if row:
            yield {"name": row["name"], "averageMs": float(row["mean"]), "medianMs": row["median"] and float(row["median"])}


def _is_time(row: Mapping[str, Any]) -> bool:
    return "averageMs" in row or "computeMs" in row


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _json(text: str) -> Any:
    """The value in trtexec's JSON, None if it is damaged. trtexec escapes nothing in names, and prints numbers that JSON lacks."""
    try:
        return json.loads(_NOT_JSON.sub(": null", text), strict=False)
    except (ValueError, RecursionError):
        return None


def _text(path: str | Path) -> str:
    try:
        return text_files.read_text(path, errors="replace")
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror or error}") from None
