"""What this processor can do with 8-bit integers, read from the operating system and not measured."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path

VNNI = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})  # each multiplies bytes and sums the products in 32 bits


@cache
def cpu_features() -> frozenset[str]:
    """This CPU's flags as the kernel lists them in ``/proc/cpuinfo``; empty where there is no such list."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())


def has_byte_dot_products(isa: Collection[str] | None = None) -> bool:
    """Whether a CPU with these instruction sets (None: this one) sums products of bytes in 32 bits.

    Other x86 CPUs sum pairs of products in 16 bits (``VPMADDUBSW``). Two products of an unsigned and a signed byte reach
    64,770, and such a sum is cut off at 32,767: it *saturates*, without a word.

    Source: ONNX Runtime, "Quantize ONNX Models", on U8S8 and saturation; Intel, Deep Learning Boost.
    """
    return not VNNI.isdisjoint(cpu_features() if isa is None else isa)
