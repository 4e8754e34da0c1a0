"""The state of the machine during a measurement, and the repetition of a disturbed measurement."""

from __future__ import annotations

import contextlib
import csv
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psutil

from course_lib.benchmark.device_lock import alone, device_name
from course_lib.engines.cuda import driver
from course_lib.grading.isolation.supervise import descendants

_T = TypeVar("_T")
_ATTEMPTS, _LONGEST_S = 3, 60.0  # a measurement is repeated so often, if it does not take longer than that in all
# A measurement is disturbed from here on. Paired ratios with intervals bear a good deal; see benchmarks/verdicts.py for how much.
MOST_WAITING, MOST_STOLEN, LEAST_CLOCK = 0.25, 0.25, 0.8
_CPUS = Path("/sys/devices/system/cpu")
_ASKED = "uuid,clocks.sm,temperature.gpu,clocks_event_reasons.hw_slowdown,clocks_event_reasons.sw_thermal_slowdown"


@dataclass(frozen=True)
class Gpu:
    """The driver's report on the GPU in use. `strangers` is the number of processes on it that do not belong to the grader."""

    clock_mhz: float
    celsius: float
    slowed: bool  # the hardware or the driver lowers the clock for heat or power
    strangers: int
    uuid: str


@dataclass(frozen=True)
class Snapshot:
    """The machine at one moment. Only differences of the seconds have a meaning."""

    at_s: float  # by a clock that nobody sets
    unix_s: float
    waited_s: float  # in which this thread was ready and had no processor
    stolen_s: float  # in which another virtual machine used a processor, as an average over the processors
    clock_mhz: float | None  # of the processors, if the system reports it
    gpu: Gpu | None


@dataclass(frozen=True)
class Health:
    """The state of the machine during one measurement.

    Attributes:
        waiting, stolen: shares of the time in which the judge waited for a processor, and in which the hypervisor used the processors.
        clock_mhz, gpu: before and after.
        disturbed: why the measurement does not count, empty if it does.
        began, ended: in seconds since 1970. No other measurement used the device in between.
    """

    waiting: float
    stolen: float
    clock_mhz: tuple[float | None, float | None]
    gpu: tuple[Gpu | None, Gpu | None]
    disturbed: tuple[str, ...]
    began: float
    ended: float

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


@dataclass
class Device:
    """The device on which a grading measures. It takes one measurement at a time and records the machine's health during each.

    Attributes:
        name: ``"cpu"``, or the names of the GPUs with ``+`` between them. A process that shares one of them waits.
        records: one for each measurement, including repeated ones.
        disturbances: why the last try of a measurement was still disturbed, for each such measurement. Its result does not count.
    """

    name: str
    records: list[Health] = field(default_factory=list)
    disturbances: list[str] = field(default_factory=list)
    snapshot: Callable[[], Snapshot] = field(default_factory=lambda: snapshot)

    @classmethod
    def here(cls) -> Device:
        """The GPUs that this process sees, or the processor without a GPU."""
        return cls(device_name())

    def measured(self, take: Callable[[], _T], /, *, device_clock: bool = False) -> _T:
        """The result of `take`, called when no other process measures here, and up to three times in a minute if it is disturbed.

        Args:
            device_clock: the GPU's events are the clock, so what the host does in the meantime does not disturb it.
        """
        with alone(self.name):
            began = time.monotonic()
            for attempt in range(1, _ATTEMPTS + 1):
                before = self.snapshot()
                taken = take()
                self.records.append(compared(before, self.snapshot(), device_clock=device_clock))
                next_ends_s = (time.monotonic() - began) * (attempt + 1) / attempt
                if not self.records[-1].disturbed or next_ends_s > _LONGEST_S:
                    break
            if self.records[-1].disturbed:
                self.disturbances.append("; ".join(self.records[-1].disturbed))
        return taken


def compared(before: Snapshot, after: Snapshot, *, device_clock: bool = False) -> Health:
    """The state of the machine between two moments, and what disturbed the clock: the host's, or that of a GPU."""
    seconds = max(after.at_s - before.at_s, 1e-9)
    waiting, stolen = (after.waited_s - before.waited_s) / seconds, (after.stolen_s - before.stolen_s) / seconds
    why = []
    if waiting > MOST_WAITING and not device_clock:
        why.append(f"the judge waited for a processor {100 * waiting:.0f} % of the time")
    if stolen > MOST_STOLEN and not device_clock:
        why.append(f"other virtual machines had the processors {100 * stolen:.0f} % of the time")
    change = after.clock_mhz / before.clock_mhz if before.clock_mhz and after.clock_mhz and not device_clock else 1.0
    if not LEAST_CLOCK <= change <= 1 / LEAST_CLOCK:
        why.append(f"the processors' clock went from {before.clock_mhz:.0f} to {after.clock_mhz:.0f} MHz")
    for gpu in (before.gpu, after.gpu):
        if gpu and gpu.strangers:
            why.append(f"{gpu.strangers} other processes used the GPU")
        if gpu and gpu.slowed:
            why.append(f"the GPU lowered its clock at {gpu.celsius:.0f} degrees")
    return Health(
        round(waiting, 4), round(stolen, 4), (before.clock_mhz, after.clock_mhz), (before.gpu, after.gpu),
        tuple(dict.fromkeys(why)), before.unix_s, after.unix_s,
    )  # fmt: skip


def snapshot() -> Snapshot:
    """The machine now, without values that the system does not report."""
    return Snapshot(
        time.monotonic(), time.time(), _waited_s(), _stolen_s(), _clock_mhz(), gpu() if driver.capability() else None
    )


def _waited_s() -> float:
    """proc(5), /proc/PID/task/TID/schedstat: time on a processor, time waiting for one, both in nanoseconds."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def _stolen_s() -> float:
    return float(getattr(psutil.cpu_times(), "steal", 0.0)) / (os.cpu_count() or 1)


def _clock_mhz() -> float | None:
    """The median of the cores' clocks as the governor sets them. A virtual machine's /proc/cpuinfo holds a constant."""
    found = []
    for path in _CPUS.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"):
        with contextlib.suppress(OSError, ValueError):
            found.append(float(path.read_text()))
    return statistics.median(found) / 1e3 if found else None


def gpu() -> Gpu | None:
    """The report of nvidia-smi on the first GPU that this process may use; None without nvidia-smi."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    rows, users = _nvidia_smi(first, f"--query-gpu={_ASKED}"), _nvidia_smi(first, "--query-compute-apps=pid")
    try:
        uuid, clock, celsius, *slowed = rows[0]
        ours = set(descendants(os.getpid()))
        strangers = sum(int(row[0]) not in ours for row in users)
        return Gpu(float(clock), float(celsius), "Active" in slowed, strangers, uuid)
    except (IndexError, ValueError):
        return None


def _nvidia_smi(device: str, query: str) -> list[list[str]]:
    try:
        ran = subprocess.run(
            ["nvidia-smi", f"--id={device}", query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return list(csv.reader(ran.stdout.splitlines(), skipinitialspace=True)) if ran.returncode == 0 else []
