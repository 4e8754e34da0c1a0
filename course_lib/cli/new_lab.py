"""Write a new lab that is green at once: its package, its notebook and its test, from templates."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

from course_lib.errors import CourseError

_TEMPLATES = Path(__file__).parent / "templates" / "new_lab"
_NAME = re.compile(r"lab(\d\d)_([a-z][a-z0-9_]*)")
_PYTHON = ("__init__.py", "lab.py", "checks.py", "reference.py")
_SUBMIT = "## Submit\n\nRun `course check {name}` in a terminal. Then submit this folder as your instructor described."


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
    texts[f"solutions/{name}/{name}.ipynb"] = _notebook(values)
    for file, text in texts.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text, encoding="utf-8")
    return [root / file for file in texts]


def _filled(template: str, values: dict[str, str]) -> str:
    return Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)


def _notebook(values: dict[str, str]) -> str:
    """The instructor's notebook, with nbgrader's metadata: text, a solution, a check, and a written question."""
    import nbformat
    from nbformat import v4

    def cell(
        kind: str, grade_id: str, source: str, *, points: float | None = None, solution: bool = False
    ) -> nbformat.NotebookNode:
        marks = {"grade": points is not None, "grade_id": grade_id, "locked": not solution, "schema_version": 3}
        marks |= {"solution": solution, "task": False} | ({"points": points} if points is not None else {})
        make = v4.new_code_cell if kind == "code" else v4.new_markdown_cell
        return make(
            source.strip(), id=grade_id if points is None or solution else f"check-{grade_id}", metadata={"nbgrader": marks}
        )

    setup = f'from course_lib.labs import find\n\nlab = find("{values["name"]}")'
    cells = [
        cell("markdown", "story", _filled("story.md.txt", values)),
        v4.new_code_cell(setup, id="setup"),
        cell("markdown", "task-answer", _filled("task.md.txt", values)),
        cell("code", "function", _filled("solution.txt", values), solution=True),
        cell("code", "answer", 'lab.check("answer")  # calls your function with sizes that are drawn', points=2),
        cell("markdown", "question", _filled("question.md.txt", values)),
        cell("markdown", "written", _filled("rubric.md.txt", values), points=2, solution=True),
        cell("markdown", "submit", _SUBMIT.format(**values)),
    ]
    kernel = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}}
    made = v4.new_notebook(cells=cells, metadata={**kernel, "language_info": {"name": "python"}})
    return nbformat.writes(made) + "\n"
