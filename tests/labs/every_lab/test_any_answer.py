"""A learner's process may answer with any JSON value: whatever it is, the judge decides, and its words are plain."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from course_lib import labs
from course_lib.labs import Examiner
from course_lib.labs.framework import runner
from course_lib.labs.lab03_tuning import checks
from tests.labs.submissions import lab03

VALUES = {
    "null": "null",
    "yes": "true",
    "not a number": "NaN",
    "endless": "1e999",
    "large": "1" + 400 * "0",
    "control characters": '"\\u001b[2J\\u202e"',
    "an empty list": "[]",
    "lists in a list": '[[["a"]], {"k": ["t", NaN]}]',
    "a cache of large numbers": '[["a"], {"k": ["t", 1' + 400 * "0" + "]}]",
    "objects": '[{"a": []}, {"b": {}}]',
}


@pytest.mark.parametrize("text", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("task", ["timing", "cache"])
def test_any_value_is_judged(task: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def call(file: Path, calls: Mapping[str, Sequence[Any]], examiner: Examiner) -> dict[str, list[Any]]:
        values = {function: [json.loads(text)] * len(several) for function, several in calls.items()}
        return runner._read(values, {function: len(several) for function, several in calls.items()}, file.name)

    monkeypatch.setattr(checks, "call", call)
    lab03.functions(tmp_path)
    (found,) = labs.find("lab03").examine(tmp_path, Examiner(seed=1), only=task).outcomes
    assert found.tier == "none" and found.message.isprintable() and found.hint.isprintable()
