"""A learner's process may answer with any JSON value: whatever it is, the judge decides, and its words are plain."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from course_lib import labs
from course_lib.labs import Examiner
from course_lib.labs.framework import guest

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
    "settings of other types": '{"inputs": [{"min_shape": {}, "name": []}], "ir": [], "min_block_size": "\\u001b"}',
}


@pytest.mark.parametrize("text", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize(
    ("name", "task"),
    [("lab03", task) for task in ("timing", "choice", "budget", "cache")],
)
def test_any_value_is_judged(name: str, task: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = labs.find(name)
    lab.write_reference(tmp_path)

    def call(self: guest.Guest, function: str, *arguments: Any) -> Any:
        return json.loads(text)

    monkeypatch.setattr(guest.Guest, "call", call)
    (found,) = lab.examine(tmp_path, Examiner(seed=1), only=task).outcomes
    assert found.tier == "none" and found.message.isprintable() and found.hint.isprintable()
