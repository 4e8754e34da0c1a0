"""The attention kernels on a real GPU: numbers, bounds and bandwidth.

TensorRT is not needed. Where there are only torch, numpy, pytest and nvcc, leave out what belongs to the other tests:
``python -m pytest -o addopts= --noconftest -m gpu tests/gpu/test_attention.py``
"""

import random

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attend

from benchmarks.attention_parts.fused_attention import HEAD_SIZE, SOURCES, AttentionLibrary
from course_lib.errors import BackendUnavailable
from course_lib.plugins.compilers import compile_with_nvcc

pytestmark = pytest.mark.gpu
GUARD = 4096  # numbers after an output, which nothing may change


@pytest.fixture(scope="module")
def library() -> AttentionLibrary:
    if not torch.cuda.is_available():
        pytest.skip("no GPU that torch can use")
    try:
        return AttentionLibrary(compile_with_nvcc(*SOURCES))
    except BackendUnavailable as absent:
        pytest.skip(str(absent))


def shapes(count: int, longest: int) -> list[tuple[int, int, int]]:
    """Batch, tokens and heads; the lengths around the tiles' 64 and 128 first."""
    generator = random.Random(5)
    edges = [(2, length, 3) for length in (1, 2, 63, 64, 65, 127, 128, 129, 192, 197, 256)]
    return [*edges, *((generator.randint(1, 5), generator.randint(1, longest), generator.randint(1, 9)) for _ in range(count))]


def guarded(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    whole = torch.full((torch.Size(shape).numel() + GUARD,), -7.0, device="cuda", dtype=torch.float16)
    return whole[:-GUARD].view(shape), whole[-GUARD:]


def check(got: torch.Tensor, guard: torch.Tensor, want: torch.Tensor) -> None:
    torch.cuda.synchronize()
    assert torch.isfinite(got).all() and (guard == -7).all()
    assert float((got.float() - want).norm() / want.norm()) < 1e-3
    torch.testing.assert_close(got.float(), want, atol=4e-3, rtol=4e-3)


def formula(qkv: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """Of whole sequences, in float32."""
    q, k, v = (part.float().transpose(1, 2) for part in qkv.unbind(3))
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device="cuda").triu(1)
    scores = (q @ k.mT / 8).masked_fill(later & causal, -torch.inf)
    return torch.softmax(scores, -1).matmul(v).transpose(1, 2)


@pytest.mark.parametrize("scale", [1.0, 4.0])
@pytest.mark.parametrize("causal", [False, True])
def test_whole_sequences(library: AttentionLibrary, causal: bool, scale: float) -> None:
    torch.manual_seed(0)
    for batch, sequence, heads in shapes(30, 700):
        qkv = scale * torch.randn(batch, sequence, heads, 3, HEAD_SIZE, device="cuda", dtype=torch.float16)
        out, guard = guarded(batch, sequence, heads, HEAD_SIZE)
        stream = torch.cuda.current_stream().cuda_stream
        library(qkv.data_ptr(), out.data_ptr(), batch, sequence, heads, causal=causal, stream=stream)
        check(out, guard, formula(qkv, causal=causal))


def test_one_token_and_a_cache(library: AttentionLibrary) -> None:
    torch.manual_seed(1)
    for batch, capacity, heads in shapes(30, 1500):
        length = random.Random(capacity).randint(1, capacity)
        q, out_shape = torch.randn(batch, heads, 1, HEAD_SIZE, device="cuda", dtype=torch.float16), (batch, heads, 1, HEAD_SIZE)
        keys, values = (torch.randn(batch, heads, capacity, HEAD_SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
        keys[:, :, length:], values[:, :, length:] = float("nan"), float("nan")  # what is not filled must not be read
        out, guard = guarded(*out_shape)
        q_at, keys_at, values_at, out_at = (tensor.data_ptr() for tensor in (q, keys, values, out))
        stream = torch.cuda.current_stream().cuda_stream
        library.decode(q_at, keys_at, values_at, out_at, batch, heads, capacity, length, stream=stream)
        check(out, guard, attend(q.float(), keys[:, :, :length].float(), values[:, :, :length].float()))
