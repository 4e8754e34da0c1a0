"""Readers that turn what TensorRT prints about a plan into a `LayerTable`: the build log, trtexec's log and the engine inspector.

The log's reader accepts any text. The versions differ in three ways:

- TensorRT 8.6 describes a tensor as ``"Format/Datatype": "Row major linear FP32"``. TensorRT 10 and 11 also write the datatype alone,
  ``"Format/Datatype": "Half"``. TensorRT for RTX has the two keys ``Datatype`` and ``Format``.
- TensorRT 8.6 and 10 list weights as ``"Weights": {"Type": "Half", "Count": 4096}``, or as ``ConvWeights`` if the layer also pools.
  TensorRT for RTX lists them as ``Constants``. For matrix multiplications, TensorRT 10.0 lists them among the inputs, and later
  versions do not list them.
- With dynamic shapes, TensorRT 8.6 writes ``N/A due to dynamic shapes`` for activations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from course_lib.engines.layers import Layer, LayerTable, LayerTensor
from course_lib.errors import ProfileError

NAMES_ONLY = (
    "this layer information has only names, so types and formats are unknown: build with detailed profiling verbosity "
    "(trtexec --profilingVerbosity=detailed, or config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED)"
)

_ONNX_LAYER = re.compile(r"\[ONNX Layer: ([^\]\x1e]+)")
# Between the nodes in a layer's name of TensorRT 8.6, such as "/a/Conv + PWN(PWN(/b/Sigmoid), /b/Mul)" and "/c/Conv || /d/Conv".
_BETWEEN_NODES = re.compile(r" \+ | \|\| |, |PWN\(|\)(?=$|\)|,| \+| \|\|)")
# Constants that TensorRT 10.0 lists among the inputs: weights, scalars, and what the parser broadcast.
_CONSTANT_INPUT = re.compile(r"__mye\d.*(dconst|_alpha|_beta)\w*|.*_constant(Float|Half|BFloat16|Int8|FP8|Int32|Int64)")
_DATATYPES = {  # the words that TensorRT writes, in lower case, and the word of layer tables
    "float": "Float", "fp32": "Float", "half": "Half", "fp16": "Half", "bfloat16": "BFloat16", "bf16": "BFloat16",
    "double": "Double", "fp64": "Double", "fp8": "FP8", "fp4": "FP4", "int4": "Int4", "int8": "Int8", "uint8": "UInt8",
    "int16": "Int16", "uint16": "UInt16", "int32": "Int32", "uint32": "UInt32", "int64": "Int64", "uint64": "UInt64",
    "bool": "Bool", "e8m0": "E8M0", "fp8ue8m0": "E8M0", "floatcomplex": "FloatComplex", "doublecomplex": "DoubleComplex",
}  # fmt: skip
_ENCODED_DATATYPE = re.compile(r"fp[48](?=e\dm\d)")  # "FP8E4M3", "FP4E2M1": a type with the name of its encoding
_NOT_REPORTED = ("N/A", "Unknown", "None")  # TensorRT says that it does not tell


def _datatype(text: str) -> str:
    """The datatype that a description names. ``""`` if TensorRT does not report it; a word that is not known stays as it is."""
    words = re.findall(r"\w+", text.lower())
    for word in words:
        encoded = _ENCODED_DATATYPE.match(word)
        if known := _DATATYPES.get(encoded[0] if encoded else word):
            return known
    return "" if text.startswith(_NOT_REPORTED) else text.strip()


def parse_build_log(text: str, operators: Mapping[str, str] | None = None) -> LayerTable:
    """The table that TensorRT prints at the end of a verbose build with detailed profiling verbosity, and ``trtexec --dumpLayerInfo``.

    The table is empty if there is no such section, or if it has only names.

    Args:
        text: the log; only its last ``Layers:`` section counts.
        operators: operator type of each ONNX node by node name.
    """
    _, found, section = text.rpartition("Layers:\n")
    rows = _log_rows(section) if found else ()
    return LayerTable(tuple(rows), dict(operators or {}))


# One line of that section holds the fields of a layer as "Key: value", separated by commas. Cutting it at the keys, left to right,
# takes linear time on any text; a regular expression with as many wildcards would not.
def _log_rows(section: str) -> Iterator[Layer]:
    for line in section.split("\n"):  # splitlines() would also split at characters that a name may hold
        start, found, fields = line.partition(", LayerType: ")
        if not found or not start.startswith("Name: "):  # the section ends at the first line that is no layer
            return
        name, (kind, _, _) = start.removeprefix("Name: "), fields.partition(",")
        inputs, fields = _log_tensors(fields, "Inputs")
        constants, fields = _log_tensors(fields, "Constants")
        outputs, fields = _log_tensors(fields, "Outputs")
        fields, _, metadata = fields.partition(", Metadata: ")
        inputs, among_inputs = _without_constants(inputs)
        weights = (
            _weights(type_, int(count))
            for type_, count in re.findall(r', \w*Weights: \{"Type": "(\w+)", "Count": (\d{1,18})\}', fields)
        )
        tactic = re.split(", (?:TacticValue|StreamId): ", fields.partition(", TacticName: ")[2], maxsplit=1)[0]
        yield Layer(
            name=name,
            kind=kind,
            inputs=inputs,
            constants=(*constants, *among_inputs, *weights),
            outputs=outputs,
            tactic=tactic,
            onnx_nodes=tuple(_ONNX_LAYER.findall(metadata)),
        )


def _log_tensors(fields: str, key: str) -> tuple[tuple[LayerTensor, ...], str]:
    """The tensors under a key, and the fields after it."""
    _, found, after = fields.partition(f", {key}: [")
    if not found:
        return (), fields
    if after.startswith("]"):
        return (), after[1:]
    listed, end, rest = after.partition(" }]")
    if not end:
        return (), fields
    return tuple(filter(None, map(_log_tensor, listed.removeprefix(" { ").split(" }, { ")))), rest


def _log_tensor(text: str) -> LayerTensor | None:
    start, found, fields = text.partition(", Dimensions: [")
    if not found or not start.startswith("Name: "):
        return None
    name = start.removeprefix("Name: ").partition(", Location: ")[0]
    dimensions, _, fields = fields.partition("]")
    shape = tuple(int(n) for n in re.findall(r"-?\d{1,18}", dimensions))
    _, separate, types = fields.partition(", Datatype: ")
    if separate:
        dtype, _, layout = types.partition(", Format: ")
        return LayerTensor(name, shape, _datatype(dtype), _short_format(layout))
    return _described(name, shape, fields.partition("Format/Datatype: ")[2])


def _described(name: str, shape: tuple[int, ...], description: str) -> LayerTensor:
    """A tensor whose format and datatype are one text. A datatype alone tells no format."""
    alone = " " not in description or description.startswith(_NOT_REPORTED)
    return LayerTensor(name, shape, _datatype(description), "" if alone else description)


def _short_format(text: str) -> str:
    """``(NHWC) Channel major format`` -> ``NHWC``."""
    short = re.match(r"\((\w+)\)", text)
    return short[1] if short else text


def _without_constants(inputs: tuple[LayerTensor, ...]) -> tuple[tuple[LayerTensor, ...], tuple[LayerTensor, ...]]:
    """The inputs without the constants among them, and these."""
    constants = tuple(tensor for tensor in inputs if _CONSTANT_INPUT.fullmatch(tensor.name))
    return tuple(tensor for tensor in inputs if tensor not in constants), constants


def _weights(dtype: str, count: int) -> LayerTensor:
    return LayerTensor("weights", (count,), _datatype(dtype))


def parse_inspector(text: str, operators: Mapping[str, str] | None = None) -> LayerTable:
    """The table inside ``EngineInspector.get_engine_information(JSON)`` of TensorRT 8.6, 10 and 11, as trtexec exports it.

    TensorRT 8.6 writes control characters inside strings. For dynamic shapes it omits the datatypes of activations, so the type of
    the weights is used. Its layer names are the ONNX nodes joined by `` + ``; later versions list them under Metadata.

    Raises:
        ProfileError: the text is not layer information, or it has only the names of the layers.
    """
    try:
        document = json.loads(text, strict=False)
    except (ValueError, RecursionError):
        raise ProfileError("not layer information: expected the inspector's JSON, with the key Layers") from None
    layers = document.get("Layers") if isinstance(document, dict) else document
    if not isinstance(layers, list):
        raise ProfileError("not layer information: the inspector's JSON has a list under the key Layers")
    rows = [_inspected(row) for row in layers if isinstance(row, dict) and "Name" in row]
    if layers and not rows:
        raise ProfileError(NAMES_ONLY if isinstance(layers[0], str) else "not layer information: its layers have no key Name")
    return LayerTable(tuple(rows), dict(operators or {}))


def _inspected(row: dict[str, Any]) -> Layer:
    name, metadata = str(row.get("Name", "")), str(row.get("Metadata", ""))
    nodes = _ONNX_LAYER.findall(metadata)
    if not nodes and row.get("LayerType") != "Reformat" and "ForeignNode" not in name:  # that one names a whole subgraph
        nodes = [part for part in _BETWEEN_NODES.split(name) if part and not part.startswith("(Unnamed")]
    inputs, constants = _without_constants(_inspected_tensors(row.get("Inputs")))
    constants += _inspected_tensors(row.get("Constants"))
    for weights in (
        value for key, value in row.items() if key.endswith("Weights")
    ):  # "ConvWeights", if a convolution is one of several
        if isinstance(weights, dict) and weights.get("Type"):
            count = weights.get("Count")
            constants += (_weights(str(weights["Type"]), count if isinstance(count, int) else -1),)
    return Layer(
        name=name,
        kind=str(row.get("LayerType", "")),
        inputs=inputs,
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
        name, dimensions = str(row.get("Name", "")), row.get("Dimensions")
        shape = tuple(n for n in dimensions if isinstance(n, int)) if isinstance(dimensions, list) else ()
        if "Datatype" in row:
            tensors.append(LayerTensor(name, shape, _datatype(str(row["Datatype"])), str(row.get("Format", ""))))
        else:
            tensors.append(_described(name, shape, str(row.get("Format/Datatype", row.get("Format", "N/A")))))
    return tuple(tensors)
