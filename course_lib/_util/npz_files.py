"""NumPy's ``.npz`` files of a submission: all arrays of numbers, or an error of one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from course_lib.errors import BuildError


def read_arrays(file: Path, max_bytes: int) -> dict[str, np.ndarray]:
    """The arrays in a file that `numpy.savez` wrote, by name.

    Args:
        max_bytes: of all arrays, unpacked.

    Raises:
        BuildError: it is another file, has other values than numbers, or is too large.
    """
    advice = "write it with np.savez, with an array of numbers for each name"
    try:
        with np.load(file, allow_pickle=False) as archive:
            size = sum(member.file_size for member in archive.zip.infolist())
            arrays = dict(archive) if size <= max_bytes else {}
    except Exception:  # a damaged file fails in zipfile, zlib and numpy, each with classes of its own
        raise BuildError(f"{file.name} cannot be read: {advice}") from None
    if size > max_bytes:
        raise BuildError(f"{file.name} has {size:,} bytes of arrays, expected at most {max_bytes:,}: {advice}")
    for name, array in arrays.items():
        if array.dtype.kind not in "iuf":
            raise BuildError(f"{file.name}: {name[:60]!r} is an array of {array.dtype}, expected numbers: {advice}")
    return arrays
