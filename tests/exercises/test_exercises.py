"""Every exercise of every lecture: its solution passes; its empty function, its skeleton and planted mistakes do not."""

import re
import runpy
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any

import nbformat
import numpy as np
import pytest

from course_lib._util import toml_text
from course_lib.exercises import Exercise, checking, lecture_numbers, of_lecture

ROOT = Path(__file__).resolve().parents[2]
EXERCISES = [exercise for number in lecture_numbers() for exercise in of_lecture(number)]
LECTURES = {int(path.name[:2]): path for path in sorted(ROOT.glob("lectures/[01]*.ipynb")) if path.name[:2] != "00"}
GAP = "___"


def by_id(exercise: Exercise) -> str:
    return exercise.id


each_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=by_id)


@cache
def cells(number: int) -> dict[str, Any]:
    return {cell.id: cell for cell in nbformat.read(LECTURES[number], as_version=4).cells}


@cache
def solutions(number: int) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "solutions" / f"lecture{number:02}.py"))


def mistakes(exercise: Exercise) -> dict[str, Any]:
    """Wrong answers by name: functions, from passages of the solution with what replaces them or from another body."""
    file = Path(__file__).parent / "mistakes" / f"lecture{exercise.lecture:02}.toml"
    planted = toml_text.loads(file.read_text(encoding="utf-8"))[exercise.id]
    return {name: _changed(exercise, wrong) for name, wrong in planted.items()}


def _changed(exercise: Exercise, wrong: str | list[list[str]]) -> Any:
    source = (ROOT / "solutions" / f"lecture{exercise.lecture:02}.py").read_text(encoding="utf-8")
    start, function, rest = source.partition(f"\ndef {exercise.name}(")
    function, end, rest = rest.partition("\n\n\n")
    if isinstance(wrong, str):
        function = f"{exercise.call.partition('(')[2]}:\n{indent(wrong, '    ')}"
    else:
        for old, new in wrong:
            assert function.count(old) == 1, (exercise.id, old)
            function = function.replace(old, new)
    names: dict[str, Any] = {}
    exec(f"{start}\ndef {exercise.name}({function}{end}{rest}", names)
    return names[exercise.name]


def cell(exercise: Exercise, part: str = "") -> str:
    return str(cells(exercise.lecture)[f"exercise-{exercise.id.replace('.', '-')}{part}"].source)


def defined(code: str, exercise: Exercise) -> Any:
    """The function that a cell defines. What a cell before it defines is missing, and is only needed when the function is called."""
    names: dict[str, Any] = {}
    exec(code.partition("\ncheck(")[0], names)
    return names[exercise.name]


@pytest.mark.parametrize("number", lecture_numbers())
def test_a_lecture_has_three_exercises_in_the_order_of_its_text(number: int) -> None:
    found = [re.fullmatch(r"exercise-(\d+)-(\d+)", name) for name in cells(number)]
    in_text = [f"{one[1]}.{one[2]}" for one in found if one]
    assert in_text == [exercise.id for exercise in of_lecture(number)] == [f"{number}.{i + 1}" for i in range(len(in_text))]
    assert len(in_text) >= 3
    order = [name for name in cells(number) if name.startswith("exercise-")]
    assert order == [f"exercise-{number}-{i + 1}{part}" for i in range(len(in_text)) for part in ("-text", "", "-hint")]
    imported = [name for name in order if "from course_lib.exercises import check" in cells(number)[name].source]
    assert imported == [f"exercise-{number}-1"], "the first exercise of a lecture imports `check`"


@pytest.mark.parametrize("number", lecture_numbers())
def test_the_first_cell_says_how_long_the_exercises_take(number: int) -> None:
    minutes = sum(exercise.minutes for exercise in of_lecture(number))
    first = next(iter(cells(number).values())).source
    assert f", and {minutes} for its exercises." in first


@each_exercise
def test_the_solution_passes(exercise: Exercise) -> None:
    assert checking.examine(exercise, solutions(exercise.lecture)[exercise.name]) == ""


@each_exercise
def test_the_untouched_cell_says_that_nothing_is_returned(exercise: Exercise) -> None:
    assert f"`{exercise.name}` still returns nothing" in checking.examine(exercise, defined(cell(exercise), exercise))


@each_exercise
def test_three_planted_mistakes_each_get_their_own_words(exercise: Exercise) -> None:
    words = {name: checking.examine(exercise, wrong) for name, wrong in mistakes(exercise).items()}
    assert len(words) >= 3 and all(words.values())
    advice = [text.rpartition(". ")[2] for text in words.values()]
    assert len(set(words.values())) == len(set(advice)) == len(words), words
    assert [name for name, text in words.items() if exercise.hint in text] == [], "only the general hint"


STRANGE = (
    "text",
    "",
    [],
    {},
    (),
    1j,
    float("nan"),
    float("inf"),
    -1,
    True,
    object(),
    np.array([]),
    np.zeros((2, 0)),
    [[1], [2, 3]],
)
STRANGE += (("a", None), {1: 2}, b"bytes", range(3), iter([1]), len, np.array(["text"]), np.ones((2, 3)), (np.ones(2), "text"))
STRANGE += ((1, 2, 3), [None], np.array([None, 1]), np.datetime64("2026-01-01"), Exception("returned"), (object(), object()))


@each_exercise
def test_no_result_is_so_strange_that_a_check_raises(exercise: Exercise) -> None:
    for strange in STRANGE:
        words = checking.examine(exercise, lambda *arguments, result=strange, **keywords: result)
        assert "\n" not in words and len(words) > 40, strange


@each_exercise
def test_the_skeleton_has_gaps_and_is_no_solution(exercise: Exercise) -> None:
    hint = re.search(
        r"<details><summary>[^<]*skeleton</summary>\n\n```python\n(.*?)```\n</details>", cell(exercise, "-hint"), re.DOTALL
    )
    assert hint, "the last hint is a folded skeleton"
    assert GAP in hint[1]
    assert checking.examine(exercise, defined(hint[1], exercise))


@each_exercise
def test_the_text_says_what_the_module_says(exercise: Exercise) -> None:
    text = cell(exercise, "-text")
    head = (
        f"> **Exercise {exercise.id}. {exercise.title}** ({exercise.minutes} minutes, difficulty {exercise.difficulty} of 3, "
        f"importance {exercise.importance} of 3)."
    )
    assert text.startswith(head)
    assert all(part in text for part in ("\n> **Expected.** ", "\n> **Go further.** "))
    assert f"def {exercise.call}:" in cell(exercise)
    assert cell(exercise).endswith(f'\n\n\ncheck("{exercise.id}", {exercise.name})')


@each_exercise
def test_an_exercise_is_short(exercise: Exercise) -> None:
    assert 3 <= exercise.minutes <= 25
    lines = _lines_of(exercise)
    assert 1 <= lines <= 15, f"the solution has {lines} lines"


def _lines_of(exercise: Exercise) -> int:
    """Lines of the solution's body, without its docstring."""
    import ast

    tree = ast.parse((ROOT / "solutions" / f"lecture{exercise.lecture:02}.py").read_text(encoding="utf-8"))
    function = next(node for node in tree.body if getattr(node, "name", "") == exercise.name)
    assert isinstance(function, (ast.FunctionDef, ast.ClassDef)) and function.end_lineno
    return function.end_lineno - function.body[1].lineno + 1


@pytest.mark.parametrize("number", lecture_numbers())
def test_no_solution_is_in_the_exercise_or_in_the_library(number: int) -> None:
    """The longest line of each solution is neither in the cells of an exercise nor in its check."""
    given = "\n".join(one.source for name, one in cells(number).items() if name.startswith("exercise-"))
    for path in (ROOT / "course_lib" / "exercises").glob(f"lecture{number:02}.*"):
        given += path.read_text(encoding="utf-8")
    source = (ROOT / "solutions" / f"lecture{number:02}.py").read_text(encoding="utf-8")
    for exercise in of_lecture(number):
        body = source.partition(f"def {exercise.name}(")[2].partition("\ndef ")[0].partition('"""\n')[2]
        assert max((line.strip() for line in body.splitlines()), key=len) not in given, exercise.id
