"""Streaming histograms against numpy's, whatever the chunks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from course_lib.errors import CourseError
from course_lib.precision import Histogram, StreamingHistogram

FLOATS = arrays(np.float32, st.integers(1, 300), elements=st.floats(-(2.0**100), 2.0**100, width=32))


def _streamed(*chunks: np.ndarray, bins: int = 256) -> StreamingHistogram:
    streaming = StreamingHistogram("x", bins)
    for chunk in chunks:
        streaming.add(chunk)
    return streaming


def _same(left: Histogram, right: Histogram) -> bool:
    return (left.bin_width, left.minimum, left.maximum) == (right.bin_width, right.minimum, right.maximum) and np.array_equal(
        left.counts, right.counts
    )


def _expected(values: np.ndarray, histogram: Histogram) -> np.ndarray:
    """numpy's counts over the same edges; numpy's last bin includes its upper edge, which no value reaches here."""
    return np.histogram(np.abs(values.astype(np.float64)), histogram.edges)[0]


@settings(deadline=None, max_examples=80)
@given(FLOATS, st.lists(st.integers(0, 300), max_size=6), st.randoms(use_true_random=False))
def test_the_counts_are_numpys_and_any_chunking_and_order_gives_the_same(
    values: np.ndarray, cuts: list[int], rng: object
) -> None:
    whole = _streamed(values).result()
    assert np.array_equal(whole.counts, _expected(values, whole))
    assert (whole.minimum, whole.maximum, whole.total) == (values.min(), values.max(), len(values))

    chunks = np.split(values, sorted(cut % len(values) for cut in cuts))
    rng.shuffle(chunks)  # type: ignore[attr-defined]
    assert _same(_streamed(*chunks).result(), whole)

    merged = _streamed(chunks[0])
    for chunk in chunks[1:]:
        merged.merge(_streamed(chunk))
    assert _same(merged.result(), whole)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_many_values_of_every_float_type(dtype: type) -> None:
    values = np.random.default_rng(0).normal(0, 3, 100_000).astype(dtype)  # several work chunks
    for wanted in (values, values + dtype(20), values - dtype(20), values.reshape(100, 10, 100)[::2, :, ::3]):
        histogram = _streamed(wanted, bins=2048).result()
        assert np.array_equal(histogram.counts, _expected(wanted, histogram))
        assert histogram.bin_width == 2.0 ** np.frexp(np.abs(wanted).max())[1] / 2048
        assert 1024 <= histogram.used <= 2048


def test_nan_and_infinity_are_rejected_with_the_tensors_name() -> None:
    for bad, word in ((np.nan, "NaN"), (np.inf, "infinite"), (-np.inf, "infinite")):
        streaming = StreamingHistogram("conv1")
        with pytest.raises(CourseError, match=f"'conv1' holds {word}"):
            streaming.add(np.array([[1, 1], [1, bad]], np.float32))
        with pytest.raises(CourseError, match="no value was ever counted"):  # nothing of it was kept
            streaming.result()
    with pytest.raises(CourseError, match="int64"):
        StreamingHistogram("x").add(np.arange(3))
    for bins in (128, 1000):
        with pytest.raises(CourseError, match="power of two"):
            StreamingHistogram("x", bins)
