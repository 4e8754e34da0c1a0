"""Lab 03, tune and keep: shapes that change kernels, two builds compared, a choice that noise does not change, and a timing cache."""

from __future__ import annotations

from typing import ClassVar

from course_lib.labs.framework.criteria import Task
from course_lib.labs.framework.lab import Lab
from course_lib.labs.lab03_tuning import checks, given


class Tuning(Lab):
    """The submission is answers in JSON, a recipe, and two files with functions."""

    name = "lab03_tuning"
    title = "Lab 03: tune and keep"
    work_class = checks.TuningWork
    artifacts: ClassVar = dict.fromkeys((given.ANSWERS, checks.RECIPE, checks.TIMING, checks.CACHE), checks.MOST_BYTES)
    tasks = (
        Task("widths", "Widths without padding", 2, checks.widths),
        Task("recipe", "The shape to tune for", 1, checks.recipe),
        Task("rebuild", "What differs between two builds", 2, checks.rebuild),
        Task("timing", "A choice that two builds repeat", 2, checks.timing),
        Task("builds", "Settings from repeated builds", 1, checks.builds),
        Task("cache", "A timing cache", 2, checks.cache),
    )
    process_s: ClassVar = 60.0  # the reference's two files take 2 s on two loaded cores, and nothing is timed
    build_hints: ClassVar = {
        "": "Run the task's cells again, and print what they write.",
    }


lab = Tuning()
