"""Nsight Compute's counters of each kernel, read from its table."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from course_lib.errors import ProfileError

# Names of the metrics; of each group the first that the file has counts, since they differ between GPUs and versions.
_DURATION = ("gpu__time_duration.sum", "gpu__time_duration.avg")
_DRAM_BYTES = (
    ("dram__bytes.sum",),
    ("dram__bytes_read.sum", "dram__bytes_write.sum"),
    ("dram__bytes_op_read.sum", "dram__bytes_op_write.sum"),
)
_DRAM_SHARE = ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed")
_SM_SHARE = ("sm__throughput.avg.pct_of_peak_sustained_elapsed",)
_OCCUPANCY = ("sm__warps_active.avg.pct_of_peak_sustained_active",)
# Floating-point operations of one thread's instruction: an FMA is two. A half-precision one works on two numbers at a time.
_SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_OPERATIONS: Mapping[str, int] = {
    _SASS.format(f"{letter}{operation}"): count * (2 if operation == "fma" else 1)
    for letter, count in (("f", 1), ("d", 1), ("h", 2))
    for operation in ("add", "mul", "fma")
}
_TENSOR_CORES = "sm__ops_path_tensor_"  # these count operations, not instructions
_MICROSECONDS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}
_PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}  # of bytes and instructions, where --print-units is not base
# Below this share of both peaks a kernel is limited by waiting, not by a unit that is full.
# Source: Nsight Compute, rule "SOLBottleneck" of the section Speed Of Light.
LATENCY_SHARE = 0.6


@dataclass(frozen=True)
class KernelMetrics:
    """One profiled launch. None means not measured.

    Attributes:
        name: name of the kernel.
        duration_us: duration in microseconds, at the clock that the profiler set.
        dram_bytes: bytes that were read and written in device memory.
        dram_share, sm_share: shares of the peak throughput of device memory and of the multiprocessors, 0 to 1.
        occupancy: active warps over those that fit, mean over the active cycles, 0 to 1.
        flops: floating-point operations executed, where an addition and a multiplication count as one each.
    """

    name: str
    duration_us: float
    dram_bytes: float | None = None
    dram_share: float | None = None
    sm_share: float | None = None
    occupancy: float | None = None
    flops: float | None = None

    @property
    def intensity(self) -> float | None:
        """Operations for each byte of device memory; None if either was not measured or nothing was moved."""
        return self.flops / self.dram_bytes if self.flops is not None and self.dram_bytes else None

    @property
    def flops_per_second(self) -> float | None:
        """Floating-point operations per second; None if they were not measured or the duration is 0."""
        return self.flops / self.duration_us * 1e6 if self.flops is not None and self.duration_us else None

    @property
    def bytes_per_second(self) -> float | None:
        """To and from device memory."""
        return self.dram_bytes / self.duration_us * 1e6 if self.dram_bytes is not None and self.duration_us else None

    @property
    def bound(self) -> str:
        """The limit of the kernel: ``"memory"`` or ``"compute"``, whichever is fuller; ``"latency"`` if neither is; ``""`` if unknown."""
        if self.dram_share is None or self.sm_share is None:
            return ""
        if max(self.dram_share, self.sm_share) < LATENCY_SHARE:
            return "latency"
        return "memory" if self.dram_share > self.sm_share else "compute"


def read_ncu(path: str | Path) -> tuple[KernelMetrics, ...]:
    """The table that ``ncu --csv --page raw`` writes: names, units, then one row per launch.

    Lines before the header (the program's own output, ncu's ``==PROF==``) are skipped, thousands separators and units understood.

    Raises:
        ProfileError: the file is missing, has no such table (the text repeats ncu's own error where there is one), or no durations.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").replace("\0", "").split("\n")
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror or error}") from error
    header = next((at for at, line in enumerate(lines) if line.startswith('"ID"') and '"Kernel Name"' in line), None)
    if header is None:
        said = next((line for line in lines if line.startswith("==ERROR==")), "")
        raise ProfileError(f"{path} has no table of `ncu --csv --page raw`" + (f"; ncu said: {said[:200]}" if said else ""))
    try:
        names, *rows = csv.reader(line for line in lines[header:] if line.startswith('"'))
    except csv.Error as error:
        raise ProfileError(f"{path} is damaged ({error}): profile again") from error
    if "Metric Name" in names:
        raise ProfileError(f"{path} has one row per metric: add `--page raw` to ncu's command line")
    units = dict(zip(names, rows[0], strict=False)) if rows else {}
    launches = [_metrics(dict(zip(names, row, strict=False)), units) for row in rows[1:]]
    kernels = tuple(launch for launch in launches if launch)
    if rows[1:] and not kernels:
        raise ProfileError(f"{path} has no durations: measure {_DURATION[0]} too")
    return kernels


def _metrics(row: Mapping[str, str], units: Mapping[str, str]) -> KernelMetrics | None:
    """One launch, or None without a duration."""
    values = {name: value for name in row if (value := _value(row[name], units.get(name, ""))) is not None}

    def first(names: tuple[str, ...]) -> float | None:
        return next((values[name] for name in names if name in values), None)

    duration = first(_DURATION)
    if duration is None:
        return None
    moved = next((group for group in _DRAM_BYTES if all(name in values for name in group)), ())
    counted = {name: values[name] * weight for name, weight in _OPERATIONS.items() if name in values}
    counted |= _tensor_operations(values)
    return KernelMetrics(
        row.get("Kernel Name", ""),
        duration,
        dram_bytes=sum(values[name] for name in moved) if moved else None,
        dram_share=first(_DRAM_SHARE),
        sm_share=first(_SM_SHARE),
        occupancy=first(_OCCUPANCY),
        flops=sum(counted.values()) if counted else None,
    )


def _tensor_operations(values: Mapping[str, float]) -> dict[str, float]:
    """Operations on tensor cores by metric, without the parts of a sum that is there too.

    ``src_bf16_dst_fp32`` is the sum of its ``_sparsity_off`` and ``_sparsity_on``, and of the same with ``op_hgmma_`` before it.
    """
    counters = {name: value for name, value in values.items() if name.startswith(_TENSOR_CORES) and name.endswith(".sum")}
    sums = [name.removesuffix(".sum") for name in counters if "_op_" not in name]

    def is_part(name: str) -> bool:
        whole = re.sub("_op_[a-z]+_", "_", name.removesuffix(".sum"))
        return any(whole.startswith(other) and f"{other}.sum" != name for other in sums)

    return {name: value for name, value in counters.items() if not is_part(name)}


def _value(text: str, unit: str) -> float | None:
    """A number in us, bytes, operations or as a share; None for ``n/a`` and for texts."""
    scale = _MICROSECONDS.get(unit) or (1e-2 if unit == "%" else _PREFIXES.get(unit[:1], 1.0))
    try:
        value = float(text.replace(",", "")) * scale
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
