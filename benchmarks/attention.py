"""The course's attention kernels beside PyTorch's, and beside a copy of the same bytes: device times under CUDA graphs.

    python benchmarks/attention.py OUTPUT.json

Needs torch with a GPU and nvcc. Whole sequences start from the projection's output, ``(batch, sequence, heads, 3, 64)``, as the
networks of the headline table do; a new token is attended to a cache ``(batch, heads, capacity, 64)``. Inputs rotate, so that no cache
of the GPU holds the next one, and in every round the candidates run one after the other.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

from benchmarks.attention_parts.fused_attention import HEAD_SIZE, SOURCES, AttentionLibrary
from benchmarks.graph_times import captured, times_us
from benchmarks.recording import about
from course_lib.benchmark.statistics import speedup
from course_lib.plugins.compilers import compile_with_nvcc

WHOLE = ((8, 128, 12), (64, 128, 12), (8, 197, 12), (64, 197, 12), (8, 1024, 12))  # batch, sequence, heads
ONE_TOKEN = ((1, 1024, 12), (8, 1024, 12), (64, 1024, 12))  # batch, tokens in the cache, heads
TRAFFIC = 400_000_000  # bytes that all sets of arguments hold at least: eight times an H200's L2 cache
MOST_SETS = 64

Sets = list[tuple[torch.Tensor, ...]]


def whole(library: AttentionLibrary, batch: int, sequence: int, heads: int) -> dict[str, Any]:
    """Times and error of attention over whole sequences."""
    shape = (batch, sequence, heads, 3, HEAD_SIZE)
    made: Callable[[], tuple[torch.Tensor, ...]] = lambda: (half(*shape), half(batch, sequence, heads * HEAD_SIZE))  # noqa: E731
    sets, moved = sets_of(made)

    def ours(qkv: torch.Tensor, out: torch.Tensor) -> None:
        library(qkv.data_ptr(), out.data_ptr(), batch, sequence, heads, stream=torch.cuda.current_stream().cuda_stream)

    def torchs(qkv: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        q, keys, values = (part.transpose(1, 2) for part in qkv.unbind(3))
        return attend(q, keys, values).transpose(1, 2).flatten(2)

    ours(*sets[0])
    want = torchs(sets[0][0].float(), sets[0][1])
    return row({"batch": batch, "sequence": sequence, "heads": heads}, ours, torchs, sets, moved, sets[0][1], want)


def one_token(library: AttentionLibrary, batch: int, length: int, heads: int) -> dict[str, Any]:
    """Times and error of attention of one new token to a full cache."""
    cache, token = (batch, heads, length, HEAD_SIZE), (batch, heads, 1, HEAD_SIZE)
    sets, moved = sets_of(lambda: (half(*token), half(*cache), half(*cache), half(*token)))

    def ours(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor) -> None:
        addresses = q.data_ptr(), keys.data_ptr(), values.data_ptr(), out.data_ptr()
        library.decode(*addresses, batch, heads, length, length, stream=torch.cuda.current_stream().cuda_stream)

    def torchs(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return attend(q, keys, values)

    ours(*sets[0])
    want = torchs(*(one.float() for one in sets[0]))
    return row({"batch": batch, "length": length, "heads": heads}, ours, torchs, sets, moved, sets[0][3], want)


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float16)


def sets_of(made: Callable[[], tuple[torch.Tensor, ...]]) -> tuple[Sets, int]:
    """Enough sets of arguments, and the bytes of one."""
    first = made()
    moved = sum(one.nbytes for one in first)
    return [first, *(made() for _ in range(min(MOST_SETS, max(2, -(-TRAFFIC // moved))) - 1))], moved


def row(
    known: dict[str, Any],
    ours: Callable[..., Any],
    torchs: Callable[..., Any],
    sets: Sets,
    moved: int,
    got: torch.Tensor,
    want: torch.Tensor,
) -> dict[str, Any]:
    """Interleaved times; bandwidth as a share of a copy's that moves as many bytes, half of them read and half written."""
    torch.cuda.synchronize()
    error = float((got.float().reshape(want.shape) - want).norm() / want.norm())
    copies = [(torch.empty(moved // 4, dtype=torch.float16, device="cuda"), half(moved // 4)) for _ in sets]
    repeats = 10 if len(sets) < 10 else 1
    graphs = {name: captured(call, sets * repeats) for name, call in (("ours", ours), ("torch", torchs))}
    graphs["copy"] = captured(lambda to, source: to.copy_(source), copies * repeats)
    graphs["negation"] = captured(lambda to, source: torch.neg(source, out=to), copies * repeats)
    seen = times_us(graphs, len(sets) * repeats)
    median = {name: round(float(sorted(times)[len(times) // 2]), 3) for name, times in seen.items()}
    over = {name: asdict(speedup(seen[name], seen["ours"])) for name in seen if name != "ours"}
    return {**known, "us": median, "megabytes": round(moved / 1e6, 2), "relative_error": error, "speed_over": over}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    library = AttentionLibrary(compile_with_nvcc(*SOURCES))
    rows = []
    for measured, shapes in ((whole, WHOLE), (one_token, ONE_TOKEN)):
        for shape in shapes:
            rows.append({"kernel": measured.__name__, **measured(library, *shape)})
            print(json.dumps(rows[-1]), flush=True)
    machine = about({"torch": torch.__version__, "cuda": str(torch.version.cuda)})
    options.output.write_text(json.dumps({**machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
