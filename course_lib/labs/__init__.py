"""The labs, each in one folder and found by its name, and their framework. To read a lab, start with its `lab.py`.

What a lab runs beside the engines runs in their interpreter, which may have NumPy only. So this package imports nothing at once.
Labs from other distributions are found too. Such a distribution names the module in the entry-point group ``course_lib.labs``,
under the name of its folder, such as ``lab42_example = "example.lab"``.
"""

from __future__ import annotations

import difflib
import pkgutil
import re
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from course_lib._util.lazy_names import lazy
from course_lib.errors import CourseError

if TYPE_CHECKING:
    from course_lib.labs.framework.criteria import Outcome as Outcome
    from course_lib.labs.framework.criteria import Task as Task
    from course_lib.labs.framework.examination import Examination as Examination
    from course_lib.labs.framework.examination import Examiner as Examiner
    from course_lib.labs.framework.lab import Lab as Lab

__getattr__, __dir__, _lazy = lazy(__name__)
__all__ = [*_lazy, "find", "names"]

# The lab of a lecture, as in the README's syllabus. A lab has another number than its lecture. The other lectures do not have one.
_LABS_OF_LECTURES = {
    **{lecture: (f"lab{lecture - 1:02}",) for lecture in range(2, 11)},
    **{lecture: (f"lab{lecture - 2:02}",) for lecture in range(12, 17)},
    17: ("lab16",),
    14: ("lab12", "lab15"),
}
_LECTURE = re.compile(r"lectures?[\W_]*(\d{1,3})(?!\d)|^(\d\d)_\w+\.ipynb$")


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


def refresh() -> None:
    """Look for labs again, after one was written."""
    _modules.cache_clear()


def _meant(name: str) -> str:
    """A suggestion for a number, a path, a name or title that is written in another way, a title with another number, or a lecture."""
    if lecture := _LECTURE.search(name.lower()):
        return _of_lecture(int(lecture[1] or lecture[2]))
    number, title = re.search(r"\d+", name), re.search(r"lab\d+_(\w+)", name)
    short = f"lab{int(number[0][:3]):02}" if number else ""
    titled = [known for known in names() if title and known.endswith(f"_{title[1]}")]
    numbered = [short for known in names() if number and known.startswith(f"{short}_")]
    titles = {known.partition("_")[2]: known for known in names()}
    near = [titles[one] for one in difflib.get_close_matches(name.lower(), titles, n=1)]
    return f"did you mean {(titled + numbered + near)[0]}?" if titled + numbered + near else ""


def _of_lecture(number: int) -> str:
    own = _LABS_OF_LECTURES.get(number, ())
    if number > max(_LABS_OF_LECTURES):
        return f"the course does not have a lecture {number}."
    if not own:
        return f"lecture {number} does not have a lab."
    return f"the {'labs' if len(own) > 1 else 'lab'} of lecture {number} {'are' if len(own) > 1 else 'is'} {' and '.join(own)}."


def find(name: str) -> Lab:
    """A lab by its full name or the first part of it, such as ``"lab01"``.

    Raises:
        CourseError: no lab or several labs have a name that begins like that.
    """
    from course_lib._util.unsolved import show_unsolved_as_cards
    from course_lib.labs.framework.lab import Lab

    show_unsolved_as_cards()
    matches = [known for known in names() if known == name or known.startswith(f"{name}_")]
    if len(matches) != 1:
        said = f"no lab {name!r}{f': {meant}' if (meant := _meant(name)) else '.'}"
        raise CourseError(said if said.endswith("?") else f"{said} `course progress` lists the {len(names())} labs")
    lab = import_module(_modules()[matches[0]]).lab
    assert isinstance(lab, Lab)
    return lab
