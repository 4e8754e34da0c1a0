"""What `check` says, whatever the answer does, and what counts as the same result."""

from typing import Any

import numpy as np
import pytest
import torch

from course_lib.errors import CourseError
from course_lib.exercises import Case, Exercise, NotYet, check, checking, find, progress
from course_lib.exercises.comparing import same, shown

GIVEN = np.array([1.0, 2.0])


def _examined(called: Any) -> None:
    if called(GIVEN, 10) < 10:
        raise NotYet("too small")


DOUBLE = Exercise(
    id="99.1",
    title="Twice",
    minutes=3,
    difficulty=1,
    importance=1,
    call="double(values, least)",
    hint="Add the values to themselves.",
    cases=(Case((GIVEN, 0), 6.0, {"You forgot to double.": 3.0}),),
    examine=_examined,
)


def _changes_its_input(values: np.ndarray, least: float) -> float:
    values *= 2
    return float(values.sum())


def _raises(error: Exception) -> Any:
    def double(values: np.ndarray, least: float) -> float:
        raise error

    return double


def test_right() -> None:
    assert checking.examine(DOUBLE, lambda values, least: max(least, 2 * values.sum())) == ""


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda values, least: values.sum(), "`double([1, 2], 0)` returned 3, expected 6. You forgot to double."),
        (lambda values, least: 5.0, "`double([1, 2], 0)` returned 5, expected 6. Add the values to themselves."),
        (lambda values, least: 2 * values.sum(), "too small"),
        (lambda values, least: None, "`double` still returns nothing. Replace `...` with your code"),
        (_raises(NotImplementedError()), "still returns nothing"),
        (6.0, 'expected the function itself, found 6. Call `check("99.1", double)`, without calling your function.'),
        (lambda values: 6.0, "`double` cannot be called: "),
        (_changes_its_input, "change a copy, `array.copy()`"),
        (lambda values, least: np.zeros(3) + values, "print `.shape` of both arrays"),
        (lambda values, least: 6.0 if values > 0 else 0.0, "`if`, `and` and `or` need one value"),
        (lambda values, least: ___ + 1, "Fill this gap of the skeleton."),  # noqa: F821
        (lambda values, least: undefined, "run the cells above"),  # noqa: F821
        (
            _raises(ZeroDivisionError("division by zero")),
            "`double` raised ZeroDivisionError in the line `raise error`: division by",
        ),
        (_raises(ValueError()), "ValueError in the line `raise error`: no text. Add the values to themselves."),
        (lambda values, least: bytes(None), "which is how TensorRT reports a failure"),
        (lambda values, least: "6", "returned '6', expected 6"),
    ],
)
def test_what_a_wrong_answer_is_answered(answer: Any, said: str) -> None:
    assert said in checking.examine(DOUBLE, answer)


def test_check_prints_one_line_and_records_what_is_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    check("16.1", lambda code_bits, block, scale_bits: code_bits)
    assert capsys.readouterr().out.startswith("16.1 not yet: `bits_per_weight(4, 64, 16)` returned 4")
    assert progress.done() == frozenset()
    known = {(4, 64, 16): 4.25, (4, 16, 8): 4.5, (8, 32, 8): 8.25}
    check("16.1", lambda *arguments: known[arguments])
    assert capsys.readouterr().out == "16.1 right. You have solved 1 of the 4 exercises of lecture 16.\n"
    assert progress.done() == {"16.1"}


def test_an_answer_counts_although_it_cannot_be_recorded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    (tmp_path / "tensorrt-course").write_text("a file where a folder belongs")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    known = {(4, 64, 16): 4.25, (4, 16, 8): 4.5, (8, 32, 8): 8.25}
    check("16.1", lambda *arguments: known[arguments])
    assert capsys.readouterr().out.startswith("16.1 right. Your progress could not be saved: ")
    assert progress.done() == frozenset()


def test_a_notebook_shows_the_card_of_a_labs_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    drawn: list[dict[str, str]] = []
    monkeypatch.setattr(checking, "in_notebook", lambda: True)
    monkeypatch.setattr("IPython.display.display", lambda data, **_: drawn.append(data))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    check("16.1", lambda code_bits, block, scale_bits: "<b>")
    assert drawn[0]["text/plain"].startswith("16.1 not yet: ")
    html = drawn[0]["text/html"]
    assert "not yet</b>" in html and "<code>bits_per_weight(4, 64, 16)</code>" in html and "&lt;b&gt;" in html


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("16.9", "expected 16.1, 16.2, 16.3, 16.4"), ("77.1", "lecture 77 has no exercises"), ("x", "two numbers")],
)
def test_an_exercise_that_does_not_exist(wrong: str, said: str) -> None:
    with pytest.raises(CourseError, match=said):
        find(wrong)


@pytest.mark.parametrize(
    ("found", "expected", "alike"),
    [
        (1.0 + 1e-9, 1, False),
        (1.0 + 1e-9, 1.0, True),
        (True, 1, True),
        (1, True, False),
        (np.bool_(True), True, True),
        ("a", 1, False),
        ([1, 2], np.array([1, 2]), True),
        (np.array([1.0, 2.0]), [1, 2], True),
        (np.ones((2, 1)), np.ones(2), False),
        (torch.ones(2, requires_grad=True), np.ones(2), True),
        (np.array([np.nan, np.inf]), np.array([np.nan, np.inf]), True),
        ([("a", 1), ("b", 2)], [("a", 1), ("b", 3)], False),
        ("ab", ["a", "b"], False),
        ({"a": 1}, {"b": 1}, False),
        ({1, 2}, {2, 1}, True),
        ([1, 2], {1, 2}, False),
        ([[1], [1, 2]], np.ones(2), False),
        ([None, 1], [None, 1], True),
    ],
)
def test_same(found: Any, expected: Any, alike: bool) -> None:
    assert same(found, expected) == alike


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(0.1), "0.1"),
        ([1, 2.5], "[1, 2.5]"),
        ([[1, 2], [3, 4]], "[[1, 2], [3, 4]]"),
        (np.arange(20), "an array of shape (20,) that begins with 0, 1, 2"),
        ({"a": np.True_}, "{'a': True}"),
        ([("a", 1)], "[['a', 1]]"),
        ("x" * 500, "'" + "x" * 116 + "..."),
    ],
)
def test_shown(value: Any, text: str) -> None:
    assert shown(value) == text


def test_shown_names_the_type_of_anything_else() -> None:
    assert "(set)" in shown({1}) and "(object)" in shown(object())
