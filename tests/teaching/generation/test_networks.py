"""Attention as a pattern computes what the operator does, and the compiler recognizes one of the two forms."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from course_lib.engines import Plan, build
from course_lib.models import decoder, export_cached
from course_lib.recipe import Profile, Recipe
from course_lib.teaching.generation.networks import as_pattern
from tests.models.test_gpt import session


@pytest.mark.parametrize("groups", ["repeat", "reshape"])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_a_pattern_computes_the_same(groups: str, dtype: str) -> None:
    model = export_cached(decoder(), dtype=dtype, length=32)  # type: ignore[arg-type]
    before = model.SerializeToString()
    pattern = as_pattern(model, groups=groups)  # type: ignore[arg-type]
    assert model.SerializeToString() == before
    operators = {node.op_type for node in pattern.graph.node}
    assert "Softmax" in operators and "Attention" not in operators
    rng = np.random.default_rng(0)
    feeds = {"tokens": np.array([[65, 66, 67]]), "position": np.array([5])}
    for value in model.graph.input[2:]:
        shape = [one.dim_value for one in value.type.tensor_type.shape.dim]
        feeds[value.name] = rng.standard_normal(shape).astype(np.float32 if dtype == "fp32" else np.float16)
    want, have = (np.asarray(session(one).run(None, feeds)[0]) for one in (model, pattern))
    assert np.linalg.norm(have - want) / np.linalg.norm(want) < (1e-5 if dtype == "fp32" else 1e-2)


def _built(model: onnx.ModelProto, *most: int) -> Plan:
    profiles = [Profile(tokens={"min": (1, 1), "opt": (1, min(128, new)), "max": (1, new)}) for new in most]
    return build(model, Recipe(precision="fp16", targets=["sm89"], profiles=profiles), backend="tensorrt_rtx")


def test_the_compiler_recognizes_one_of_the_two_forms() -> None:
    model = export_cached(decoder(), dtype="fp16", length=256)
    plans = [_built(as_pattern(model, groups=groups), 256) for groups in ("repeat", "reshape")]
    assert [sum("mha" in kernel.name for kernel in plan.layers.kernels) for plan in plans] == [4, 0]


@pytest.mark.slow  # what the compiler does; two builds of the decoder with two profiles
def test_a_profile_for_one_token_stores_the_weights_in_another_order() -> None:
    """Lecture 15, "Two profiles": the copies in a plan of a weight as PyTorch has it, and transposed."""
    model = decoder()
    weight = model.each_block()[1].up.weight.detach().half().numpy()
    orders = [weight.tobytes(), np.ascontiguousarray(weight.T).tobytes()]
    exported = export_cached(model, dtype="fp16", length=256)
    assert [_built(exported, 256, 1).data.count(order) for order in orders] == [1, 1]
    assert [_built(exported, 256, 2).data.count(order) for order in orders] == [0, 1]
