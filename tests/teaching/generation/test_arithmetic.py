"""Counts of a decoder against its own network and against published numbers."""

from __future__ import annotations

import pytest

from course_lib.models import decoder
from course_lib.teaching.generation.arithmetic import PUBLISHED, DecoderSize

TINY = DecoderSize(layers=2, heads=4, kv_heads=2, head_size=8, parameters=1000, longest=64)


def test_the_cache_is_that_of_the_course_s_decoder() -> None:
    model = decoder(pretrained=False)
    block = model.each_block()[0]
    size = DecoderSize(len(model.blocks), block.heads, block.kv_heads, block.size, 0, model.longest)
    assert size.cache_bytes(100, bytes_per_number=4) == sum(tensor.nbytes for tensor in model.empty_cache(100))


def test_published_caches() -> None:
    per_token = {name: size.cache_bytes(1) / 1024 for name, size in PUBLISHED.items()}
    assert per_token == {
        "GPT-2 (124 M)": 36,
        "Llama 2 7B": 512,
        "Qwen2.5 7B": 56,
        "Llama 3.1 8B": 128,
        "Llama 3.1 70B": 320,
    }


def test_a_prompt_computes_what_its_tokens_compute_one_by_one() -> None:
    assert TINY.operations(10) == pytest.approx(sum(TINY.operations(1, cached) for cached in range(10)))
    assert TINY.operations(1, 5, batch=3) == 3 * TINY.operations(1, 5)
    assert TINY.operations(1) == 2 * 1000 + 4 * 2 * 4 * 8
