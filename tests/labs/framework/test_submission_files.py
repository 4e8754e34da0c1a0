"""Small files of a submission: whatever is in them, they are read or rejected in one line."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from course_lib import labs
from course_lib._util import toml_text
from course_lib.errors import EngineError, RecipeError
from course_lib.labs import Examiner
from course_lib.labs.framework.submission import checked, read_json, read_text, read_toml, submitted_recipe


class Entry(BaseModel, extra="forbid"):
    """A form of values."""

    a: int = 1
    of: dict[Literal["x", "y"], int] = {}


READERS = {"a.py": read_text, "a.json": read_json, "a.toml": read_toml}


@pytest.mark.parametrize(
    ("name", "text", "value"), [("a.py", "ü = 1", "ü = 1"), ("a.json", "[1]", [1]), ("a.toml", "a = 1", {"a": 1})]
)
def test_what_is_right_is_read(tmp_path: Path, name: str, text: str, value: object) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert READERS[name](tmp_path / name, len(text.encode())) == value


@pytest.mark.parametrize("name", READERS)
def test_what_is_too_long_or_not_there_is_said(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    with pytest.raises(EngineError, match=f"^{name} is missing: the notebook's cell"):
        READERS[name](file, 10)
    file.mkdir()
    with pytest.raises(EngineError, match=f"^{name} cannot be read"):
        READERS[name](file, 10)
    file.rmdir()
    file.write_bytes(b" " * 11)
    with pytest.raises(EngineError, match=f"^{name} is longer than 10 bytes$"):
        READERS[name](file, 10)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 5000, b'{"a": [', b"\x00"])
@pytest.mark.parametrize(("name", "said"), [("a.json", "is not JSON"), ("a.toml", "is not TOML")])
def test_nonsense_is_one_line(tmp_path: Path, name: str, said: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(EngineError, match=said) as caught:
        READERS[name](tmp_path / name, 1 << 16)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        (dict[str, Entry], {"x": {"a": 1, "b": 2}}, "unknown key 'x.b': remove it"),
        (list[Entry], [{"a": 1, "b": 2}], "unknown key '0.b': remove it"),
        (Entry, {"aa": 1}, "unknown key 'aa': did you mean a? known keys are a, of"),
        (Entry, {"a": 1, "of": {"c": 1}}, "of.c: Input should be 'x' or 'y', found 'c'"),
        (Entry, toml_text.loads("a" + ".a" * 3000 + " = 1"), "nested too deep"),
        (list[Entry], reduce(lambda inner, _: [inner], range(980), []), "nested too deep"),
        (Entry, {"a": 16**4000}, "nested too deep, or a number"),
    ],
)
def test_values_of_another_form_are_one_line(kind: Any, values: Any, said: str) -> None:
    with pytest.raises(EngineError) as caught:
        checked(kind, values, "answers.json")
    assert said in str(caught.value) and str(caught.value).isprintable()


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(EngineError, match="cannot be read as text"):
        read_text(tmp_path / "a.py", 10)


def test_a_message_about_a_recipe_does_not_show_the_graders_folder(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("batch = 8")
    with pytest.raises(RecipeError, match=r"^recipe.toml: unknown key 'batch'"):
        submitted_recipe(tmp_path)


@pytest.mark.parametrize(
    ("lab", "task", "name", "content", "said"),
    [
        ("lab01", "profile", "recipe.toml", b"precision = [", "recipe.toml: not valid TOML"),
        ("lab01", "accuracy", "recipe.toml", b"batch = 8", "unknown key 'batch'"),
        ("lab02", "causes", "causes.json", b"{", "causes.json is not JSON"),
        ("lab02", "causes", "causes.json", b'{"learner": "a"}', 'must be an object with "costs"'),
        ("lab02", "causes", "causes.json", b'{"learner": "a", "costs": {"glue": 1}}', "names 'glue'"),
        ("lab16", "findings", "findings.json", b'{"kernels": 3}', "needs the keys kernels"),
        ("lab16", "findings", "findings.json", b'{"kernels": 3, "sqnr_db": {}, "slowest": ""}', "hold numbers by precision"),
        ("lab09", "answers", "serving_loop.py", b"\xff\xfe\x00", "cannot be read as text"),
    ],
)
def test_the_hint_for_a_file_that_cannot_be_read_is_true(
    lab: str, task: str, name: str, content: bytes, said: str, tmp_path: Path
) -> None:
    """It said that the same error appears in a build, which does not read the file."""
    (tmp_path / "model.onnx").touch()
    (tmp_path / name).write_bytes(content)
    (outcome,) = labs.find(lab).examine(tmp_path, Examiner(), only=task).outcomes
    assert said in outcome.message and outcome.hint.startswith("Run the notebook's cell that writes this file again"), outcome
