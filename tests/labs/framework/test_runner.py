"""A learner's functions run on cases, in a process of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from course_lib.errors import EngineError
from course_lib.exercises import Case
from course_lib.labs import Examiner
from course_lib.labs.framework.runner import Failed, call, case_criterion

EXAMINER = Examiner(builder="onnxruntime", runner="onnxruntime")


def written(folder: Path, text: str) -> Path:
    file = folder / "work.py"
    file.write_text(text)
    return file


def test_values_of_each_kind_arrive_and_come_back(tmp_path):
    file = written(tmp_path, "def same(*values):\n    return values\n")
    values = (1, 2.5, "text", None, True, [1, [2]], {"a": 1}, np.arange(6, dtype=np.float16).reshape(2, 3))
    (found,) = call(file, {"same": [values]}, EXAMINER)["same"]
    assert found[:-1] == [1, 2.5, "text", None, True, [1, [2]], {"a": 1}]
    np.testing.assert_array_equal(found[-1], values[-1])


def test_each_failure_is_a_line(tmp_path):
    file = written(
        tmp_path,
        "def empty(x):\n    raise NotImplementedError\n\ndef wrong(x):\n    return x / 0\n\ndef odd(x):\n    return object()\n",
    )
    results = call(file, {"empty": [(1,)], "wrong": [(1,)], "odd": [(1,)], "absent": [(1,), (2,)]}, EXAMINER)
    assert results["empty"] == [Failed("line 2: NotImplementedError", empty=True)]
    assert "line 5: ZeroDivisionError" in results["wrong"][0].line
    assert "found object" in results["odd"][0].line
    assert [one.line for one in results["absent"]] == ["work.py defines no function absent"] * 2


def test_a_file_that_fails_as_a_whole(tmp_path):
    with pytest.raises(EngineError, match=r"work\.py: .*SyntaxError"):
        call(written(tmp_path, "def half(x:\n"), {"half": [(1,)]}, EXAMINER)


def test_a_wrong_case_is_listed_with_the_words_of_its_mistake():
    cases = [
        Case((3,), 6, {"the sum is missing": 3}, shown="f(3)"),
        Case((4,), 8, shown="f(4)"),
        Case((5,), 10, shown="f(5)"),
        Case((6,), 12, shown="f(6)"),
    ]
    criterion = case_criterion("doubled", cases, [3, 9, Failed("line 2: KeyError"), 12])
    assert not criterion.met
    assert criterion.found == "1 of 4 (f(3): the sum is missing; f(4): found 9; f(5): line 2: KeyError)"
