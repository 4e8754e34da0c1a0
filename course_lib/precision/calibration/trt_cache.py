"""TensorRT's calibration cache: a text file with activation ranges for a TensorRT 8 or 10 build without calibration.

The first line names the version and the algorithm. Each later line has a tensor and its scale: the bits of a float32 as
hexadecimal digits, highest byte first. The scale is ``amax / 127``::

    TRT-8600-EntropyCalibration2
    image: 3c010a14

The cache of the legacy calibrator names neither. Its first line holds a number and the two parameters of that calibrator, regression
cutoff and quantile, as bits of float64: ``0 3ff0000000000000 3fefff2e48e8a71e`` (8.6.0, seen on a GPU; what the 0 says is not
known).

Source: the same reading in ONNX Runtime's TensorRT provider (``ReadDynamicRange``: scale times 127 is the dynamic range).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping

from course_lib.errors import CourseError

_HEADER = re.compile(r"TRT-(\d+)-(\w+)")
_LEGACY_HEADER = re.compile(r"\d+ [0-9a-f]{16} [0-9a-f]{16}")
_LEGACY = "LegacyCalibration"
_STEPS = 127  # on either side of zero


def write_cache(ranges: Mapping[str, float], version: int = 8600, *, algorithm: str = "EntropyCalibration2") -> str:
    """The text of a cache file.

    Args:
        ranges: tensor name to amax, such as `Ranges`.
        version: TensorRT's version in the form of the header: 8600 for 8.6.0. TensorRT reads a cache only with its own header.
        algorithm: ``"EntropyCalibration2"`` or ``"MinMaxCalibration"``, to match the calibrator.

    Raises:
        CourseError: a legacy cache, a range that is not positive and finite in float32, or a name with a line break in it.
    """
    if algorithm == _LEGACY:
        raise CourseError(
            "a legacy calibrator's cache cannot be written, only read: use EntropyCalibration2 or MinMaxCalibration"
        )
    lines = [f"TRT-{version}-{algorithm}"]
    for name, amax in ranges.items():
        if "\n" in name or "\r" in name or not name:
            raise CourseError(f"tensor {name!r} has no place in a calibration cache: one line is one tensor")
        lines.append(f"{name}: {_bits(amax / _STEPS, name)}")
    return "\n".join(lines) + "\n"


def read_cache(text: str) -> dict[str, float]:
    """Tensor name to amax, in the order of the file.

    Raises:
        CourseError: the first line is not a header, or another line is not a tensor with a positive finite scale.
    """
    read_header(text)
    ranges = {}
    for number, line in enumerate(text.splitlines()[1:], 2):
        name, colon, digits = line.rpartition(":")  # names may hold colons themselves
        digits = digits.strip()
        if not line.strip():
            continue
        if not colon or not re.fullmatch(r"[0-9a-fA-F]{1,8}", digits):
            raise CourseError(f"line {number} of the calibration cache is not 'tensor: scale in hexadecimal': {line[:80]!r}")
        scale = struct.unpack(">f", bytes.fromhex(digits.zfill(8)))[0]
        if not 0 < scale < math.inf:
            raise CourseError(f"line {number} of the calibration cache: the scale of {name!r} is {scale}")
        ranges[name] = scale * _STEPS
    return ranges


def read_header(text: str) -> tuple[int, str]:
    """Version and algorithm of a cache, such as ``(8600, "EntropyCalibration2")``. A legacy cache does not contain a version; it is 0.

    Raises:
        CourseError: the first line is not a header.
    """
    first = text.partition("\n")[0].strip()
    if _LEGACY_HEADER.fullmatch(first):
        return 0, _LEGACY
    if not (match := _HEADER.fullmatch(first)):
        raise CourseError(
            f"not a TensorRT calibration cache: its first line is {first[:80]!r}, not 'TRT-8600-EntropyCalibration2'"
        )
    return int(match[1]), match[2]


def _bits(scale: float, name: str) -> str:
    try:
        packed = struct.pack(">f", scale)
    except OverflowError:
        packed = b""
    if not packed or not 0 < struct.unpack(">f", packed)[0] < math.inf:
        raise CourseError(f"the scale of tensor {name!r} is {scale:g}: a calibration cache needs a positive float32")
    return packed.hex()
