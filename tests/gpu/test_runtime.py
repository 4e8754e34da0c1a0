"""The runtime's checks with a real TensorRT, in the interpreter that has one; every check runs once and is a separate test."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import course_lib
from course_lib.engines import split_target
from tests.gpu.test_tensorrt import pytestmark, target  # noqa: F401  (the same marks, the same fixture)
from tests.runtime import checks
from tests.runtime.material import prepare


@pytest.fixture(scope="module")
def results(target, tmp_path_factory) -> dict[str, str | None]:  # noqa: F811
    folder = prepare(tmp_path_factory.mktemp("runtime"))
    environment = split_target(target)[1]
    library = str(Path(course_lib.__file__).resolve().parent.parent)
    command = [*environment.command, checks.__file__, library, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=550, env={**os.environ, "PYTHONPATH": ""})
    found: dict[str, str | None] = {}
    for line in done.stdout.splitlines():
        if line.startswith('{"'):
            found.update(json.loads(line))
    assert found, done.stdout + done.stderr[-3000:]
    return {**dict.fromkeys(checks.CHECKS, f"did not run: {done.stderr[-1500:]}"), **found}


@pytest.mark.parametrize("name", checks.CHECKS)
def test_runtime(results, name):
    assert results[name] is None, results[name]
