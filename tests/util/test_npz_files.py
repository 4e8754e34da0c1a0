"""Arrays of a submission are read, or rejected in one line."""

import numpy as np
import pytest

from course_lib._util.npz_files import read_arrays
from course_lib.errors import BuildError


def test_what_is_saved_is_read_and_another_file_rejected(tmp_path):
    path = tmp_path / "a.npz"
    arrays = {"blocks.0.codes": np.arange(5, dtype=np.uint8), "scale": np.float16(3), "f": np.asfortranarray(np.ones((2, 3)))}
    np.savez_compressed(path, **arrays)
    read = read_arrays(path, 10_000)
    assert read.keys() == arrays.keys() and all(np.array_equal(read[name], array) for name, array in arrays.items())
    saved = path.read_bytes()
    for content in (b"a text", saved[:-20], saved[4:]):
        path.write_bytes(content)
        with pytest.raises(BuildError, match="cannot be read"):
            read_arrays(path, 10_000)
    for value, words in (
        (np.array([None]), "cannot be read"),
        (np.array(["text"]), "'value' is an array of <U4, expected numbers"),
        (np.zeros(100_000), "has 800,128 bytes of arrays, expected at most 10,000"),
    ):
        np.savez_compressed(path, value=value)
        with pytest.raises(BuildError, match=rf"{words}.* for each name"):
            read_arrays(path, 10_000)
