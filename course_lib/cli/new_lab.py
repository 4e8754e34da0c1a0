"""Write a new lab that is green at once: its package, its notebook and its test, from templates."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

from course_lib.errors import CourseError

_TEMPLATES = Path(__file__).parent / "templates" / "new_lab"
_NAME = re.compile(r"lab(\d\d)_([a-z][a-z0-9_]*)")
_PYTHON = ("__init__.py", "lab.py", "checks.py", "reference.py")


def write(name: str, root: Path) -> list[Path]:
    """Write the files of a lab with one task into a clone of the course.

    Args:
        name: such as ``lab42_batches``.
        root: of the clone.

    Returns:
        The new files.

    Raises:
        CourseError: the name has another form, or a lab has this name or number.
    """
    parts = _NAME.fullmatch(name)
    if not parts:
        raise CourseError(f"{name!r} is not the name of a lab: expected two digits and words, such as lab42_batches")
    number, words = parts.groups()
    taken = sorted(path.name for path in (root / "course_lib" / "labs").glob(f"lab{number}_*"))
    if taken:
        raise CourseError(f"{taken[0]} has the number {number}: choose another one")
    values = {
        "name": name,
        "number": number,
        "title": words.replace("_", " "),
        "class_name": "".join(word.title() for word in words.split("_")),
    }
    texts = {f"course_lib/labs/{name}/{file}": _filled(f"{file}.txt", values) for file in _PYTHON}
    texts[f"tests/labs/test_lab{number}.py"] = _filled("test.py.txt", values)
    texts[f"solutions/{name}/{name}.ipynb"] = _filled("notebook.ipynb.txt", values)
    for file, text in texts.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text, encoding="utf-8")
    return [root / file for file in texts]


def _filled(template: str, values: dict[str, str]) -> str:
    return Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)
