"""The language model's graphs as engines: which kernels NVIDIA's compiler makes of each cache, and what a cached step costs."""

from collections import Counter
from typing import Any

import pytest

from course_lib.engines import Plan, build
from course_lib.errors import BuildError
from course_lib.recipe import Profile, Recipe
from tests.models.test_gpt import cached

PREFILL = Profile(tokens={"min": (1, 1), "opt": (1, 128), "max": (1, 256)})
DECODE = Profile(tokens={"min": (1, 1), "opt": (1, 1), "max": (1, 1)})


def built(form: str, dtype: str = "fp16", profile: Profile = PREFILL) -> Plan:
    recipe = Recipe(precision="fp16" if dtype == "fp16" else "fp32", targets=["sm89"], profiles=[profile])
    return build(cached(form, dtype), recipe, backend="tensorrt_rtx")


def kernels_of(plan: Plan, operator: str) -> list[str]:
    """Names of the kernels that compute a part of such a node."""
    table = plan.layers
    return [kernel.name for kernel in table.kernels if operator in table.fused_operators(kernel).split(" + ")]


def network_layers(form: str) -> Counter[str]:
    """Types of the layers that the ONNX parser adds to the network, before anything is fused."""
    trt: Any = pytest.importorskip("tensorrt_rtx")
    logger = trt.Logger(trt.Logger.ERROR)
    network = trt.Builder(logger).create_network(0)
    assert trt.OnnxParser(network, logger).parse(cached(form, "fp16").SerializeToString())
    return Counter(network.get_layer(index).type.name for index in range(network.num_layers))


def test_the_network_has_layers_for_attention_rotation_and_the_cache() -> None:
    layers = network_layers("tensor_scatter")
    names = ("ATTENTION_INPUT", "ATTENTION_OUTPUT", "ROTARY_EMBEDDING", "KV_CACHE_UPDATE", "SCATTER")
    assert [layers[name] for name in names] == [4, 4, 4, 8, 0]
    layers = network_layers("scatter_nd")
    assert [layers[name] for name in names] == [4, 4, 0, 0, 8]


@pytest.mark.parametrize(
    ("form", "operator"), [("tensor_scatter", "TensorScatter"), ("scatter_nd", "ScatterND"), ("concat", "Concat")]
)
def test_prefill_has_one_fused_attention_per_block(form: str, operator: str) -> None:
    """The new keys and values are written by the kernel that also rotates them."""
    profile = PREFILL
    if form == "concat":
        past = {"min": (1, 2, 0, 32), "opt": (1, 2, 128, 32), "max": (1, 2, 255, 32)}
        names = [value.name for value in cached(form, "fp16").graph.input if value.name.startswith("past_")]
        profile = Profile({"tokens": PREFILL["tokens"], **dict.fromkeys(names, past)})
    plan = built(form, profile=profile)
    assert sum("mha" in name for name in kernels_of(plan, "Attention")) == 4
    assert len(kernels_of(plan, operator)) == 4
    assert (
        set(plan.layers.dtype_counts()) <= {"Half", "Float", "Int64", "Int32", "Bool"}
        and plan.layers.dtype_counts()["Half"] > 20
    )


def test_decode_has_other_kernels_than_prefill() -> None:
    """One new token leaves products of a matrix and a vector: the compiler generates all kernels, with fewer boundaries."""
    prefill, decode = built("tensor_scatter"), built("tensor_scatter", profile=DECODE)
    assert sum("gemm_mha" in name for name in kernels_of(prefill, "Attention")) == 4
    assert kernels_of(decode, "Attention") == [name for name in kernels_of(decode, "Attention") if "gemv_mha" in name]
    assert len(kernels_of(decode, "Attention")) == len(kernels_of(decode, "TensorScatter")) == 4
    assert "gemm" in {kernel.kind for kernel in prefill.layers.kernels}
    assert {kernel.kind for kernel in decode.layers.kernels} == {"kgen"}
    assert len(decode.layers.kernels) < len(prefill.layers.kernels)


def test_attention_in_fp32_is_rejected() -> None:
    with pytest.raises(BuildError, match="Attention operation was not supported by a dedicated kernel"):
        built("tensor_scatter", "fp32")
