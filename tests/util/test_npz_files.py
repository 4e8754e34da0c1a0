"""Arrays of a submission are read, or rejected in one line."""

import numpy as np
import pytest

from course_lib._util.npz_files import read_arrays
from course_lib.errors import BuildError


def test_what_is_saved_is_read(tmp_path):
    arrays = {"blocks.0.codes": np.arange(5, dtype=np.uint8), "scale": np.float16(3), "f": np.asfortranarray(np.ones((2, 3)))}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    read = read_arrays(tmp_path / "a.npz", 10_000)
    assert read.keys() == arrays.keys() and all(np.array_equal(read[name], array) for name, array in arrays.items())


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.array([None]), "cannot be read"),
        (np.array(["text"]), "'value' is an array of <U4, expected numbers"),
        (np.zeros(100_000), "has 800,128 bytes of arrays, expected at most 10,000"),
    ],
)
def test_other_values_are_rejected(value, words, tmp_path):
    np.savez_compressed(tmp_path / "a.npz", value=value)
    with pytest.raises(BuildError) as caught:
        read_arrays(tmp_path / "a.npz", 10_000)
    assert words in str(caught.value) and str(caught.value).endswith("for each name")


@pytest.mark.parametrize("change", [lambda data: b"a text", lambda data: data[:-20], lambda data: data[4:]])
def test_another_file_is_rejected(change, tmp_path):
    np.savez(tmp_path / "a.npz", value=np.ones(3))
    (tmp_path / "a.npz").write_bytes(change((tmp_path / "a.npz").read_bytes()))
    with pytest.raises(BuildError, match="cannot be read"):
        read_arrays(tmp_path / "a.npz", 10_000)
