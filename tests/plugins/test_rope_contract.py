"""The Python plugins against NVIDIA's bindings of TensorRT 10.16 and 11.4."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import course_lib
from course_lib.errors import BackendUnavailable
from course_lib.migration.tables import bindings
from course_lib.migration.tables.bindings import RELEASES, BindingsUnavailable
from course_lib.plugins import quick_rope, rope_plugin

SCRIPT = Path(__file__).with_name("contract.py")
CHECKS = [node.name.removeprefix("check_") for node in ast.parse(SCRIPT.read_text()).body
          if isinstance(node, ast.FunctionDef) and node.name.startswith("check_")]  # fmt: skip


@pytest.fixture(scope="module", params=["10.16", "11.4"])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    release, folder = RELEASES[request.param], tmp_path_factory.mktemp("bindings")
    try:
        wheel = bindings.download(release)
        bindings.make_libraries(release.libraries, folder)
    except BindingsUnavailable as absent:
        pytest.skip(str(absent))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    paths = os.pathsep.join((str(folder), str(Path(course_lib.__file__).parent.parent)))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, env=environment, timeout=200)
    found: dict[str, str | None] = dict.fromkeys(CHECKS, f"did not run: {done.stderr[-1500:]}")
    for line in done.stdout.splitlines():
        if line.startswith('{"'):
            found.update(json.loads(line))
    return found


@pytest.mark.parametrize("name", CHECKS)
def test_contract(results: dict[str, str | None], name: str) -> None:
    assert results[name] is None, results[name]


@pytest.mark.parametrize(("make", "said"), [(rope_plugin, "no IPluginV3"), (quick_rope, "no quick plugins")])
def test_versions_that_are_too_old(make: Callable[[Any], Any], said: str) -> None:
    old: Any = ModuleType("tensorrt_of_old")
    old.__version__ = "8.6.0"
    with pytest.raises(BackendUnavailable, match=f"TensorRT 8.6.0 has {said}"):
        make(old)
