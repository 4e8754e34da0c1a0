"""The pass that puts the attention plugin into a graph, and the kernels' sources as far as a machine without a GPU goes.

COURSE_TENSORRT_INCLUDE names folders with TensorRT's headers, ``folder:folder``. `tests/gpu/test_attention.py` runs the kernels.
"""

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from benchmarks import yardsticks
from benchmarks.attention_parts import fused_attention
from benchmarks.attention_parts.fused_attention import DOMAIN, NAME, build_attention_plugin, fuse_attention
from course_lib import models
from course_lib.errors import CourseError
from course_lib.plugins import compilers
from course_lib.precision import cast

INCLUDES = [Path(name) for name in os.environ.get("COURSE_TENSORRT_INCLUDE", "").split(os.pathsep) if name]


class CourseAttention(OpRun):  # type: ignore[misc]
    """The node's formula, in float64."""

    op_domain = DOMAIN

    def _run(self, qkv: np.ndarray, heads: int, plugin_version: str, plugin_namespace: str) -> tuple[np.ndarray]:
        batch, sequence, width = qkv.shape
        q, k, v = qkv.reshape(batch, sequence, heads, 3, width // heads // 3).astype(np.float64).transpose(3, 0, 2, 1, 4)
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        answer = (weights / weights.sum(-1, keepdims=True)) @ v
        return (answer.swapaxes(1, 2).reshape(batch, sequence, -1).astype(qkv.dtype),)


def exported(name: str, tmp_path: Path) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    network: Any = {"bert": lambda: yardsticks.bert_base(2, 128, 2, 16), "vit": lambda: yardsticks.vit_b16(2, 128, 2, 32)}[
        name
    ]()
    ((given, shape),) = network.signature().inputs.items()
    feeds = {given: np.random.default_rng(0).standard_normal((3, *shape[1:]), np.float32)}
    return models.export_onnx(network, tmp_path / "model.onnx", opset=17), feeds


@pytest.mark.parametrize(("name", "dtype"), [("bert", "fp32"), ("vit", "fp32"), ("bert", "fp16")])
def test_the_fused_graph_answers_as_the_exported_one(name: str, dtype: str, tmp_path: Path) -> None:
    model, feeds = exported(name, tmp_path)
    fused = fuse_attention(model if dtype == "fp32" else cast(model, "fp16"), 2)
    (want,) = ReferenceEvaluator(model).run(None, feeds)
    (got,) = ReferenceEvaluator(fused, new_ops=[CourseAttention]).run(None, feeds)
    np.testing.assert_allclose(got, want, atol=2e-5 if dtype == "fp32" else 0.03)
    operators = [node.op_type for node in fused.graph.node]
    assert operators.count(NAME) == 2 and "Softmax" not in operators
    assert "Softmax" in {node.op_type for node in model.graph.node}, "the given model stays as it is"


def parsed(nodes: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17]> g (float[2, 2] x) => (float[2, 2] y) {{ {nodes} }}'
    )


def test_other_graphs_are_rejected_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="has no Softmax"):
        fuse_attention(parsed("y = Relu(x)"), 2)
    with pytest.raises(CourseError, match="not between two MatMul: masks"):
        fuse_attention(parsed("a = MatMul(x, x) b = Add(a, x) c = Softmax(b) y = MatMul(c, x)"), 2)
    model, _ = exported("bert", tmp_path)
    other = next(node for node in model.graph.node if node.op_type == "MatMul" and "qkv" not in node.output[0])
    slices = [node for node in model.graph.node if node.op_type == "Slice" and "Transpose" in node.input[0]]
    slices[0].input[0] = other.output[0]
    with pytest.raises(CourseError, match="are cut from 2 tensors"):
        fuse_attention(model, 2)


def test_the_library_has_all_kernels_and_rejects_sizes_before_a_launch(nvcc: str) -> None:
    library = fused_attention.AttentionLibrary(compilers.compile_with_nvcc(*fused_attention.SOURCES, architectures=("sm_90",)))
    with pytest.raises(CourseError, match=r"not launched for \(0, 16, 2, 3, 64\): CUDA error 1"):
        library(0, 0, 0, 16, 2)
    with pytest.raises(CourseError, match="17 tokens of"):
        library.decode(0, 0, 0, 0, 1, 2, 16, 17)


@pytest.mark.skipif(not INCLUDES, reason="COURSE_TENSORRT_INCLUDE names no TensorRT headers")
@pytest.mark.parametrize("include", INCLUDES, ids=str)
def test_the_plugin_compiles_and_needs_nothing_of_tensorrt(nvcc: str, include: Path) -> None:
    library = ctypes.CDLL(str(build_attention_plugin(include, architectures=("sm_90",))), mode=os.RTLD_NOW)
    count = ctypes.c_int32()
    library.getPluginCreators.restype = ctypes.c_void_p
    assert library.getPluginCreators(ctypes.byref(count)) and count.value == 2
