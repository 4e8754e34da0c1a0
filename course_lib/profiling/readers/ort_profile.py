"""A model profiled by ONNX Runtime on this machine's CPU: the layer table of its optimized graph, and the time of every layer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from course_lib._util.cpu_int8 import session_options
from course_lib._util.model_file import open_model
from course_lib._util.plain_text import reason
from course_lib.engines import Layer, LayerTable, LayerTensor
from course_lib.engines.backends.onnxruntime.layers import dtype_word, parse_ort_profile
from course_lib.errors import BuildError, EngineError
from course_lib.profiling.layer_tables.layer_times import LayerTimings
from course_lib.profiling.readers.ort_nodes import fused_nodes

if TYPE_CHECKING:
    import numpy as np
    import onnx

_LEVELS = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
_WARM_UP = 3


def profile_onnxruntime(
    model: onnx.ModelProto | str | os.PathLike[str],
    feeds: Mapping[str, np.ndarray],
    *,
    level: Literal["disabled", "basic", "extended", "all"] = "all",
    runs: int = 20,
) -> tuple[LayerTable, LayerTimings]:
    """The layers of a model in ONNX Runtime on the CPU, and the time of each layer.

    Args:
        model: an ONNX file, or a model in memory.
        feeds: inputs by name. They determine the shapes in the table.
        level: optimization level. "basic" folds, removes unused nodes and fuses some, "extended" fuses more, "all" changes layouts.
        runs: number of measured runs, after three warm-up runs.

    Returns:
        The table, one row per node of the optimized graph, with the ONNX nodes that `fused_nodes` finds in it; and the timings,
        together with that table. They end at whole microseconds: layers below a few microseconds are not measured.

    Raises:
        BuildError: no such file, no ONNX model, or one that ONNX Runtime rejects.
        EngineError: the inputs do not fit the model.
        ValueError: an unknown level, or less than one run.
    """
    if level not in _LEVELS or runs < 1:
        raise ValueError(f"need a level of {', '.join(_LEVELS)}, and runs >= 1, got {level!r} and {runs}")
    import numpy as np
    import onnx

    named = _named(open_model(model))
    feeds = {name: np.asarray(array) for name, array in feeds.items()}
    with TemporaryDirectory() as folder:
        saved = Path(folder, "optimized.onnx")
        text = _profile(named, feeds, level, _WARM_UP + runs, saved)
        optimized = onnx.load(saved)
    operators = {node.name: node.op_type for node in named.graph.node}
    table = _described(parse_ort_profile(text, operators), named, optimized, feeds)
    return table, LayerTimings.from_ort_profile(text, skip=_WARM_UP).with_table(table)


def _named(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model, or a copy with a unique name for every node if nodes have no name or share one."""
    if len({node.name for node in model.graph.node} - {""}) == len(model.graph.node):
        return model
    names: set[str] = set()
    changed = type(model)()
    changed.CopyFrom(model)
    for index, node in enumerate(changed.graph.node):
        wanted = node.name or f"unnamed_{index}"
        node.name = wanted if wanted not in names else f"{wanted}_{index}"
        names.add(node.name)
    return changed


def _profile(model: onnx.ModelProto, feeds: Any, level: str, runs: int, saved: Path) -> str:
    """The text of the profile; the graph that was run is written to `saved`."""
    import onnxruntime

    options = session_options()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[level])
    options.optimized_model_filepath = str(saved)
    options.enable_profiling = True
    options.profile_file_prefix = str(saved.with_name("profile"))
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises classes of its own binding, without a common public base
        raise BuildError(f"onnxruntime {onnxruntime.__version__} rejects the model: {reason(error)}") from None
    try:
        for _ in range(runs):
            session.run(None, feeds)
    except Exception as error:  # as above
        raise EngineError(f"onnxruntime failed: {reason(error)}") from None
    finally:
        written = session.end_profiling()
    return Path(written).read_text(encoding="utf-8")


def _described(table: LayerTable, model: onnx.ModelProto, optimized: onnx.ModelProto, feeds: Any) -> LayerTable:
    """The table with data that only the optimized graph has: names of tensors, weights, layouts, and the ONNX nodes."""
    nodes, inside = optimized.graph.node, fused_nodes(model, optimized)
    pairs = list(_pairs(table, nodes))
    weights = {
        t.name: LayerTensor(t.name, tuple(t.dims), dtype_word(_onnx_name(t.data_type))) for t in optimized.graph.initializer
    }
    tensors = {name: LayerTensor(name, array.shape, dtype_word(_name_of(array))) for name, array in feeds.items()}
    for layer, index in pairs:
        if index is not None:
            written = zip(filter(None, nodes[index].output), layer.outputs, strict=False)
            tensors |= {name: replace(tensor, name=name, format=_format(nodes[index])) for name, tensor in written}

    def described(layer: Layer, index: int) -> Layer:
        return replace(
            layer,
            inputs=tuple(tensors[name] for name in nodes[index].input if name in tensors),
            constants=tuple(weights[name] for name in nodes[index].input if name in weights),
            outputs=tuple(tensors[name] for name in nodes[index].output if name in tensors),
            onnx_nodes=inside[index],
        )

    return LayerTable(tuple(layer if index is None else described(layer, index) for layer, index in pairs), table.operators)


def _pairs(table: LayerTable, nodes: Sequence[onnx.NodeProto]) -> Iterator[tuple[Layer, int | None]]:
    """Each row with the index of its node in the optimized graph.

    Nodes are matched by name. Nodes without a name (inside a function) are matched by position, if both lists agree otherwise.
    """
    by_name = {node.name: index for index, node in enumerate(nodes) if node.name}
    same_order = len(nodes) == len(table) and all(
        node.op_type == layer.kind and node.name in ("", layer.name) for layer, node in zip(table, nodes, strict=True)
    )
    for place, layer in enumerate(table):
        yield layer, place if same_order else by_name.get(layer.name)


def _format(node: onnx.NodeProto) -> str:
    """The layout of a node's output, if it is not ONNX's own."""
    if any(attribute.name == "channels_last" and attribute.i for attribute in node.attribute):
        return "NHWC"
    return "NCHWc" if node.domain == "com.microsoft.nchwc" and node.op_type != "ReorderOutput" else ""


def _name_of(array: Any) -> str:
    from onnx import helper

    return _onnx_name(helper.np_dtype_to_tensor_dtype(array.dtype))


def _onnx_name(data_type: int) -> str:
    from onnx import TensorProto

    return TensorProto.DataType.Name(data_type)
