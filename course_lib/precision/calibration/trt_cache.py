"""TensorRT's calibration cache: a text file with activation ranges for a TensorRT 8 or 10 build without calibration.

The first line names the version and the algorithm. Each later line has a tensor and its scale: the bits of a float32 as
hexadecimal digits, highest byte first. The scale is ``amax / 127``::

    TRT-8600-EntropyCalibration2
    image: 3c010a14

Other tools write headers without a number, such as ``TRT-8XXX-EntropyCalibration2``, and a scale of 0 for tensors that were always 0 or
that the calibration did not reach.

The cache of the legacy calibrator names neither. Its first line holds a number and the two parameters of that calibrator, regression
cutoff and quantile, as bits of float64: ``0 3ff0000000000000 3fefff2e48e8a71e`` (8.6.0, seen on a GPU; what the 0 says is not
known).

Source: the same reading in ONNX Runtime's TensorRT provider (``ReadDynamicRange``: scale times 127 is the dynamic range).
"""

from __future__ import annotations

import math
import re
import struct
import warnings
from collections.abc import Mapping
from pathlib import Path

from course_lib._util import text_files
from course_lib.errors import CourseError

_HEADER = re.compile(r"TRT-([\w.]+)-(\w+)")
_LEGACY_HEADER = re.compile(r"\d+ [0-9a-f]{16} [0-9a-f]{16}")
_STEPS = 127  # on either side of zero
_WRITTEN = ("EntropyCalibration2", "MinMaxCalibration")  # algorithms
_NAMED = 5  # tensors that a warning names before it counts the rest


def write_cache(ranges: Mapping[str, float], version: int = 8600, *, algorithm: str = "EntropyCalibration2") -> str:
    """The text of a cache file.

    Args:
        ranges: tensor name to amax, such as `Ranges`.
        version: TensorRT's version in the form of the header: 8600 for 8.6.0. TensorRT reads a cache only with its own header.
        algorithm: ``"EntropyCalibration2"`` or ``"MinMaxCalibration"``, to match the calibrator.

    Raises:
        CourseError: another algorithm, a range that is not positive and finite in float32, or a name with a line break in it.
    """
    if algorithm not in _WRITTEN:
        raise CourseError(f"a calibration cache of {algorithm!r} is not written: expected {' or '.join(_WRITTEN)}")
    lines = [f"TRT-{version}-{algorithm}"]
    for name, amax in ranges.items():
        if "\n" in name or "\r" in name or not name:
            raise CourseError(f"tensor {name!r} has no place in a calibration cache: one line is one tensor")
        lines.append(f"{name}: {_bits(amax / _STEPS, name)}")
    return "\n".join(lines) + "\n"


def read_cache(cache: str | bytes | Path) -> dict[str, float]:
    """Tensor name to amax, in the order of the file.

    Tensors without a positive finite scale are left out, and a warning names them: TensorRT would not quantize them.

    Args:
        cache: the text, the content, or the path of a file.

    Raises:
        CourseError: the file cannot be read, its first line is not a header, another line is not a tensor with a scale, or no scale is
            positive and finite.
    """
    text = _text(cache)
    read_header(text)
    ranges: dict[str, float] = {}
    unusable: list[str] = []
    for number, line in enumerate(text.splitlines()[1:], 2):
        name, colon, digits = line.rpartition(":")  # names may hold colons themselves
        digits = digits.strip()
        if not line.strip():
            continue
        if not colon or not re.fullmatch(r"(0x)?[0-9a-fA-F]{1,8}", digits):
            raise CourseError(f"line {number} of the calibration cache is not 'tensor: scale in hexadecimal': {line[:80]!r}")
        scale = struct.unpack(">f", bytes.fromhex(digits.removeprefix("0x").zfill(8)))[0]
        if 0 < scale < math.inf:
            ranges[name] = scale * _STEPS
        else:
            unusable.append(f"{name!r} (line {number}: {scale})")
    if unusable and not ranges:
        raise CourseError(
            f"no tensor of the calibration cache has a positive finite scale: {', '.join(unusable[:3])}; calibrate again"
        )
    if unusable:
        named = ", ".join(unusable[:_NAMED]) + (f" and {len(unusable) - _NAMED} more" if len(unusable) > _NAMED else "")
        warnings.warn(
            f"the calibration cache has no usable scale for {named}: left out, so choose their ranges or exclude them",
            stacklevel=2,
        )
    return ranges


def read_header(cache: str | bytes | Path) -> tuple[int, str]:
    """Version and algorithm of a cache, such as ``(8600, "EntropyCalibration2")``.

    The version is 0 if the header does not name one: in a legacy cache, and where another tool wrote ``8XXX``.

    Raises:
        CourseError: the first line is not a header.
    """
    first = _text(cache).partition("\n")[0].strip()
    if _LEGACY_HEADER.fullmatch(first):
        return 0, "LegacyCalibration"
    if not (match := _HEADER.fullmatch(first)):
        raise CourseError(
            f"not a TensorRT calibration cache: its first line is {first[:80]!r}, not 'TRT-8600-EntropyCalibration2'"
        )
    return int(match[1]) if match[1].isdecimal() else 0, match[2]


def _text(cache: str | bytes | Path) -> str:
    """The text of a cache, without the mark that some editors put first."""
    if isinstance(cache, str):
        return cache.removeprefix("\ufeff")
    try:
        return text_files.read_text(cache) if isinstance(cache, Path) else text_files.decode(cache)
    except OSError as error:
        raise CourseError(f"cannot read {cache!s}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise CourseError(f"not a TensorRT calibration cache: it is not text ({error.reason})") from None


def _bits(scale: float, name: str) -> str:
    try:
        packed = struct.pack(">f", scale)
    except OverflowError:
        packed = b""
    if not packed or not 0 < struct.unpack(">f", packed)[0] < math.inf:
        raise CourseError(f"the scale of tensor {name!r} is {scale:g}: a calibration cache needs a positive float32")
    return packed.hex()
