"""The language model's graphs as engines: which kernels NVIDIA's compiler makes of each cache, and what a cached step costs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from course_lib.benchmark import Comparison, compare
from course_lib.engines import Plan, build
from course_lib.errors import BuildError
from course_lib.models import CachedSession, export_onnx
from course_lib.recipe import Profile, Recipe
from tests.models.test_gpt import cached, session, trained

PREFILL = Profile(tokens={"min": (1, 1), "opt": (1, 128), "max": (1, 256)})
DECODE = Profile(tokens={"min": (1, 1), "opt": (1, 1), "max": (1, 1)})


def built(form: str, dtype: str = "fp16", profile: Profile = PREFILL, target: str = "sm89") -> Plan:
    recipe = Recipe(precision="fp16" if dtype == "fp16" else "fp32", targets=[target], profiles=[profile])
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


def test_one_plan_holds_prefill_and_decode() -> None:
    recipe = Recipe(precision="fp16", targets=["sm89"], profiles=[PREFILL, DECODE])
    attention = kernels_of(build(cached(dtype="fp16"), recipe, backend="tensorrt_rtx"), "Attention")
    assert [sum(kind in name for name in attention) for kind in ("gemm_mha", "gemv_mha")] == [4, 4]


def test_attention_in_fp32_is_rejected() -> None:
    with pytest.raises(BuildError, match="Attention operation was not supported by a dedicated kernel"):
        built("tensor_scatter", "fp32")


class Timed:
    """A subject of a comparison: the mean time of some calls."""

    def __init__(self, call: Callable[[], object], calls: int = 1) -> None:
        self.call, self.calls = call, calls

    def time_ms(self, feeds: Mapping[str, np.ndarray]) -> float:
        started = time.perf_counter()
        for _ in range(self.calls):
            self.call()
        return (time.perf_counter() - started) * 1000 / self.calls


def decoding(opened: CachedSession, position: int) -> Callable[[], object]:
    """One token after another, always at the same position."""
    token = np.array([[65]])

    def call() -> None:
        opened.position[:] = position
        opened.step(token)

    return call


@pytest.fixture(scope="module")
def costs() -> Comparison:
    """Milliseconds per token on one thread, in shuffled rounds."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        whole, tokens = session(export_onnx(trained())), np.full((1, 201), 65)
        opened = CachedSession(cached())
        kept, token, position = trained().empty_cache(256), torch.tensor([[65]]), torch.tensor([200])

        def eager() -> None:
            with torch.inference_mode():
                trained().step(token, position, kept)

        subjects = {
            "recomputed": Timed(lambda: whole.run(None, {"tokens": tokens})),
            "cached": Timed(decoding(opened, 200), 20),
            "cached, early": Timed(decoding(opened, 10), 20),
            "eager": Timed(eager, 5),
        }
        return compare(subjects, dict, baseline="recomputed", min_rounds=30, time_limit_s=3)
    finally:
        torch.set_num_threads(threads)


def test_a_cache_is_much_faster_than_computing_all_tokens_again(costs: Comparison) -> None:
    assert costs.speedups["cached"].median >= 15  # 40 seen


def test_a_cached_token_costs_the_same_everywhere(costs: Comparison) -> None:
    assert 0.7 < costs.ratio("cached", "cached, early").median < 1.4


def test_a_cache_in_place_beats_eager_with_the_same_cache(costs: Comparison) -> None:
    assert costs.ratio("eager", "cached").median >= 1.8  # 5 seen
