"""The 8-bit instructions of this processor, and session options of ONNX Runtime that give the same answers on every processor."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnxruntime

VNNI = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})  # each multiplies bytes and sums the products in 32 bits
PRECISE_INT8 = "session.x64quantprecision"  # ONNX Runtime's session entry: kernels that do not saturate


@cache
def cpu_features() -> frozenset[str]:
    """This CPU's flags as the kernel lists them in ``/proc/cpuinfo``; empty if the file is missing."""
    return frozenset(cpu_info("flags").split())


def cpu_info(key: str) -> str:
    """The first value of a key in ``/proc/cpuinfo``; empty if the file or the key is missing."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def has_byte_dot_products(isa: Collection[str] | None = None) -> bool:
    """Whether a CPU with these instruction sets (None: this one) sums products of bytes in 32 bits.

    Other x86 CPUs sum pairs of products in 16 bits (``VPMADDUBSW``). Two products of an unsigned and a signed byte reach
    64,770, and such a sum is cut off at 32,767: it *saturates*, without a word.

    Source: ONNX Runtime, "Quantize ONNX Models", on U8S8 and saturation; Intel, Deep Learning Boost.
    """
    return not VNNI.isdisjoint(cpu_features() if isa is None else isa)


def session_options(threads: int = 1) -> onnxruntime.SessionOptions:
    """`onnxruntime.SessionOptions` that make a model give the same answers on every x86 CPU and log only errors.

    ONNX Runtime's fast kernels for unsigned activations and signed weights (U8S8) saturate on a CPU without 8-bit dot products
    (see `has_byte_dot_products`): logits at 36 dB fall to 20 dB and below. The entry makes ONNX Runtime choose kernels that do not.
    On a CPU with those instructions the entry is left out, because it changes no bit there and makes INT8 up to 1.8 times as slow.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    if not has_byte_dot_products():
        options.add_session_config_entry(PRECISE_INT8, "1")
    return options
