"""The data: one fixed split, and fresh digits that are new but no harder."""

import hashlib

import numpy as np
import pytest

from course_lib.models import digits, fresh_digits


def test_shapes_and_range_of_two_splits_without_a_common_image() -> None:
    for split, count in (("train", 1347), ("test", 450)):
        data = digits(split)  # type: ignore[arg-type]
        assert data.images.shape == (count, 1, 32, 32) and data.images.dtype == np.float32
        assert data.labels.shape == (count,) and data.labels.dtype == np.int64
        assert data.images.min() == 0 and data.images.max() == 1 and len(data) == count
    train, test = ({image.tobytes() for image in digits(split).images} for split in ("train", "test"))  # type: ignore[arg-type]
    assert not train & test
    with pytest.raises(ValueError, match="'train' or 'test'"):
        digits("validation")  # type: ignore[arg-type]


def test_split_never_moves() -> None:
    """Checkpoints were trained on one split: another library version that draws another one would leak test digits."""
    labels = digits("test").labels.astype(np.uint8).tobytes()
    assert hashlib.sha256(labels).hexdigest()[:16] == "761b0c5b17762fe1"
    assert np.bincount(digits("test").labels).min() >= 43, "stratified: every digit is held out about 45 times"


def test_tokens_are_the_rows() -> None:
    data = digits("test")
    assert np.array_equal(data.tokens(), data.images[:, 0])
    shorter = data.tokens(rows=16)
    assert shorter.shape == (450, 16, 32) and shorter.dtype == np.float32
    assert np.allclose(shorter, (data.images[:, 0, 0::2] + data.images[:, 0, 1::2]) / 2, atol=1e-6)


def test_fresh_digits_depend_on_the_seed_alone_and_keep_their_form_and_labels() -> None:
    once, again, other = fresh_digits(40, seed=1), fresh_digits(40, seed=1), fresh_digits(40, seed=2)
    assert np.array_equal(once.images, again.images) and np.array_equal(once.labels, again.labels)
    assert not {image.tobytes() for image in once.images} & {image.tobytes() for image in other.images}
    held_out = digits("test")
    fresh = fresh_digits(1000, seed=3)  # more than there are: some come twice, never equal
    assert fresh.images.shape == (1000, 1, 32, 32) and fresh.images.dtype == np.float32
    assert len({image.tobytes() for image in fresh.images}) == 1000
    flat, known = fresh.images.reshape(1000, -1), held_out.images.reshape(450, -1)
    nearest = ((flat**2).sum(1)[:, None] - 2 * flat @ known.T + (known**2).sum(1)).argmin(1)
    assert (held_out.labels[nearest] == fresh.labels).mean() > 0.98
