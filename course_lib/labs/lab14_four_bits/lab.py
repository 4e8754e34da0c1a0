"""Lab 14, four bits: the decoder's weights in as few bits as a budget of lost bits per byte allows."""

from __future__ import annotations

from typing import ClassVar

from course_lib.labs.framework.criteria import Task
from course_lib.labs.framework.lab import Lab
from course_lib.labs.lab14_four_bits import checks, given


class FourBits(Lab):
    """The submission is an id and three files of arrays. The course writes the graph."""

    name = "lab14_four_bits"
    title = "Lab 14: four bits"
    work_class = checks.FourBitsWork
    artifacts: ClassVar = {
        **dict.fromkeys((checks.LEARNER, checks.PACKED, checks.SCALES), checks.MAX_BYTES),
        given.FILE: given.MAX_BYTES,
    }
    tasks = (
        Task("packing", "Two codes in a byte", 2, checks.packing),
        Task("search", "A search for the scales", 3, checks.search),
        Task("size", "Few bits within the budget", 3, checks.size),
        Task("plan", "Weights that the kernels read as they are stored", 2, checks.plan),
    )
    build_hints: ClassVar = {
        "": "The message names a product or an array. Print its type and its shape in the notebook.",
    }


lab = FourBits()
