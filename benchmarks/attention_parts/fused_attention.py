"""A fused attention for TensorRT 8.6, which has none for newer GPUs: CUDA kernels, and the nodes of a graph that call them.

The kernels are in `kernels/`: for whole sequences, for a new token and a cache, and for the prompt that fills the cache. Two plugins
(`IPluginV2DynamicExt`) call them. `CourseAttention` replaces what TensorRT 8.6 makes of an encoder's attention: transposes, two products,
a softmax. `CourseCachedAttention` is everything between a decoder's projections, and writes the cache in place; the graph that contains
it is written by `gpt2_parts.onnx_opset17`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.errors import BackendUnavailable, CourseError, EngineError
from course_lib.plugins.compilers import compile_with_nvcc
from course_lib.plugins.cpp_plugin import tensorrt_major

if TYPE_CHECKING:
    import onnx

FOLDER = Path(__file__).parent / "kernels"
SOURCES = (FOLDER / "attention.cu", FOLDER / "decode.cu", FOLDER / "prompt.cu")
NAME, DOMAIN, VERSION, NAMESPACE = "CourseAttention", "course", "1", "course"
CACHED_NAME = "CourseCachedAttention"
HEAD_SIZE = 64  # numbers; ATTENTION_HEAD_SIZE in kernels/attention.h

# What lies between an attention's products and the projection that made queries, keys and values, and follows the data's way.
_ON_THE_WAY = {"Slice", "Split", "Transpose", "Reshape", "Mul", "Cast", "Squeeze", "Gather"}


class AttentionLibrary:
    """The kernels of `kernels/`, compiled by nvcc. Pointers are addresses in device memory, aligned to 16 bytes.

    Args:
        path: path of the shared library, from `compile_with_nvcc(*SOURCES)`.
    """

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self._whole, self._causal = library.attention_launch, library.attention_causal_launch
        self._decode = library.attention_decode_launch
        for launch, pointers, sizes in (
            (self._whole, 2, 3),
            (self._causal, 2, 3),
            (self._decode, 4, 4),
        ):
            launch.argtypes = [*[ctypes.c_void_p] * pointers, *[ctypes.c_int] * sizes, ctypes.c_void_p]

    def __call__(
        self, qkv: int, out: int, batch: int, sequence: int, heads: int, *, causal: bool = False, stream: int = 0
    ) -> None:
        """Enqueue attention over whole sequences, FP16.

        Args:
            qkv: ``(batch, sequence, heads, 3, 64)``: query, key and value of each head, beside each other.
            out: ``(batch, sequence, heads, 64)``.
            causal: each token sees itself and those before it. Otherwise it sees all.

        Raises:
            EngineError: CUDA rejected the launch.
        """
        launch = self._causal if causal else self._whole
        _check(launch(qkv, out, batch, sequence, heads, stream), f"({batch}, {sequence}, {heads}, 3, {HEAD_SIZE})")

    def decode(
        self, q: int, keys: int, values: int, out: int, batch: int, heads: int, capacity: int, length: int, *, stream: int = 0
    ) -> None:
        """Enqueue attention of one new token to the first `length` tokens of a cache, FP16.

        Args:
            q, out: ``(batch, heads, 64)``.
            keys, values: ``(batch, heads, capacity, 64)``.

        Raises:
            EngineError: CUDA rejected the launch.
        """
        status = self._decode(q, keys, values, out, batch, heads, capacity, length, stream)
        _check(status, f"{length} tokens of ({batch}, {heads}, {capacity}, {HEAD_SIZE})")


def _check(status: int, shape: str) -> None:
    if status != 0:
        raise EngineError(f"the attention kernel was not launched for {shape}: CUDA error {status}; all sizes must be positive")


def build_attention_plugin(tensorrt_include: Path | str, *, architectures: Sequence[str] = ("native",)) -> Path:
    """Compile both plugins for TensorRT 8 into one library; see `cpp_plugin.build_plugin` for how TensorRT loads it.

    Raises:
        BackendUnavailable: the headers or nvcc are missing, or the headers are not of TensorRT 8.
        BuildError: nvcc rejected a source.
    """
    include = Path(tensorrt_include)
    if (major := tensorrt_major(include)) != 8:
        raise BackendUnavailable(f"the attention plugin is for TensorRT 8, but {include} has headers of {major}")
    sources = (FOLDER / "cpp" / "plugin_v2.cpp", *SOURCES)
    read = [include / "NvInferVersion.h"]
    return compile_with_nvcc(*sources, architectures=architectures, flags=["-isystem", str(include)], read=read)


def fuse_attention(model: onnx.ModelProto, heads: int) -> onnx.ModelProto:
    """A copy of the model in which each self-attention is one node `CourseAttention`.

    An attention is a softmax between two products whose queries, keys and values are cut from one tensor: ``(batch, sequence, heads * 3
    * 64)``, ordered by head and then by query, key, value, as in `course_lib.models.transformer.EncoderBlock`. The node reads that
    tensor and writes ``(batch, sequence, heads * 64)``. Masks are not supported.

    Args:
        heads: of every attention.

    Raises:
        CourseError: the model has no such attention, or one that is cut otherwise.
    """
    import onnx
    from onnx import helper

    fused = onnx.ModelProto()
    fused.CopyFrom(model)
    graph = fused.graph
    made_by = {name: node for node in graph.node for name in node.output}
    read_by: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            read_by.setdefault(name, []).append(node)
    softmaxes = [node for node in graph.node if node.op_type == "Softmax"]
    if not softmaxes:
        raise CourseError("the model has no Softmax, so no attention can be fused")
    for number, softmax in enumerate(softmaxes):
        scores, weighted = _products_around(softmax, made_by, read_by)
        sources = {_projection(name, made_by) for name in (*scores.input, weighted.input[1])}
        if len(sources) != 1:
            raise CourseError(
                f"queries, keys and values of {softmax.name} are cut from {len(sources)} tensors; expected one projection"
            )
        last = _last_on_the_way(weighted, read_by)
        attributes: dict[str, Any] = {"heads": heads, "plugin_version": VERSION, "plugin_namespace": NAMESPACE}
        result = f"{NAME}_{number}_output"
        node = helper.make_node(NAME, [*sources], [result], name=f"{NAME}_{number}", domain=DOMAIN, **attributes)
        for reader in read_by[last]:
            for place, name in enumerate(reader.input):
                if name == last:
                    reader.input[place] = result
        graph.node.insert(next(i for i, one in enumerate(graph.node) if one.output == softmax.output) + 1, node)
    fused.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    del graph.value_info[:]
    return _without_dead_nodes(fused)


def _products_around(
    softmax: onnx.NodeProto, made_by: dict[str, onnx.NodeProto], read_by: dict[str, list[onnx.NodeProto]]
) -> tuple[onnx.NodeProto, onnx.NodeProto]:
    """The product that makes the scores, and the one that uses the weights."""
    before, after = made_by.get(softmax.input[0]), read_by.get(softmax.output[0], [])
    while before is not None and before.op_type == "Cast":
        before = made_by.get(before.input[0])
    while len(after) == 1 and after[0].op_type == "Cast":
        after = read_by.get(after[0].output[0], [])
    if before is None or before.op_type != "MatMul" or [node.op_type for node in after] != ["MatMul"]:
        raise CourseError(f"{softmax.name} is not between two MatMul: masks and other forms of attention are not fused")
    return before, after[0]


def _projection(name: str, made_by: dict[str, onnx.NodeProto]) -> str:
    """The tensor that a query, key or value was cut from: where the way of data comes to another operator."""
    while (node := made_by.get(name)) is not None and node.op_type in _ON_THE_WAY:
        name = node.input[0]
    return name


def _last_on_the_way(weighted: onnx.NodeProto, read_by: dict[str, list[onnx.NodeProto]]) -> str:
    """The tensor in which the heads are side by side again."""
    name: str = weighted.output[0]
    while True:
        ways = [
            node for node in read_by.get(name, []) if node.op_type in ("Transpose", "Reshape", "Cast") and node.input[0] == name
        ]
        if not ways:
            return name
        name = ways[0].output[0]


def _without_dead_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnx_ir
    from onnx_ir.passes.common import RemoveUnusedNodesPass

    return onnx_ir.to_proto(RemoveUnusedNodesPass()(onnx_ir.from_proto(model)).model)
