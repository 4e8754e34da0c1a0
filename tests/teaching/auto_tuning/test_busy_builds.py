"""The record of builds on busy hosts, its figure, and what lecture 4 concludes from them."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from course_lib.benchmark import recorded
from course_lib.teaching.auto_tuning.busy_builds import draw_busy_builds

ROWS = recorded("busy_builds_h100").rows


def times(condition: str, *, gpus: int = 1, batch: int = 1) -> list[float]:
    (row,) = [row for row in ROWS if (row["condition"], row["gpus"], row["batch"]) == (condition, gpus, batch)]
    return list(row["replays_us"])


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_what_the_lecture_concludes(batch: int) -> None:
    alone = times("alone", batch=batch)
    busy, low = times("16 busy loops", batch=batch), times("16 busy loops of low priority", batch=batch)
    averaged = times("16 busy loops, avg_timing_iterations = 8", batch=batch)
    cached = times("16 busy loops, timing cache of a quiet build", batch=batch)
    assert median(low) > median(busy) > 1.1 * median(alone), "full cores harm, and a low priority does not help"
    assert max(cached) <= max(alone) and median(averaged) < 1.05 * median(alone)
    assert median(times("8 busy loops", batch=batch)) < 1.03 * median(alone)
    four = times("alone", gpus=4, batch=batch)
    for neighbors in ("one build on each of four GPUs at once", "three builds on one GPU at once"):
        assert median(times(neighbors, gpus=4, batch=batch)) < 1.02 * median(four)
    assert min(times("64 busy loops", gpus=4, batch=batch)) > max(four)


def test_the_title_follows_from_the_rows() -> None:
    def row(condition: str, *us: float) -> dict[str, Any]:
        shared = {"gpus": 2, "cores": 8, "batch": 8, "busy_loops": 8, "avg_timing_iterations": 1, "timing_cache": "empty"}
        return {**shared, "condition": condition, "replays_us": us}

    figure = draw_busy_builds([row("alone", 10.0, 12.0, 11.0), row("a film", 22.0, 30.0, 11.0)], batch=8)
    assert figure.get_suptitle().startswith("Built beside a film, the median engine takes 2.00 times")
    assert figure.get_supxlabel().startswith("µs of one inference at batch 8")
