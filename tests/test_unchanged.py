"""What is done once is done again exactly when something that it depends on has changed."""

import pytest

from tests import unchanged


@pytest.fixture
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
    for name, place in {"ROOT": tmp_path, "PACKAGE": package, "FOLDER": tmp_path / "build"}.items():
        monkeypatch.setattr(unchanged, name, place)
    yield package
    unchanged._parts_of.cache_clear()


def test_a_change_anywhere_below_gives_another_key(library):
    keys = set()
    for changed in (None, "models/resnet.py", "models/weights.bin", "recipe.py", "engines/__init__.py", "__init__.py"):
        if changed:
            (library / changed).write_text(f"{(library / changed).read_text()}# changed")
        unchanged._parts_of.cache_clear()
        keys.add(unchanged.key(files=unchanged.imported("from course_lib import engines")))
    assert len(keys) == 6


def test_what_is_remembered(library, monkeypatch):
    made = []
    for _ in range(2):
        assert unchanged.made("x", lambda: made.append(1) or b"bytes") == b"bytes"
    assert made == [1]
    monkeypatch.delenv("CI", raising=False)
    unchanged.remember("a")
    assert unchanged.known("a") and not unchanged.known("b")
    monkeypatch.setenv("CI", "true")
    assert not unchanged.known("a")
