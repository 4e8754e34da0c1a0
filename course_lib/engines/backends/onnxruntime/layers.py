"""The layer table from ONNX Runtime's JSON profile. Like every reader of a compiler's text, it accepts any input and never raises."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from course_lib.engines.layers import Layer, LayerTable, LayerTensor

_KERNEL = "_kernel_time"
_WORDS = {  # how ONNX and its runtime spell a datatype, and how layer tables do
    "float": "Float", "float16": "Half", "bfloat16": "BFloat16", "double": "Double", "bool": "Bool", "string": "String",
    "int4": "Int4", "int8": "Int8", "int16": "Int16", "int32": "Int32", "int64": "Int64",
    "uint4": "UInt4", "uint8": "UInt8", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
    "float8e4m3fn": "FP8", "float8e5m2": "FP8E5M2",
}  # fmt: skip


def dtype_word(name: str) -> str:
    """The layer tables' word for a datatype that ONNX calls `name`, in any case: ``"FLOAT16"`` -> ``"Half"``. Unknown ones stay."""
    return _WORDS.get(name.lower(), name)


@dataclass(frozen=True)
class _Event:
    """One execution of one node; times in microseconds."""

    start: float
    duration: float
    thread: str
    name: str
    arguments: Mapping[str, Any]

    @property
    def node(self) -> tuple[str, str]:
        """An identifier that is the same in every run. Unnamed nodes are named after their operator and index."""
        return self.name, str(self.arguments.get("node_index", ""))


def parse_ort_profile(text: str, operators: Mapping[str, str] | None = None) -> LayerTable:
    """The nodes that ONNX Runtime executed, one row each in the order of the first run; empty if the text is not a profile.

    A profile contains neither tensor names nor which inputs are weights. Every tensor is therefore listed as an unnamed input or
    output, without the weights that a kernel packed for itself. Nodes inside an If or a Loop belong to that node.

    Args:
        text: the file that a session with ``SessionOptions.enable_profiling`` wrote.
        operators: operator type of each ONNX node by node name.
    """
    first: dict[tuple[str, str], _Event] = {}
    for event in _events(text):
        first.setdefault(event.node, event)
    return LayerTable(tuple(map(_layer, first.values())), dict(operators or {}))


def ort_kernel_ms(text: str) -> list[tuple[str, list[float]]]:
    """For each row of `parse_ort_profile`, its name and the milliseconds of every execution, with a resolution of a microsecond."""
    times: dict[tuple[str, str], list[float]] = {}
    for event in _events(text):
        times.setdefault(event.node, []).append(event.duration / 1e3)
    return [(name, ms) for (name, _), ms in times.items()]


def _events(text: str) -> list[_Event]:
    """The executions in order of their start, without those that happened inside another (the body of an If or a Loop)."""
    try:
        document = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return []
    found = (_event(row) for row in document) if isinstance(document, list) else ()
    events = sorted((event for event in found if event), key=lambda event: (event.start, -event.duration))
    ends: dict[str, float] = {}
    outermost = []
    for event in events:
        # both times are cut to whole microseconds, so a node that follows never starts before this end
        if event.start >= ends.get(event.thread, -math.inf):
            ends[event.thread] = event.start + event.duration
            outermost.append(event)
    return outermost


def _event(row: Any) -> _Event | None:
    if not isinstance(row, dict) or row.get("cat") != "Node":
        return None
    name, arguments, start, duration = (row.get(key) for key in ("name", "args", "ts", "dur"))
    if not isinstance(name, str) or not name.endswith(_KERNEL) or not isinstance(arguments, dict):
        return None
    if not _is_time(start) or not _is_time(duration):
        return None
    return _Event(float(start), float(duration), str(row.get("tid", "")), name.removesuffix(_KERNEL), arguments)


def _is_time(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e18


def _layer(event: _Event) -> Layer:
    return Layer(
        name=event.name,
        kind=str(event.arguments.get("op_name", "")),
        inputs=tuple(_tensors(event.arguments.get("input_type_shape"))),
        outputs=tuple(_tensors(event.arguments.get("output_type_shape"))),
        tactic=str(event.arguments.get("provider", "")),
    )


def _tensors(rows: Any) -> Iterator[LayerTensor]:
    """From ``[{"float": [8, 16, 32, 32]}, ...]``."""
    for row in rows if isinstance(rows, list) else ():
        for dtype, dimensions in row.items() if isinstance(row, dict) else ():
            shape = tuple(n for n in dimensions if isinstance(n, int)) if isinstance(dimensions, list) else ()
            yield LayerTensor("", shape, dtype_word(dtype))
