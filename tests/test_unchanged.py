"""What is done once is done again exactly when something that it depends on has changed."""

from __future__ import annotations

import pytest

from tests import unchanged


@pytest.fixture(autouse=True)
def library(tmp_path, monkeypatch):
    """A library of two packages and a module, one of which imports another by name."""
    package = tmp_path / "course_lib"
    for name, text in {
        "__init__.py": "",
        "recipe.py": "",
        "models/__init__.py": '_LAZY = {"resnet": "resnet"}',
        "models/resnet.py": "from course_lib import recipe\n",
        "models/weights.bin": "1",
        "engines/__init__.py": "from course_lib.models import resnet\n",
    }.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    monkeypatch.setattr(unchanged, "ROOT", tmp_path)
    monkeypatch.setattr(unchanged, "PACKAGE", package)
    monkeypatch.setattr(unchanged, "FOLDER", tmp_path / "build")
    monkeypatch.delenv("CI", raising=False)
    unchanged._parts_of.cache_clear()
    yield package
    unchanged._parts_of.cache_clear()


def key() -> str:
    unchanged._parts_of.cache_clear()
    return unchanged.key(files=unchanged.imported("from course_lib import engines"))


@pytest.mark.parametrize(
    "changed", ["models/resnet.py", "models/weights.bin", "recipe.py", "engines/__init__.py", "__init__.py"]
)
def test_a_change_anywhere_below_gives_another_key(library, changed):
    before = key()
    assert key() == before
    (library / changed).write_text("# changed")
    assert key() != before


def test_ci_remembers_nothing(monkeypatch):
    unchanged.remember("a")
    assert unchanged.known("a") and not unchanged.known("b")
    monkeypatch.setenv("CI", "true")
    assert not unchanged.known("a")


def test_what_was_made_is_not_made_again():
    made = []
    for _ in range(2):
        assert unchanged.made("x", lambda: made.append(1) or b"bytes") == b"bytes"
    assert made == [1]
