"""The labs, each in one folder and found by its name, and their framework. To read a lab, start with its `lab.py`.

What a lab runs beside the engines runs in their interpreter, which may have NumPy only. So this package imports nothing at once.
Labs from other distributions are found too. Such a distribution names the module in the entry-point group ``course_lib.labs``,
under the name of its folder, such as ``lab42_example = "example.lab"``.
"""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from course_lib._util.lazy_names import lazy
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from course_lib.labs.framework.examination import Examination as Examination
    from course_lib.labs.framework.examination import Examiner as Examiner
    from course_lib.labs.framework.lab import Lab as Lab
    from course_lib.labs.framework.task import Outcome as Outcome
    from course_lib.labs.framework.task import Task as Task

__getattr__, __dir__, _lazy = lazy(__name__)
__all__ = [*_lazy, "find", "names"]


@cache
def _modules() -> dict[str, str]:
    """The module that holds each lab, by the lab's full name."""
    own = {
        found.name: f"{__name__}.{found.name}.lab" for found in pkgutil.iter_modules(__path__) if found.name.startswith("lab")
    }
    added = {point.name: point.value for point in entry_points(group="course_lib.labs")}
    return dict(sorted({**added, **own}.items()))


def names() -> tuple[str, ...]:
    """Full names of all labs, which are also the names of their folders."""
    return tuple(_modules())


def _meant(name: str) -> str:
    """A suggestion for a number, a path, a name that is written in another way, or a title that once had another number."""
    number, title = re.search(r"\d+", name), re.search(r"lab\d+_(\w+)", name)
    short = f"lab{int(number[0][:3]):02}" if number else ""
    titled = [known for known in names() if title and known.endswith(f"_{title[1]}")]
    numbered = [short for known in names() if number and known.startswith(f"{short}_")]
    return f"did you mean {(titled + numbered)[0]}? Else: " if titled + numbered else ""


def find(name: str) -> Lab:
    """A lab by its full name or the first part of it, such as ``"lab01"``.

    Raises:
        CourseError: no lab or several labs have a name that begins like that.
    """
    from course_lib.labs.framework.lab import Lab

    matches = [known for known in names() if known == name or known.startswith(f"{name}_")]
    if len(matches) != 1:
        raise CourseError(f"no lab {name!r}: {_meant(name)}the course has {', '.join(names())}")
    lab = import_module(_modules()[matches[0]]).lab
    assert isinstance(lab, Lab)
    return lab
