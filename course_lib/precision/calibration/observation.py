"""Calibration: run a model on representative data, observe its activations, and choose the range of each.

Observing and choosing are two steps. `observe` runs the model once and keeps a histogram for each tensor. Every calibrator can
use these histograms, so a lecture compares five calibrators after one pass. `calibrate` does both steps.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from course_lib._util.model_file import open_model
from course_lib._util.progress_bar import track
from course_lib.errors import CourseError
from course_lib.precision.calibration.calibrators import Calibrator
from course_lib.precision.calibration.histogram import Histogram, StreamingHistogram
from course_lib.precision.quantization.probe import Probe

if TYPE_CHECKING:
    import numpy as np
    import onnx

Batch = Mapping[str, "np.ndarray"]
_In = TypeVar("_In")
_Out = TypeVar("_Out")
_MOST_THREADS = 4  # each holds the activations of a batch


class Observation(dict[str, Histogram]):
    """Tensor name to the histogram of its absolute values."""

    def ranges(self, calibrator: Calibrator) -> dict[str, float]:
        """Tensor name to amax, the largest absolute value that INT8 must represent; ``amax / 127`` is the tensor's scale.

        ``calibrator`` chooses the range of every tensor. A tensor that was always zero gets 1.0, because any range would do.
        """
        return {name: calibrator.threshold(histogram) or 1.0 for name, histogram in self.items()}


def calibrate(
    model: onnx.ModelProto | str | os.PathLike[str],
    batches: Iterable[Batch],
    calibrator: Calibrator,
    *,
    tensors: Iterable[str] | None = None,
    progress: bool = True,
) -> dict[str, float]:
    """The range of each activation: `observe`, then `Observation.ranges`."""
    return observe(model, batches, tensors=tensors, progress=progress).ranges(calibrator)


def observe(
    model: onnx.ModelProto | str | os.PathLike[str],
    batches: Iterable[Batch],
    *,
    tensors: Iterable[str] | None = None,
    progress: bool = True,
) -> Observation:
    """Run ``model`` on all batches with ONNX Runtime and count the values of its activations.

    Memory holds the activations of at most five batches at a time, for any number of samples.

    Args:
        model: an ONNX model or its file. It is not changed.
        batches: feeds by input name.
        tensors: names; by default every float tensor that a Conv, ConvTranspose, Gemm, MatMul or Add reads or writes, except
            weights.
        progress: show a bar on stderr.

    Raises:
        CourseError: no batch; one that the model rejects; or a tensor that is unknown, not of a float type, or holds NaN or infinity.
    """
    probe = Probe.of(open_model(model), tensors)
    total = len(batches) if isinstance(batches, Sized) else None
    histograms = {name: StreamingHistogram(name) for name in probe.tensors}
    batch = None
    for batch in track(_counted(probe, batches), "calibrating", total=total, shown=progress):
        for name, histogram in batch.items():
            histograms[name].merge(histogram)
    if batch is None:
        raise CourseError("there is no calibration batch: give 500 to 1000 representative samples")
    return Observation((name, histogram.result()) for name, histogram in histograms.items())


def _counted(probe: Probe, batches: Iterable[Batch]) -> Iterator[dict[str, StreamingHistogram]]:
    """Each batch's histograms, in order."""
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
