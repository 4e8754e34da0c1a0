"""What the figures say is what the numbers are."""

import numpy as np
import pytest

from course_lib.precision import StreamingHistogram, divergence
from course_lib.precision.calibration.calibrators import without_zeros
from course_lib.teaching.int8 import candidate_figure, channel_figure, quality_map


@pytest.fixture(scope="module")
def histogram():
    counted = StreamingHistogram("t")
    counted.add(np.random.default_rng(0).exponential(1.0, 20_000))
    return counted.result()


def test_candidates_show_the_divergence_and_name_the_smallest(histogram):
    kept = [300, histogram.used]
    figure = candidate_figure(histogram, kept)
    counts = without_zeros(histogram)
    for axes, bins in zip(figure.axes, kept, strict=True):
        assert axes.get_title(loc="right").endswith(f"KL {divergence(counts, bins):.3g}")
    smallest = min(kept, key=lambda bins: divergence(counts, bins))
    assert f"{histogram.bin_width * smallest:.3g} has the smallest" in figure.get_suptitle()


def test_channels_count_the_steps_that_one_scale_leaves():
    weight = np.array([[[0.5, -0.1]], [[-2.0, 1.0]], [[1.0, 0.0]]])
    axes = channel_figure(weight, "layer").axes[0]
    assert [bar.get_height() for bar in axes.patches] == pytest.approx([127, 63.5, 31.75])
    assert "smallest range uses 32 of 127" in axes.get_title()


def test_the_map_names_the_method_with_the_best_worst_case():
    axes = quality_map({"clean": {"a": 30.0, "b": 25.0}, "broken": {"a": -3.0, "b": 20.0}}).axes[0]
    assert [text.get_text() for text in axes.texts] == ["30.0", "25.0", "-3.0", "20.0"]
    assert axes.get_title(loc="left") == "In its worst case b is the best of these: 20.0"
