"""The figures of lecture 7 show what the functions compute."""

import numpy as np

from course_lib.precision import fake_quantize
from course_lib.teaching.qat.figures import descent_figure, gradient_figure


def test_the_gradient_is_cut_half_a_step_beyond_the_last_level():
    left, right = gradient_figure(amax=1.0, bits=3).axes
    values, rounded = left.lines[1].get_data()
    np.testing.assert_array_equal(rounded, fake_quantize(values, 1.0, 3))
    x, gradient = right.lines[1].get_data()
    inside = (x > -4.5 / 3 + 1e-6) & (x < 3.5 / 3 - 1e-6)
    np.testing.assert_array_equal(gradient[np.abs(x - 3.5 / 3) > 1e-3], inside[np.abs(x - 3.5 / 3) > 1e-3].astype(float))
    assert right.get_title(loc="left") == "Backward: cut below -1.50 and above 1.17"


def test_a_target_on_a_level_is_reached_and_kept():
    assert descent_figure(target=1 / 3, start=0.0, steps=60).axes[0].get_title(loc="left").endswith("ends at 0.333")
