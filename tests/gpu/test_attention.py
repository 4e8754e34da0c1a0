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
        pointers = (one.data_ptr() for one in (q, keys, values, out))
        library.decode(*pointers, batch, heads, capacity, length, stream=torch.cuda.current_stream().cuda_stream)
        check(out, guard, attend(q.float(), keys[:, :, :length].float(), values[:, :, :length].float()))


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Numbers i and i + 32 of the last dimension by their position's angle; `cos` and `sin` have the dimensions of x or one of size 1."""
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def tables(positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.arange(positions)[:, None] * 10_000.0 ** (-torch.arange(0, HEAD_SIZE, 2) / HEAD_SIZE)
    return angles.cos().cuda(), angles.sin().cuda()


def test_a_step_rotates_writes_its_slot_and_attends(library: AttentionLibrary) -> None:
    torch.manual_seed(2)
    for batch, capacity, heads in [*shapes(30, 1500), (64, 1024, 12), (1, 1024, 12)]:
        position = random.Random(capacity).randint(0, capacity - 1)
        qkv = torch.randn(batch, 3, heads, HEAD_SIZE, device="cuda", dtype=torch.float16)
        keys, values = (torch.randn(batch, heads, capacity, HEAD_SIZE, device="cuda", dtype=torch.float16) for _ in range(2))
        keys[:, :, position:], values[:, :, position:] = float("nan"), float("nan")
        cos, sin = tables(capacity)
        q, k = (rotated(qkv[:, part], cos[position], sin[position]).unsqueeze(2) for part in (0, 1))
        wanted_keys, wanted_values = keys.clone(), values.clone()
        wanted_keys[:, :, position], wanted_values[:, :, position] = k.half().squeeze(2), qkv[:, 2]
        out, guard = guarded(batch, heads, 1, HEAD_SIZE)
        where = torch.tensor([position], dtype=torch.int32, device="cuda")
        pointers = [one.data_ptr() for one in (qkv, cos, sin, where, keys, values, out)]
        library.step(*pointers, batch, heads, capacity, stream=torch.cuda.current_stream().cuda_stream)
        seen = slice(position + 1)
        check(out, guard, attend(q, wanted_keys[:, :, seen].float(), wanted_values[:, :, seen].float()))
        torch.testing.assert_close(keys, wanted_keys, atol=2e-3, rtol=2e-3, equal_nan=True)
        torch.testing.assert_close(values, wanted_values, atol=0, rtol=0, equal_nan=True)


@pytest.mark.parametrize("position", [-1, 16])
def test_a_step_without_a_free_slot_answers_nan_and_writes_nothing(library: AttentionLibrary, position: int) -> None:
    qkv = torch.randn(2, 3, 3, HEAD_SIZE, device="cuda", dtype=torch.float16)
    cache = torch.randn(2, 2, 3, 16, HEAD_SIZE, device="cuda", dtype=torch.float16)
    before, (cos, sin), out = cache.clone(), tables(16), torch.zeros(2, 3, HEAD_SIZE, device="cuda", dtype=torch.float16)
    where = torch.tensor([position], dtype=torch.int32, device="cuda")
    pointers = [one.data_ptr() for one in (qkv, cos, sin, where, cache[0], cache[1], out)]
    library.step(*pointers, 2, 3, 16, stream=torch.cuda.current_stream().cuda_stream)
    assert out.isnan().all() and torch.equal(cache, before)


def test_a_prompt_fills_the_cache_and_attends(library: AttentionLibrary) -> None:
    torch.manual_seed(3)
    for batch, sequence, heads in shapes(30, 700):
        capacity = sequence + random.Random(sequence).randint(0, 40)
        qkv = torch.randn(batch, sequence, 3, heads, HEAD_SIZE, device="cuda", dtype=torch.float16)
        keys, values = (
            torch.full((batch, heads, capacity, HEAD_SIZE), 7.0, device="cuda", dtype=torch.float16) for _ in range(2)
        )
        cos, sin = tables(capacity)
        scratch = torch.empty_like(qkv)
        out, guard = guarded(batch, sequence, heads, HEAD_SIZE)
        pointers = [one.data_ptr() for one in (qkv, cos, sin, keys, values, scratch, out)]
        library.prompt(*pointers, batch, sequence, heads, capacity, stream=torch.cuda.current_stream().cuda_stream)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        q, k = (rotated(part, cos[:sequence], sin[:sequence]) for part in (q, k))
        check(out, guard, attend(q.half().float(), k.half().float(), v.float(), is_causal=True).transpose(1, 2))
        torch.testing.assert_close(keys[:, :, :sequence].float(), k, atol=2e-3, rtol=2e-3)
        assert torch.equal(values[:, :, :sequence], v)
        assert (keys[:, :, sequence:] == 7).all() and (values[:, :, sequence:] == 7).all()
