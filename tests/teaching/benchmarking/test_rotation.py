"""Caches as Linux tells them, and the time of memory-bound work."""

from __future__ import annotations

from course_lib import style
from course_lib.teaching.benchmarking.rotation import caches_mib, draw_rotation


def cache(folder, index, kind, level, size):
    place = folder / f"index{index}"
    place.mkdir()
    for name, text in (("type", kind), ("level", level), ("size", size)):
        (place / name).write_text(f"{text}\n")


def test_the_caches_that_hold_data(tmp_path):
    cache(tmp_path, 0, "Data", "1", "48K")
    cache(tmp_path, 1, "Instruction", "1", "32K")
    cache(tmp_path, 2, "Unified", "2", "2M")
    cache(tmp_path, 3, "Unified", "3", "unknown")
    assert caches_mib(tmp_path) == {"L1": 48 / 1024, "L2": 2.0}


def test_the_figure_says_both_ends():
    figure = draw_rotation({0.25: 7.0, 64: 28.0}, {"L1": 0.03, "L2": 1.0})
    assert figure.axes[0].get_title() == "The same work: 7 us on one repeated input, 28 us on inputs from a large pool"
    assert [text.get_text() for text in figure.axes[0].texts] == ["L2: 1 MiB"]  # L1 lies outside
    assert style.png(figure).startswith(b"\x89PNG")
