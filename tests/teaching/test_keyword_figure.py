"""What a version does with a keyword, for facts that stand in the released source."""

from __future__ import annotations

import pytest

from course_lib import style
from course_lib.engines.backends.torch_tensorrt.keywords import table
from course_lib.teaching.torch_tensorrt import draw_keywords, fate


@pytest.mark.parametrize(
    ("keyword", "version", "expected"),
    [
        ("enabled_precisions", "2.12", "read"),
        ("enabled_precisions", "2.13", "taken and ignored"),
        ("calibrator", "2.14", "unknown"),
        ("min_block_size", "2.11", "read"),
        ("enabled_precisions", "2.2", "read"),
        ("require_full_compilation", "2.2", "taken and ignored"),
        ("dryrun", "2.2", "unknown"),
        ("torch_executed_modules", "2.11", "taken and ignored"),
    ],
)
def test_by_hand(keyword, version, expected):
    assert fate(keyword, version) == expected


def test_a_version_that_nobody_read_is_rejected():
    with pytest.raises(ValueError, match="no keywords"):
        fate("calibrator", "1.0")


def test_one_mark_a_keyword_and_version():
    axes = draw_keywords(["enabled_precisions", "calibrator"], "crosses").axes[0]
    assert sum(len(line.get_xdata()) for line in axes.lines) == 2 * len(table())
    assert style.png(axes.figure).startswith(b"\x89PNG")
