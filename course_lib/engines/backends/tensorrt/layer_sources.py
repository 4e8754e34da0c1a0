"""Readers that turn what a compiler prints about a plan into a `LayerTable`. They accept any text and never raise on it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from course_lib.engines.layers import Layer, LayerTable, LayerTensor

# The fields of one line of the build log's "Layers:" section, in their order. Cutting the line at these markers, left to
# right, takes linear time on any text; a regular expression with as many wildcards would not.
_MARKERS = (
    "Name: ",
    ", LayerType: ",
    ", Inputs: [",
    "], Constants: [",
    "], Outputs: [",
    "], TacticName: ",
    ", StreamId: ",
    ", Metadata: ",
)
_STEP_MARKERS = _MARKERS[:2]  # of a step on the host, which has other fields after these
_TENSOR_MARKERS = (" Name: ", ", Dimensions: [", "], Strides: [", ", Datatype: ", ", Format: ")
_ONNX_LAYER = re.compile(r"\[ONNX Layer: ([^\]\x1e]+)")
# Between the nodes in a layer's name of TensorRT 8.6, such as "/a/Conv + PWN(PWN(/b/Sigmoid), /b/Mul)" and "/c/Conv || /d/Conv".
_BETWEEN_NODES = re.compile(r" \+ | \|\| |, |PWN\(|\)(?=$|\)|,| \+| \|\|)")
_WORDS_OF_DTYPE = (  # how TensorRT 8.6 spells a datatype inside a format's description
    ("FP32", "Float"), ("FP16", "Half"), ("BF16", "BFloat16"), ("Int8", "Int8"), ("INT8", "Int8"), ("FP8", "FP8"),
    ("Int32", "Int32"), ("INT32", "Int32"), ("Int64", "Int64"), ("INT64", "Int64"), ("BOOL", "Bool"), ("Bool", "Bool"),
)  # fmt: skip


def parse_build_log(text: str, operators: Mapping[str, str] | None = None) -> LayerTable:
    """The table that TensorRT for RTX prints at the end of a verbose build with detailed profiling verbosity.

    Args:
        text: the build log; only its last ``Layers:`` section counts.
        operators: operator type of each ONNX node by node name.
    """
    _, found, section = text.rpartition("Layers:\n")
    rows = _log_rows(section) if found else ()
    return LayerTable(tuple(rows), dict(operators or {}))


def _log_rows(section: str) -> Iterator[Layer]:
    for line in section.split("\n"):  # splitlines() would also split at characters that a name may hold
        fields = _cut(line, _MARKERS)
        if fields is None and (step := _cut(line, _STEP_MARKERS)):
            yield Layer(name=step[0], kind=step[1].partition(",")[0])
            continue
        if fields is None:  # the section ends at the first line that is no layer
            return
        name, kind, inputs, constants, outputs, tactic, _, metadata = fields
        yield Layer(
            name=name,
            kind=kind,
            inputs=_log_tensors(inputs),
            constants=_log_tensors(constants),
            outputs=_log_tensors(outputs),
            tactic=tactic,
            onnx_nodes=tuple(_ONNX_LAYER.findall(metadata)),
        )


def _log_tensors(text: str) -> tuple[LayerTensor, ...]:
    cut = (_cut(block.rstrip(" }"), _TENSOR_MARKERS) for block in text.removeprefix(" {").split("}, {"))
    return tuple(
        LayerTensor(name, _shape(dimensions), dtype, _short_format(layout))
        for name, dimensions, _, dtype, layout in filter(None, cut)
    )


def _cut(line: str, markers: tuple[str, ...]) -> list[str] | None:
    """The text after each marker. All markers must be present in this order, the first one at the start."""
    if not line.startswith(markers[0]):
        return None
    fields, rest = [], line[len(markers[0]) :]
    for marker in markers[1:]:
        field, found, rest = rest.partition(marker)
        if not found:
            return None
        fields.append(field)
    return [*fields, rest]


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"-?\d{1,18}", text))


def _short_format(text: str) -> str:
    """``(NHWC) Channel major format`` -> ``NHWC``."""
    short = re.match(r"\((\w+)\)", text)
    return short[1] if short else text


def parse_inspector(text: str, operators: Mapping[str, str] | None = None) -> LayerTable:
    """The table inside ``EngineInspector.get_engine_information(JSON)`` of TensorRT 8.6, 10 and 11.

    TensorRT 8.6 writes control characters inside strings. For dynamic shapes it omits the datatypes of activations, so the type of
    the weights is used. Its layer names are the ONNX nodes joined by `` + ``; later versions list them under Metadata.
    """
    try:
        document = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return LayerTable((), dict(operators or {}))
    layers = document.get("Layers", []) if isinstance(document, dict) else []
    rows = (_inspected(row) for row in layers if isinstance(row, dict)) if isinstance(layers, list) else ()
    return LayerTable(tuple(rows), dict(operators or {}))


def _inspected(row: dict[str, Any]) -> Layer:
    name, metadata = str(row.get("Name", "")), str(row.get("Metadata", ""))
    nodes = _ONNX_LAYER.findall(metadata)
    if not nodes and row.get("LayerType") != "Reformat" and "ForeignNode" not in name:  # that one names a whole subgraph
        nodes = [part for part in _BETWEEN_NODES.split(name) if part and not part.startswith("(Unnamed")]
    weights = row.get("Weights")
    constants: tuple[LayerTensor, ...] = ()
    if isinstance(weights, dict) and weights.get("Type"):
        count = weights.get("Count")
        constants = (LayerTensor("weights", (count,) if isinstance(count, int) else (-1,), str(weights["Type"])),)
    return Layer(
        name=name,
        kind=str(row.get("LayerType", "")),
        inputs=_inspected_tensors(row.get("Inputs")),
        constants=constants,
        outputs=_inspected_tensors(row.get("Outputs")),
        tactic=str(row.get("TacticName", row.get("TacticValue", ""))),
        onnx_nodes=tuple(nodes),
    )


def _inspected_tensors(rows: Any) -> tuple[LayerTensor, ...]:
    if not isinstance(rows, list):
        return ()
    tensors = []
    for row in rows:
        if not isinstance(row, dict):
            continue
        described = str(row.get("Format/Datatype", row.get("Format", "")))
        unknown = described.startswith("N/A")
        dtype = str(row.get("Datatype", "")) or next((name for word, name in _WORDS_OF_DTYPE if word in described), "")
        dimensions = row.get("Dimensions")
        shape = tuple(n for n in dimensions if isinstance(n, int)) if isinstance(dimensions, list) else ()
        tensors.append(LayerTensor(str(row.get("Name", "")), shape, "" if unknown else dtype, "" if unknown else described))
    return tuple(tensors)
