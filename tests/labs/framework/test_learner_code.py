"""What runs a learner's functions, and what its answers may hold."""

from __future__ import annotations

import ast
import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from course_lib.errors import EngineError
from course_lib.labs.framework import learner_code
from course_lib.labs.framework.learner_code import OnlyPackages
from course_lib.labs.framework.runner import read_hostile

# Sent as text: their processes see no file of the course.
ALONE = ("lab06_qat.sandboxed.call_qat", "framework.learner_code")


@pytest.mark.parametrize("name", ALONE)
def test_what_is_sent_as_text_imports_nothing_else_of_the_course(name):
    module = importlib.import_module(f"course_lib.labs.{name}")
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("course_lib"):
            assert node.module == learner_code.__name__  # by its full name: the packages above it are not there
        elif isinstance(node, ast.Import):
            assert not any(one.name.startswith("course_lib") for one in node.names)


def test_imports_are_limited_for_one_file_or_for_all(monkeypatch):
    def imported(name: str, file: str) -> None:
        sys.modules.pop(name, None)
        exec(compile(f"import {name}", file, "exec"), {})

    monkeypatch.setattr(sys, "meta_path", [OnlyPackages("numpy", file="mine.py"), *sys.meta_path])
    imported("tests.labs.untouched", "theirs.py")
    imported("wave", "mine.py")
    with pytest.raises(ImportError, match="the file may import numpy and Python's own modules, not 'tests"):
        imported("tests.labs.untouched", "mine.py")
    sys.meta_path[0] = OnlyPackages("torch", "numpy")
    with pytest.raises(ImportError, match="may import torch, numpy and"):
        imported("tests.labs.untouched", "theirs.py")


@pytest.mark.parametrize(
    "array", [np.arange(6, dtype=np.uint8).reshape(2, 3), np.float32(2), np.zeros((0, 3)), np.arange(9)[::2]]
)
def test_arrays_come_back_as_they_were(array):
    found = learner_code.decoded(json.loads(json.dumps(learner_code.encoded(array))))
    assert found.dtype == array.dtype and found.shape == array.shape and (found == array).all()


@pytest.mark.parametrize(
    "change", [{"dtype": "O"}, {"dtype": "<c8"}, {"dtype": "1)"}, {"shape": [-1]}, {"shape": [3]}, {"shape": 2}, {"data": "?"}]
)
def test_a_hostile_array_is_an_invalid_answer(change):
    row = learner_code.encoded(np.zeros(2, np.float32)) | change
    with pytest.raises(EngineError, match=r"^no$"):
        read_hostile(json.dumps(row).encode(), learner_code.decoded, "no")
