"""The times of tactics that a class shares on a GPU: reference and submissions are built from one timing cache.

TensorRT times tactics by calls that the host launches. An engine that is built while the host's cores are busy stays slow, so equal
files could lose points. Before the first submission of a lab, the grader therefore examines its own reference once for each model of
GPU, while nothing else is measured there, and keeps the times. It starts from the recorded times that come with the course, if there
are some for this TensorRT and GPU. Builds of submissions read the cache and time only what it does not hold. The sandbox shows it
read-only.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock

from course_lib._util.files import cache_folder, write_atomically
from course_lib._util.plain_text import plain
from course_lib.benchmark.device_lock import alone
from course_lib.benchmark.records import RESULTS
from course_lib.engines import split_target
from course_lib.engines.backends.tensorrt.timing_cache import FOLDER_VARIABLE, gpu_name
from course_lib.grading.judge.health import Device
from course_lib.labs import Examiner, Lab
from course_lib.labs.framework.examination import at_once, builder_version

_QUICK_S = 1.0  # for measurements whose results nobody reads
_RECORDED = RESULTS / "timing_caches"  # see its README


@dataclass(frozen=True)
class SharedTimings:
    """A folder with a timing cache for each device and version of TensorRT."""

    folder: Path  # the grader alone writes to it
    made: Mapping[str, Any]  # how the times for this lab were taken, for the verdict

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a build that reads them."""
        return {FOLDER_VARIABLE: str(self.folder)}

    def to_json(self) -> dict[str, Any]:
        """What a verdict says: digests of the caches, and how the times of this lab were taken."""
        digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(self.folder.glob("*.timings"))}
        return {"sha256": digests, **self.made}


def shared(lab: Lab, examiner: Examiner, device: Device) -> SharedTimings | None:
    """The timings for a lab, taken now if there are none; None where no tactics are timed.

    If they cannot be taken, builds time all tactics themselves, and the verdict says why.
    """
    if not examiner.on_gpu or split_target(examiner.builder)[0] != "tensorrt":
        return None
    folder = cache_folder("timings")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    version = builder_version(examiner.builder)
    marker = folder / f"{lab.name}-{gpu_name() or device.name}-{examiner.builder.replace('/', '_')}-{version}.json"
    if not marker.is_file():
        with FileLock(f"{marker}.lock"), alone(device.name):  # graders of other GPUs wait for the same times
            if not marker.is_file():
                try:
                    made = _taken(lab, examiner, device, folder, version)
                # an error of the course's own code, or of this machine; the grading that follows meets it, too
                except Exception as error:
                    traceback.print_exc()
                    return SharedTimings(folder, {"failed": plain(f"{type(error).__name__}: {error}", 300)})
                write_atomically(marker, json.dumps(made).encode())
    return SharedTimings(folder, json.loads(marker.read_bytes()))


def _taken(lab: Lab, examiner: Examiner, device: Device, folder: Path, version: str) -> dict[str, Any]:
    """Take the times, and return how."""
    recorded, load = _copy_recorded(folder, version), psutil.cpu_percent(interval=1.0)
    _examine_reference(lab, examiner, folder)
    known = {"lab": lab.name, "device": device.name, "builder": examiner.builder}
    return {**known, "host_busy_percent_before": load, "began_with": recorded}


def _copy_recorded(folder: Path, version: str) -> list[str]:
    """Begin with the recorded times of this version and model of GPU, and return their files' names."""
    names = f"tensorrt-{version}-*-{gpu_name()}.timings"
    copied = [path for path in _RECORDED.glob(names) if not (folder / path.name).exists()]
    for path in copied:
        write_atomically(folder / path.name, path.read_bytes())
    return [path.name for path in copied]


def _examine_reference(lab: Lab, examiner: Examiner, folder: Path) -> None:
    """Build all that a grading of the reference builds, outside of the sandbox, which could not write the cache."""
    ours = replace(examiner, launcher=None, bare_launcher=None, seed=0, measure_s=_QUICK_S, measured=at_once)
    with tempfile.TemporaryDirectory() as reference, environment({FOLDER_VARIABLE: str(folder)}):
        lab.write_reference(Path(reference), opset=examiner.opset)
        lab.examine(Path(reference), ours)


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables for processes that start within."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
