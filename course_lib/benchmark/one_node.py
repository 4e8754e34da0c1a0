"""The models of a sensitivity test: a float32 model in which one node at a time is replaced by its reduced version.

All sessions share the large weights, which ONNX Runtime receives once. Each node only needs a new graph of a few kilobytes. On
ResNet-50, a session then takes 0.1 s instead of 0.4 s.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from course_lib._util.plain_text import reason
from course_lib.errors import CourseError, EngineError

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import onnxruntime

Feeds = Mapping[str, "np.ndarray"]
Outputs = tuple["np.ndarray", ...]  # in the order of the graph's outputs
Reduce = Callable[["onnx.ModelProto", Collection[str]], "onnx.ModelProto"]  # a model, and the nodes that stay float32
_SHARED_BYTES = 1024  # smaller initializers may be shapes and axes, which ONNX Runtime wants to see in the graph


class OneNode:
    """Cuts single nodes out of a model and replaces them.

    Args:
        model: a float32 model with the type of every tensor in its ``value_info`` and a unique name for each node.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        import onnx

        self._model = model
        self._weights = {weight.name: weight for weight in model.graph.initializer}
        graph = model.graph
        self._types = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
        self._places = {node.name: place for place, node in enumerate(graph.node)}
        self._skeleton = onnx.ModelProto()
        self._skeleton.CopyFrom(model)
        self._shared = _share(self._skeleton)

    def cut(self, name: str) -> onnx.ModelProto:
        """The node `name` as a model: its activations are the inputs, its weights and results are called as in the graph.

        Raises:
            CourseError: the type of one of its tensors is unknown.
        """
        from onnx import helper

        node = self._model.graph.node[self._places[name]]
        read, made = dict.fromkeys(filter(None, node.input)), dict.fromkeys(filter(None, node.output))
        for tensor in (*read, *made):
            if tensor not in self._weights and tensor not in self._types:
                raise CourseError(f"the type of {tensor!r}, at node {name!r}, is unknown: add it to value_info")
        graph = helper.make_graph(
            [node],
            "alone",
            [self._types[tensor] for tensor in read if tensor not in self._weights],
            [self._types[tensor] for tensor in made],
            [self._weights[tensor] for tensor in read if tensor in self._weights],
        )
        return helper.make_model(graph, opset_imports=self._model.opset_import, ir_version=self._model.ir_version)

    def session(self, name: str, replacement: onnx.ModelProto) -> Callable[[Feeds], Outputs]:
        """The whole model as a function of one batch, with `replacement` in place of the node `name`.

        Args:
            replacement: a model with the inputs and outputs of ``cut(name)``.
        """
        import onnx

        spliced = onnx.ModelProto()
        spliced.CopyFrom(self._skeleton)
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in replacement.graph.node]
        border = {value.name for value in (*replacement.graph.input, *replacement.graph.output)}
        inner = {tensor for node in nodes for tensor in (*node.input, *node.output)} - border - {""}
        own = {tensor: f"{tensor}/alone" for tensor in inner}  # the graph around may have tensors of these names
        for node in nodes:
            node.input[:] = [own.get(tensor, tensor) for tensor in node.input]
            node.output[:] = [own.get(tensor, tensor) for tensor in node.output]
        place = self._places[name]
        before, behind = list(spliced.graph.node[:place]), list(spliced.graph.node[place + 1 :])
        del spliced.graph.node[:]
        spliced.graph.node.extend([*before, *nodes, *behind])
        for weight in filter(lambda weight: weight.name in own, replacement.graph.initializer):
            added = spliced.graph.initializer.add()
            added.CopyFrom(weight)
            added.name = own[weight.name]
        read = {tensor for node in spliced.graph.node for tensor in node.input}
        return runner(spliced, {tensor: value for tensor, value in self._shared.items() if tensor in read})


def runner(model: onnx.ModelProto, shared: Mapping[str, Any] | None = None) -> Callable[[Feeds], Outputs]:
    """The model as a function of one batch: ONNX Runtime on the CPU, one thread, the same bits for the same feeds.

    Q/DQ pairs are computed literally, with rounding. They are not fused into integer kernels, whose sums differ between CPUs.

    Args:
        shared: values of the initializers that are not in the model, as `_share` returns them; no others.

    Raises:
        EngineError: ONNX Runtime rejects the model; the function raises it when it rejects a batch.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    if shared:
        options.add_external_initializers(list(shared), list(shared.values()))
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises classes of its own binding, without a common public base
        raise EngineError(f"onnxruntime rejects the model: {reason(error)}") from None

    def run(feeds: Feeds) -> Outputs:
        try:
            return tuple(session.run(None, dict(feeds)))
        except Exception as error:  # as above
            raise EngineError(f"onnxruntime rejected a batch: {reason(error)}") from None

    return run


def every_tensor(model: onnx.ModelProto, feeds: Feeds) -> dict[str, np.ndarray]:
    """All tensors that a model computes on one batch, by name, in graph order. The model is not changed.

    All tensors are marked as outputs, so none is fused away.

    Raises:
        EngineError: ONNX Runtime rejects the model or the batch.
    """
    import onnx

    marked = onnx.ModelProto()
    marked.CopyFrom(model)
    made = [name for node in model.graph.node for name in node.output if name]
    known = {value.name for value in model.graph.output}
    marked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name not in known)
    values = dict(zip((value.name for value in marked.graph.output), runner(marked)(feeds), strict=True))
    return {name: values[name] for name in made}


def reduction(dtype: str, ranges: Mapping[str, float] | None) -> Reduce:
    """A function that reduces a whole model or a single node. A model with nothing to reduce is returned unchanged.

    Raises:
        CourseError: an unknown dtype, or no ranges for INT8.
    """
    from course_lib.precision import activations, cast, insert_qdq
    from course_lib.precision.quantization.emulation import emulate

    if dtype == "int8":
        if ranges is None:
            raise CourseError("INT8 needs the range of each activation: pass ranges=calibrate(model, batches, calibrator)")
        return lambda model, keep: insert_qdq(model, ranges, exclude=keep) if activations(model, exclude=keep) else model
    if dtype not in ("fp16", "bf16"):
        raise CourseError(f"dtype must be 'fp16', 'bf16' or 'int8', got {dtype!r}")
    half: Any = dtype
    return lambda model, keep: emulate(cast(model, half, keep=keep))


def weights_overflow(alone: onnx.ModelProto, dtype: str) -> bool:
    """Whether a node holds a finite weight that becomes infinite in this type, which `cast` rejects. Never for INT8."""
    import ml_dtypes
    from onnx import TensorProto, numpy_helper

    if dtype == "int8":
        return False
    largest = float(ml_dtypes.finfo("float16" if dtype == "fp16" else "bfloat16").max)
    weights = [abs(numpy_helper.to_array(w)) for w in alone.graph.initializer if w.data_type == TensorProto.FLOAT]
    return any(bool(((weight > largest) & (weight < float("inf"))).any()) for weight in weights)


def _share(model: onnx.ModelProto) -> dict[str, onnxruntime.OrtValue]:
    """Move the large initializers out of `model`, in place, and return them by name as ONNX Runtime values."""
    import onnxruntime
    from onnx import TensorProto, numpy_helper

    shared = {}
    for weight in model.graph.initializer:
        if weight.ByteSize() > _SHARED_BYTES and weight.data_type == TensorProto.FLOAT:
            shared[weight.name] = onnxruntime.OrtValue.ortvalue_from_numpy(numpy_helper.to_array(weight).copy())
            name, shape = weight.name, list(weight.dims)
            weight.Clear()
            weight.name, weight.data_type, weight.data_location = name, TensorProto.FLOAT, TensorProto.EXTERNAL
            weight.dims.extend(shape)
            weight.external_data.add(key="location", value="in memory")
    return shared
