"""Nsight Compute's counters of each kernel, read from its table."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from course_lib._util import text_files
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
_HEADER = re.compile(r'"ID"[,;\t]|ID[,;\t]')  # spreadsheets write tables without quotes, and in some languages with semicolons
_NUMBER = re.compile(r"([0-9]*(?:[.,][0-9]+)*)(?:[eE][-+]?[0-9]+)?")
_SPACES = re.compile(r"[\s'\u2019\ufffd]")  # between thousands, of every width, and one that is not in the file's encoding
_WHOLE_UNITS = (
    "ns",
    "nsecond",
    "byte",
    "inst",
    "block",
    "thread",
    "warp",
    "register/thread",
    "byte/block",
    "cycle",
)  # of counts
_MOST_PERCENT = (
    110.0  # the profiler measures the two halves of a share in different runs, so that it may exceed 100 % by a little
)
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

    Lines before the header (the program's own output, ncu's ``==PROF==``) are skipped. Units are understood, and so are the separators of
    other languages and of spreadsheets: ``1,234.5``, ``1.234,5``, ``1 234,5`` and ``1'234.5``, if the file shows which one it uses.

    Raises:
        ProfileError: the file is missing, has no such table (the text repeats ncu's own error where there is one), no durations, or
            numbers that can be read in two ways.
    """
    path = Path(path)
    try:
        lines = text_files.read_text(path, errors="replace").replace("\0", "").split("\n")
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror or error}") from error
    header = next((at for at, line in enumerate(lines) if _HEADER.match(line) and "Kernel Name" in line), None)
    if header is None:
        said = next((line for line in lines if line.startswith("==ERROR==") or "No kernels were profiled" in line), "")
        raise ProfileError(f"{path} has no table of `ncu --csv --page raw`" + (f"; ncu said: {said[:200]}" if said else ""))
    quote, comma = lines[header][: lines[header].index("ID")], lines[header].lstrip('"')[2:].lstrip('"')[:1]  # as in `"ID",`
    inside = (line for line in lines[header:] if line.startswith(quote) and (quote or comma in line))
    try:
        names, *rows = csv.reader(inside, delimiter=comma)
    except csv.Error as error:
        raise ProfileError(f"{path} is damaged ({error}): profile again") from error
    if "Metric Name" in names:
        raise ProfileError(f"{path} has one row per metric: add `--page raw` to ncu's command line")
    units = dict(zip(names, rows[0], strict=False)) if rows else {}
    tables = [dict(zip(names, row, strict=False)) for row in rows[1:]]
    point = _decimal_point((row[name], unit) for row in tables for name, unit in units.items() if unit and name in row)
    if not point:
        raise ProfileError(
            f"{path} has numbers that can be read in two ways, such as 1.234: profile again with LC_ALL=C before the command"
        )
    kernels = tuple(launch for row in tables if (launch := _metrics(row, units, point)))
    if tables and not kernels:
        raise ProfileError(f"{path} has no durations: measure {_DURATION[0]} too")
    for kernel in kernels:
        for share in (kernel.dram_share, kernel.sm_share, kernel.occupancy):
            if share is not None and share > 1:
                raise ProfileError(
                    f"{path}: kernel {kernel.name[:60]!r} has a share of {100 * share:,.0f} %, expected at most 100 %: "
                    "profile again with LC_ALL=C before the command"
                )
    return kernels


def _decimal_point(cells: Iterable[tuple[str, str]]) -> str:
    """The character before the decimals in a file's numbers, found from numbers and their units: "." or ",".

    ``""`` if numbers contradict each other, or if dots could be either. Commas that could be either are thousands, as ncu writes them.
    """
    certain, likely, unsure = set(), set(), False
    for text, unit in cells:
        if not (match := _NUMBER.fullmatch(_SPACES.sub("", text))):
            continue
        number = match[1]
        dots, commas = number.count("."), number.count(",")
        used, other = (".", ",") if number.rfind(".") > number.rfind(",") else (",", ".")  # the last one, if there are two
        whole, _, rest = number.rpartition(used)
        if dots and commas:
            certain.add(used)
        elif dots > 1 or commas > 1:
            certain.add(other)
        elif dots or commas:
            is_group = len(rest) == 3 and 0 < len(whole) <= 3 and not whole.startswith("0")
            if not is_group or (unit == "%" and int(whole + rest) > _MOST_PERCENT):
                certain.add(used)
            elif unit in _WHOLE_UNITS:
                likely.add(other)
            else:
                unsure = unsure or used == "."
    if certain or likely:
        found = certain or likely
        return found.pop() if len(found) == 1 else ""
    return "" if unsure else "."


def _metrics(row: Mapping[str, str], units: Mapping[str, str], point: str = ".") -> KernelMetrics | None:
    """One launch, or None without a duration."""
    values = {name: value for name in row if (value := _value(row[name], units.get(name, ""), point)) is not None}

    def first(names: tuple[str, ...]) -> float | None:
        return next((values[name] for name in names if name in values), None)

    def share(names: tuple[str, ...]) -> float | None:
        value = first(names)
        return 1.0 if value is not None and 1 < value <= _MOST_PERCENT / 100 else value

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
        dram_share=share(_DRAM_SHARE),
        sm_share=share(_SM_SHARE),
        occupancy=share(_OCCUPANCY),
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


def _value(text: str, unit: str, point: str) -> float | None:
    """A number in us, bytes, operations or as a share; None for ``n/a`` and for texts."""
    scale = _MICROSECONDS.get(unit) or (1e-2 if unit == "%" else _PREFIXES.get(unit[:1], 1.0))
    text = _SPACES.sub("", text).replace("," if point == "." else ".", "").replace(point, ".")
    try:
        value = float(text) * scale
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
