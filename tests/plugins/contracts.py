"""Scripts of checks, run in a process that imports one version's bindings over empty libraries."""

import ast
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import course_lib
from course_lib.migration.tables import bindings
from course_lib.migration.tables.bindings import RELEASES, BindingsUnavailable


def checks_of(script: Path) -> list[str]:
    """The names of a script's checks."""
    functions = [node for node in ast.parse(script.read_text()).body if isinstance(node, ast.FunctionDef)]
    return [node.name.removeprefix("check_") for node in functions if node.name.startswith("check_")]


def run_contract(script: Path, version: str, folder: Path) -> dict[str, str | None]:
    """By check: None where it passed, otherwise what went wrong. Skips the test where the bindings cannot be fetched."""
    release = RELEASES[version]
    try:
        wheel = bindings.download(release)
        bindings.make_libraries(release.libraries, folder)
    except BindingsUnavailable as absent:
        pytest.skip(str(absent))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    paths = os.pathsep.join((str(folder), str(Path(course_lib.__file__).parent.parent)))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, timeout=200)
    found: dict[str, str | None] = dict.fromkeys(checks_of(script), f"did not run: {done.stderr[-1500:]}")
    for line in done.stdout.splitlines():
        if line.startswith('{"'):
            found.update(json.loads(line))
    return found
