"""Number formats against a rounding of their definition, and against the numbers in their specifications."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.precision.formats import FORMATS, format_named, int8
from course_lib.precision.number_line import format_ranges, number_lines

FLOATS = [name for name in FORMATS if name != "INT8"]


def rounded(value, mantissa_bits, lowest_exponent, largest):
    """The nearest number in exact arithmetic, half to even; None beyond the largest."""
    if value == 0:
        return 0.0
    exponent = max(math.frexp(value)[1] - 1, lowest_exponent)
    unit = Fraction(2) ** (exponent - mantissa_bits)
    nearest = round(Fraction(value) / unit) * unit
    return None if abs(nearest) > Fraction(largest) else float(nearest)


@pytest.mark.parametrize("name", FLOATS)
@given(value=st.floats(-1e6, 1e6, width=32))
def test_rounding_is_that_of_the_definition(name, value):
    shown = FORMATS[name]
    want = rounded(value, shown.mantissa_bits, round(math.log2(shown.smallest_normal)), shown.largest)
    have = float(shown.round(value))
    assert have == want if want is not None else not math.isfinite(have)


@pytest.mark.parametrize(
    ("name", "bits", "largest"),
    [
        ("FP32", (8, 23), 3.4028234663852886e38),
        ("TF32", (8, 10), 3.4011621342146535e38),
        ("FP16", (5, 10), 65504.0),
        ("BF16", (8, 7), 3.3895313892515355e38),
        ("FP8 E4M3", (4, 3), 448.0),
        ("FP8 E5M2", (5, 2), 57344.0),
        ("INT8", (0, 7), 127.0),
    ],
)
def test_limits(name, bits, largest):
    shown = FORMATS[name]
    assert (shown.exponent_bits, shown.mantissa_bits) == bits and shown.largest == largest
    assert shown.round(shown.largest) == shown.largest and shown.round(shown.smallest) == shown.smallest
    assert shown.round(0.49 * shown.smallest) == 0


def test_beyond_the_range():
    big = np.array([1e30, -1e30])
    assert FORMATS["FP16"].round(big).tolist() == [math.inf, -math.inf]
    assert np.isnan(FORMATS["FP8 E4M3"].round(big)).all()  # it has no infinity
    np.testing.assert_allclose(int8(0.1).round(big), [12.7, -12.8], rtol=1e-6)
    assert FORMATS["TF32"].round(math.inf) == math.inf


@pytest.mark.parametrize("name", ["FP16", "BF16", "FP8 E4M3", "FP8 E5M2"])
def test_counts_against_all_bit_patterns(name):
    shown = FORMATS[name]
    dtype = {
        "FP16": np.float16,
        "BF16": ml_dtypes.bfloat16,
        "FP8 E4M3": ml_dtypes.float8_e4m3fn,
        "FP8 E5M2": ml_dtypes.float8_e5m2,
    }
    width = 8 * np.dtype(dtype[name]).itemsize
    with np.errstate(invalid="ignore"):  # some patterns are NaN
        numbers = np.arange(1 << width, dtype=f"uint{width}").view(dtype[name]).astype(np.float64)
    numbers = np.unique(numbers[np.isfinite(numbers) & (numbers > 0)])
    assert numbers[0] == shown.smallest and numbers[-1] == shown.largest
    for low, high in ((shown.smallest, shown.largest), (1.0, 2.0), (0.03, 4.0), (0.001, 1e9)):
        assert shown.count(low, high) == np.count_nonzero((numbers >= low) & (numbers <= high))


def test_int8_counts_steps_and_a_useless_scale_or_name_is_rejected():
    assert int8(0.5).count(0.5, 10) == 20
    for scale in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="positive and finite"):
            int8(scale)
    with pytest.raises(ValueError, match=r"no format 'FP12'.*BF16"):
        format_named("FP12")


def test_figures_tell_the_numbers_that_they_draw():
    drawn = number_lines([FORMATS["FP8 E4M3"], FORMATS["FP8 E5M2"]], 1.0, 2.0)
    ticks = [len(bars) for bars in drawn.axes[0].containers]
    assert ticks == [9, 5] and "E4M3 has 9" in drawn.axes[0].get_title(loc="left")
    assert [label.get_text() for label in format_ranges().axes[0].get_yticklabels()] == list(FORMATS)
    with pytest.raises(ValueError, match="0 < low < high"):
        number_lines([FORMATS["FP16"]], 2.0, 1.0)
