"""What lab 13 gives: a decoder that computes every byte again, a writer for the graph of one with a cache, and a runner for it.

A submission's graph has these inputs and outputs:

====================================  ================================================================================
input                                 shape and type
====================================  ================================================================================
``tokens``                            ``(1, new)``, int64
``position``                          ``(1,)``, int64: number of tokens of the conversation before the new ones
``past_key_0``, ``past_value_0`` ...  ``(1, 2, LENGTH, 32)``, float32, a pair for each of the four blocks
====================================  ================================================================================

The outputs are ``logits`` ``(1, 1, 256)`` of the last new token, and ``present_key_0``, ``present_value_0`` and so on.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib import style
from course_lib.errors import BuildError, CourseError, EngineError

if TYPE_CHECKING:
    import onnx
    from torch import nn

LENGTH = 256  # slots of the cache
WINDOW = 128  # tokens that a token attends to, itself included
MOST_NEW = 128  # tokens of a call: the last one must not overwrite what the first one attends to
POSITIONS = 1024  # of a conversation
STOP = 10  # the newline: an answer ends with the first one
VOCABULARY, BLOCKS, HEADS, KV_HEADS, SIZE = 256, 4, 6, 2, 32
CACHE_SHAPE = (1, KV_HEADS, LENGTH, SIZE)
CACHES = tuple(f"{kind}_{index}" for index in range(BLOCKS) for kind in ("key", "value"))
OPSET = 24  # the first one with TensorScatter
LARGEST_FP16 = 65504.0
_FLOAT, _HALF = 1, 10  # TensorProto's numbers
Begin = Callable[["GraphWriter"], Any]
Attention = Callable[["GraphWriter", str, int, Any], str]


class GraphWriter:
    """Writes the decoder's graph node by node. Each method adds nodes and returns the name of their result.

    Attributes:
        steps: name of an int64 value ``(new,)``: 0, 1, 2, ... for the new tokens.
        cos, sin: names of the rotary tables by position, ``(POSITIONS, 16)``, as ONNX's `RotaryEmbedding` reads them.
    """

    cos, sin, steps = "cos", "sin", "steps"

    def __init__(self) -> None:
        from course_lib.models import decoder

        self._model = decoder(longest=POSITIONS)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        for name, table in (("cos", self._model.cos), ("sin", self._model.sin)):
            self._keep(name, table.numpy())

    def add(self, operator: str, *inputs: str, name: str = "", result: str = "", **attributes: Any) -> str:
        """Add a node with one output.

        Args:
            operator: an operator of ONNX, such as ``"Reshape"``.
            inputs: names of values, as this method and `constant` return them; "" for an optional input that is left out.
            name: name of the node; default ``/OPERATOR_NUMBER``.
            result: name of the output; needed only for outputs of the graph, such as ``"present_key_0"``.
            attributes: the node's attributes, such as ``perm=[0, 2, 1, 3]``.
        """
        return self._node(operator, inputs, 1, name, result, attributes)[0]

    def split(self, x: str, sizes: list[int], axis: int, name: str = "") -> tuple[str, ...]:
        """Add a `Split` into parts of the given sizes, one result for each."""
        return self._node("Split", (x, self.constant(sizes)), len(sizes), name, "", {"axis": axis})

    def constant(self, value: Any) -> str:
        """A constant: an array, a scalar or a list. Integers become int64, and float64 becomes float32, the graph's only float type."""
        array = np.asarray(value, order="C")
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        text = "x".join(map(str, array.shape)) or "scalar"
        return self._keep(f"constant_{array.dtype}_{text}_{zlib.crc32(array.tobytes()):08x}", array)

    def linear(self, x: str, path: str) -> str:
        """A linear layer of the checkpoint, such as ``"blocks.0.qkv"`` (192 to 320) or ``"blocks.0.out"`` (192 to 192)."""
        layer = self._model.get_submodule(path)
        weight = self._keep(f"{path}.weight", layer.weight.detach().T.numpy())  # type: ignore[operator]
        return self.add("MatMul", x, weight, name=f"/{path.replace('.', '/')}/MatMul")

    def write(self, path: str | Path, begin: Begin, attention: Attention) -> onnx.ModelProto:
        """Write the whole decoder to a file and check it with ``onnx.checker``.

        Args:
            begin: called once with this writer. What it returns, such as positions and mask, is passed to every `attention`.
            attention: called for each block with this writer, the name of the normalized input ``(1, new, 192)``, the block's
                index and what `begin` returned. It returns the name of the answer, ``(1, new, 192)``, and has added the outputs
                ``present_key_INDEX`` and ``present_value_INDEX``.
        """
        import onnx
        from onnx import TensorProto, helper

        self._steps()
        shared = begin(self)
        embedding = self._keep("embed.weight", self._model.embed.weight.detach().numpy())
        x = self.add("Gather", embedding, "tokens", name="/embed/Gather")
        for index, block in enumerate(self._model.each_block()):
            own = f"/blocks/{index}"
            x = self.add(
                "Add", x, attention(self, self._norm(x, block.norm1, f"{own}/norm1"), index, shared), name=f"{own}/Add"
            )
            y = self.linear(self._norm(x, block.norm2, f"{own}/norm2"), f"blocks.{index}.up")
            y = self.linear(self.add("Gelu", y, name=f"{own}/Gelu"), f"blocks.{index}.down")
            x = self.add("Add", x, y, name=f"{own}/Add_1")
        x = self.add("Gather", x, self.constant([-1]), name="/last/Gather", axis=1)
        head = self._keep("head.weight", self._model.embed.weight.detach().T.numpy())
        self.add("MatMul", self._norm(x, self._model.norm, "/norm"), head, name="/head/MatMul", result="logits")
        inputs = [
            helper.make_tensor_value_info("tokens", TensorProto.INT64, [1, "new"]),
            helper.make_tensor_value_info("position", TensorProto.INT64, [1]),
            *(helper.make_tensor_value_info(f"past_{name}", TensorProto.FLOAT, CACHE_SHAPE) for name in CACHES),
        ]
        outputs = [
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 1, VOCABULARY]),
            *(helper.make_tensor_value_info(f"present_{name}", TensorProto.FLOAT, CACHE_SHAPE) for name in CACHES),
        ]
        graph = helper.make_graph(self._nodes, "decoder", inputs, outputs, list(self._constants.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=11)
        onnx.checker.check_model(model, full_check=True)
        Path(path).write_bytes(model.SerializeToString())
        return model

    def _steps(self) -> None:
        """The first `new` rows of a table. A `Range` of the same numbers would compute with a size, which the grader rejects."""
        count = self.add("Shape", "tokens", name="/steps/Shape", start=1, end=2)
        zero = self.constant([0])
        self.add("Slice", self.constant(np.arange(LENGTH)), zero, count, zero, name="/steps/Slice", result="steps")

    def _norm(self, x: str, norm: nn.Module, name: str) -> str:
        scale, bias = (self._keep(f"{name}.{part}", getattr(norm, part).detach().numpy()) for part in ("weight", "bias"))
        return self.add("LayerNormalization", x, scale, bias, name=f"{name}/LayerNormalization", epsilon=norm.eps)

    def _keep(self, name: str, array: np.ndarray) -> str:
        from onnx import numpy_helper

        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        return name

    def _node(
        self, operator: str, inputs: tuple[str, ...], outputs: int, name: str, result: str, attributes: dict[str, Any]
    ) -> tuple[str, ...]:
        from onnx import helper

        for place, value in enumerate(inputs, 1):
            if not isinstance(value, str):
                raise CourseError(
                    f"input {place} of {operator} must be the name of a value, found {value!r:.60}: use graph.constant(...)"
                )
        name = name or f"/{operator}_{len(self._nodes)}"
        results = (result,) if result else tuple(f"{name}_output_{place}" for place in range(outputs))
        self._nodes.append(helper.make_node(operator, inputs, results, name=name, **attributes))
        return results


class Decoder:
    """Runs your ``decoder.onnx`` on the CPU, with one cache for all conversations, bound as input and as output.

    Args:
        model: the file, or a serialized model.
    """

    def __init__(self, model: str | Path | bytes = "decoder.onnx") -> None:
        import onnx
        import onnxruntime

        from course_lib.models import CachedSession

        onnxruntime.set_default_logger_severity(3)  # errors: a graph that copies its cache would log it in each step
        loaded = onnx.load_model_from_string(model) if isinstance(model, bytes) else onnx.load(model)
        self._session = CachedSession(loaded, longest=POSITIONS)

    @property
    def cache(self) -> dict[str, np.ndarray]:
        """The buffers of the cache by input name. You may write to them: ``cache["past_key_0"][:] = 0``."""
        return self._session.cache

    def step(self, tokens: Sequence[int], position: int) -> np.ndarray:
        """Run the decoder once.

        Args:
            tokens: the new tokens, 1 to `MOST_NEW`.
            position: number of tokens of the conversation before them.

        Returns:
            The scores of the next token, float32 ``(256,)``, which the next call overwrites.

        Raises:
            EngineError: the call has too many tokens, or goes beyond the end of the ring.
        """
        new, slot = len(tokens), position % LENGTH
        if not 1 <= new <= MOST_NEW:
            raise EngineError(f"a call has {new} tokens, expected 1 to {MOST_NEW}")
        if slot + new > LENGTH:
            raise EngineError(
                f"a call of {new} tokens at position {position} begins in slot {slot} and goes beyond the last slot, "
                f"{LENGTH - 1}: TensorRT's cache layer does not go on at slot 0"
            )
        self._session.position[:] = position
        return self._session.step(np.array([list(tokens)], np.int64))[0, -1]


def in_half(model: onnx.ModelProto) -> onnx.ModelProto:
    """A float32 graph in FP16: constants, casts, inputs and outputs; only ``logits`` stay float32.

    TensorRT does not have a fused attention for FP32, and ONNX Runtime computes in FP32. One graph in two types is still one
    computation, because the course itself changes the type.

    Raises:
        BuildError: a constant does not fit into FP16.
    """
    import onnx
    from onnx import helper

    model = onnx.ModelProto.FromString(model.SerializeToString())
    graph = model.graph
    for tensor in graph.initializer:
        _halve(tensor)
    for info in (*graph.input, *graph.output):
        if info.type.tensor_type.elem_type == _FLOAT and info.name != "logits":
            info.type.tensor_type.elem_type = _HALF
    del graph.value_info[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _halve(attribute.t)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == _FLOAT:
                attribute.i = _HALF
        node.output[:] = ["logits_in_half" if name == "logits" else name for name in node.output]
        node.input[:] = ["logits_in_half" if name == "logits" else name for name in node.input]
    graph.node.append(helper.make_node("Cast", ["logits_in_half"], ["logits"], name="/head/Cast", to=_FLOAT))
    onnx.checker.check_model(model, full_check=True)
    return model


def _halve(tensor: onnx.TensorProto) -> None:
    from onnx import numpy_helper

    if tensor.data_type != _FLOAT:
        return
    array = numpy_helper.to_array(tensor)
    largest = float(np.abs(array).max(initial=0.0))
    if largest > LARGEST_FP16:
        raise BuildError(
            f"the constant {tensor.name[:60]!r} has the size {largest:.3g}, and FP16 ends at {LARGEST_FP16:g}: a mask needs a "
            "number that the compiler's type can hold, such as -6e4"
        )
    tensor.CopyFrom(numpy_helper.from_array(array.astype(np.float16), tensor.name))


def errors(right: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The relative error of the logits ``(calls, 256)`` of each call."""
    return np.asarray(np.linalg.norm(found - right, axis=1) / np.linalg.norm(right, axis=1))


def error(right: np.ndarray, found: np.ndarray) -> float:
    """The largest of `errors`."""
    return float(errors(right, found).max())


def cost_by_position(positions: Sequence[int], milliseconds: Mapping[str, Sequence[float]], takeaway: str) -> style.Figure:
    """Draw the milliseconds that a token takes, for each decoder and number of tokens before it."""
    figure, axes = style.subplots(3.2)
    for index, (name, times) in enumerate(milliseconds.items()):
        axes.plot(positions, times, "o-", color=style.color(index), label=name)
    axes.set(xlabel="tokens before the new one", ylabel="time of a token (ms)", title=takeaway)
    axes.set_ylim(bottom=0)
    style.name_lines(axes)
    return figure
