"""The calibrator classes of TensorRT 8 and 10, fed from batches. TensorRT 11 does not have them; its ranges are in Q/DQ nodes.

These classes calibrate during the build: the builder requests one batch after another from the calibrator, on the GPU, and
returns a cache. They are created at run time for the given module, because their base classes are in its binding.

Source: TensorRT's Python API, ``IInt8Calibrator`` and its subclasses, deprecated in 10.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from course_lib.errors import BackendUnavailable, CourseError

if TYPE_CHECKING:
    import numpy as np
    import tensorrt

Kind = Literal["entropy", "minmax"]
_BASES: dict[str, str] = {"entropy": "IInt8EntropyCalibrator2", "minmax": "IInt8MinMaxCalibrator"}


def trt_calibrator(
    trt: Any, kind: Kind, batches: Iterable[Mapping[str, np.ndarray]], cache_path: str | Path
) -> tensorrt.IInt8Calibrator:
    """A calibrator to assign to ``config.int8_calibrator``; keep a reference to it until the build is over.

    A network with dynamic shapes also needs ``config.set_calibration_profile(profile)``, with the shape of these batches.

    Args:
        trt: the imported ``tensorrt`` module, 8 or 10.
        kind: the algorithm that TensorRT runs.
        batches: arrays by input name, all with the same shape. The first batch with another shape, such as a smaller last one,
            ends the calibration: TensorRT prints the message of the `CourseError` and continues with the earlier batches.
        cache_path: an existing file is read, and no batch is used. Otherwise the file is written. TensorRT does not check that a
            cache belongs to the network: delete it when the model or the data change.

    Raises:
        CourseError: an unknown kind, or no batch.
        BackendUnavailable: this TensorRT has no calibrators, or neither torch with CUDA nor pycuda can reach the GPU.
    """
    if kind not in _BASES:
        raise CourseError(f"kind must be one of {', '.join(_BASES)}, got {kind!r}")
    base: Any = getattr(trt, _BASES[kind], None)
    if base is None:
        raise BackendUnavailable(
            f"TensorRT {trt.__version__} has no {_BASES[kind]}: calibrate with course_lib.precision.calibrate and insert Q/DQ nodes"
        )
    waiting = iter(batches)
    first = next(waiting, None)
    if first is None:
        raise CourseError("there is no calibration batch: give 500 to 1000 representative samples")
    shapes = {name: array.shape for name, array in first.items()}
    cache, upload = Path(cache_path), _uploader()

    class Calibrator(base):
        def __init__(self) -> None:
            base.__init__(self)  # pybind11 needs the base's own, called by name
            self._next: Mapping[str, np.ndarray] | None = first
            self._buffers: list[object] = []

        def get_batch_size(self) -> int:
            return int(next(iter(shapes.values()))[0])

        def get_batch(self, names: list[str]) -> list[int] | None:
            feeds = self._next
            if feeds is None:
                return None  # no more data
            if found := {name: array.shape for name, array in feeds.items() if array.shape != shapes.get(name)}:
                raise CourseError(f"every calibration batch must have the shapes of the first, {shapes}, found {found}")
            self._next = next(waiting, None)
            uploaded = [upload(feeds[name]) for name in names]
            self._buffers = [buffer for _, buffer in uploaded]  # TensorRT keeps the addresses only
            return [address for address, _ in uploaded]

        def read_calibration_cache(self) -> bytes | None:
            return cache.read_bytes() if cache.exists() else None

        def write_calibration_cache(self, content: memoryview) -> None:
            cache.write_bytes(content)

    return Calibrator()


def _uploader() -> Callable[[np.ndarray], tuple[int, object]]:
    """A function that copies an array to the GPU and returns its address and an owner that keeps it alive. It uses torch, or else pycuda.

    Raises:
        BackendUnavailable: neither can reach a GPU.
    """
    import numpy as np

    try:
        import torch

        if torch.cuda.is_available():

            def through_torch(array: np.ndarray) -> tuple[int, object]:
                tensor = torch.tensor(array, device="cuda")
                return tensor.data_ptr(), tensor

            return through_torch
    except ImportError:
        pass
    try:
        import pycuda.autoprimaryctx  # the context that TensorRT uses, too
        import pycuda.driver
    except Exception as error:  # pycuda raises its own classes where there is no driver
        raise BackendUnavailable(
            f"calibrating in TensorRT needs a GPU, through torch with CUDA or pycuda: {type(error).__name__}: {error}"
        ) from None

    def through_pycuda(array: np.ndarray) -> tuple[int, object]:
        allocation = pycuda.driver.to_device(np.ascontiguousarray(array))
        return int(allocation), allocation

    return through_pycuda
