"""Calibration: run a model on representative data, observe its activations, and choose the range of each.

Observing and choosing are two steps. `observe` runs the model once and keeps a histogram for each tensor. Every calibrator can
use these histograms, so a lecture compares five calibrators after one pass. `calibrate` does both steps.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from course_lib._util.model_file import open_model
from course_lib._util.progress_bar import track
from course_lib.errors import CourseError
from course_lib.precision.calibration.calibrators import Calibrator
from course_lib.precision.calibration.histogram import BINS, Histogram, StreamingHistogram
from course_lib.precision.calibration.resume import Progress, Store
from course_lib.precision.quantization.probe import Probe, serialized

if TYPE_CHECKING:
    import numpy as np
    import onnx

Batch = Mapping[str, "np.ndarray"]
_In = TypeVar("_In")
_Out = TypeVar("_Out")
_MOST_THREADS = 4  # each holds the activations of a batch


@dataclass(frozen=True)
class Ranges(Mapping[str, float]):
    """Tensor name to amax, the largest absolute value that INT8 must represent; ``amax / 127`` is the tensor's scale.

    Attributes:
        amax: positive and finite.
        calibrator: the rule that chose them, such as ``"PercentileCalibrator(percentile=99.99)"``.
        samples: number of samples.
        model_sha256, data_sha256: digests of the model and of the calibration data.
        notes: remarks for the reader, one sentence each.
    """

    amax: Mapping[str, float] = field(repr=False)
    calibrator: str
    samples: int
    model_sha256: str
    data_sha256: str
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "amax", MappingProxyType(dict(self.amax)))

    def __getitem__(self, name: str) -> float:
        return self.amax[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.amax)

    def __len__(self) -> int:
        return len(self.amax)

    def to_json(self) -> str:
        """A JSON document; `from_json` gives back an equal value."""
        return json.dumps({**self.__dict__, "amax": dict(self.amax)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Ranges:
        """Read what `to_json` wrote.

        Raises:
            CourseError: not such a document.
        """
        try:
            found = json.loads(text)
            amax = {str(name): float(value) for name, value in found.pop("amax").items()}
            if bad := [name for name, value in amax.items() if not 0 < value < float("inf")]:
                raise ValueError(f"the range of {bad[0]!r} is {amax[bad[0]]}")
            return cls(amax, **{**found, "notes": tuple(found["notes"])})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise CourseError(f"these are not calibrated ranges ({type(error).__name__}: {error}); calibrate again") from None


@dataclass(frozen=True)
class Observation(Mapping[str, Histogram]):
    """Tensor name to the histogram of its absolute values; attributes as in `Ranges`."""

    histograms: Mapping[str, Histogram] = field(repr=False)
    samples: int
    model_sha256: str
    data_sha256: str
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Histogram:
        return self.histograms[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.histograms)

    def __len__(self) -> int:
        return len(self.histograms)

    def ranges(self, calibrator: Calibrator) -> Ranges:
        """Let ``calibrator`` choose the range of every tensor. A tensor that was always zero gets 1.0, with a note."""
        amax = {name: calibrator.threshold(histogram) for name, histogram in self.items()}
        zero = [name for name, value in amax.items() if not value > 0]
        notes = [f"tensor {name!r} was always zero: its range is set to 1.0" for name in zero]
        amax.update(dict.fromkeys(zero, 1.0))
        return Ranges(amax, repr(calibrator), self.samples, self.model_sha256, self.data_sha256, (*self.notes, *notes))


def calibrate(
    model: onnx.ModelProto | str | os.PathLike[str],
    batches: Iterable[Batch],
    calibrator: Calibrator,
    *,
    tensors: Iterable[str] | None = None,
    progress: bool = True,
    cache: str | os.PathLike[str] | None = None,
    save_seconds: float = 5.0,
) -> Ranges:
    """The range of each activation: `observe`, then `Observation.ranges`. The cache serves every calibrator."""
    seen = observe(model, batches, tensors=tensors, progress=progress, cache=cache, save_seconds=save_seconds)
    return seen.ranges(calibrator)


def observe(
    model: onnx.ModelProto | str | os.PathLike[str],
    batches: Iterable[Batch],
    *,
    tensors: Iterable[str] | None = None,
    bins: int = BINS,
    progress: bool = True,
    cache: str | os.PathLike[str] | None = None,
    save_seconds: float = 5.0,
) -> Observation:
    """Run ``model`` on all batches with ONNX Runtime and count the values of its activations.

    Memory holds the activations of at most five batches at a time, for any number of samples. Equal batches give equal
    histograms, with or without a resumed cache.

    Args:
        model: an ONNX model or its file. It is not changed.
        batches: feeds by input name; the first axis of every array counts samples.
        tensors: names; by default every float tensor that a Conv, ConvTranspose, Gemm, MatMul or Add reads or writes, except
            weights.
        bins: number of bins of each histogram, a power of two.
        progress: show a bar on stderr.
        cache: a file that keeps the histograms. A killed run continues where the file ends, and a finished run is not
            repeated. A file from another model, other data, tensors or bins is replaced, and a note says so. ``batches``
            is then read twice; an iterator that can be used only once is first read into memory.
        save_seconds: shortest time between two writes of the cache.

    Raises:
        CourseError: no batch; one that the model rejects; a tensor that is unknown, not of a float type, or holds NaN or
            infinity; batches that change from one pass to the next; a cache that cannot be written.
    """
    proto = open_model(model)
    probe = Probe.of(proto, tensors, bins)
    model_sha256 = hashlib.sha256(serialized(proto)).hexdigest()
    store, expected = None, None
    total = len(batches) if isinstance(batches, Sized) else None
    if cache is not None:
        batches = list(batches) if iter(batches) is batches else batches
        first = _Data()
        for feeds in batches:
            first.include(feeds)
        expected, total = first.sha256, first.batches
        store = Store(Path(cache), {"model": model_sha256, "data": expected, "tensors": probe.counted, "bins": bins})
    start = store.load(probe.counted) if store else Progress(0, {})

    data, histograms, done = _Data(), dict(start.histograms), 0
    for done, found in enumerate(
        track(_counted(probe, data.through(batches), start.batches), "calibrating", total=total, shown=progress), 1
    ):
        if found is not None:
            for name, histogram in found.items():
                histograms.setdefault(name, StreamingHistogram(name, bins)).merge(histogram)
            if store:
                store.save(Progress(done, histograms), at_most_every_s=save_seconds)
    if done == 0:
        raise CourseError("there is no calibration batch: give 500 to 1000 representative samples")
    if expected not in (None, data.sha256):
        raise CourseError("the calibration batches changed between two passes over them: give the same ones every time")
    if store and done > start.batches:
        store.save(Progress(done, histograms))
    results = {
        name: histograms[probe.rectified[name]].rectified(name) if name in probe.rectified else histograms[name].result()
        for name in probe.tensors
    }
    return Observation(MappingProxyType(results), data.samples, model_sha256, data.sha256, store.notes if store else ())


@dataclass
class _Data:
    """A digest of all batches so far."""

    samples: int = 0
    batches: int = 0
    _digest: Any = field(default_factory=hashlib.sha256)

    def include(self, feeds: Batch) -> None:
        import numpy as np

        sizes = {array.shape[0] if array.ndim else 1 for array in feeds.values()}
        if len(sizes) != 1 or 0 in sizes:
            raise CourseError(f"calibration batch {self.batches}: the inputs hold {sorted(sizes)} samples")
        for name in sorted(feeds):
            array = np.ascontiguousarray(feeds[name])
            self._digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
            self._digest.update(array.data.cast("B") if array.size else b"")
        self._digest.update(b"end of batch")
        self.samples += sizes.pop()
        self.batches += 1

    def through(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The same batches, each included as it passes."""
        for feeds in batches:
            self.include(feeds)
            yield feeds

    @property
    def sha256(self) -> str:
        return str(self._digest.hexdigest())


def _counted(probe: Probe, batches: Iterator[Batch], skip: int) -> Iterator[dict[str, StreamingHistogram] | None]:
    """Each batch's histograms, in order; None for the first ``skip`` batches, which are not run."""
    for _ in range(skip):
        if next(batches, None) is None:
            return
        yield None
    threads = min(_cores(), _MOST_THREADS)
    with ThreadPoolExecutor(threads, "calibration") as pool:  # ONNX Runtime and numpy release Python's lock while they work
        yield from _in_order(pool, probe, batches, ahead=threads)


def _in_order(pool: ThreadPoolExecutor, function: Callable[[_In], _Out], items: Iterable[_In], ahead: int) -> Iterator[_Out]:
    """Like ``pool.map``, but it takes only ``ahead`` items before the first result is used."""
    waiting: deque[Future[_Out]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
