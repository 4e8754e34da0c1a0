"""NVIDIA's lean runtimes, which install from the registry where TensorRT itself does not: they load plans and build none.

COURSE_LEAN names their folders, `version=folder;version=folder`, each with the unpacked wheels `tensorrt-lean-cu13-libs` and
`-bindings`. COURSE_KEEP_PLAN names a version-compatible plan that `test_runtime.py` has saved with an older TensorRT.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import course_lib
from course_lib.engines.cuda.driver import capability

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(capability() is None, reason="no NVIDIA GPU and driver answer")]
FOLDERS = dict(one.split("=", 1) for one in os.environ.get("COURSE_LEAN", "").split(";") if one)
PLAN = os.environ.get("COURSE_KEEP_PLAN", "")


def run(version: str, task: str, *arguments: object) -> dict:
    script = Path(__file__).with_name("lean_runtime.py")
    library = str(Path(course_lib.__file__).resolve().parent.parent)
    command = [sys.executable, str(script), library, FOLDERS[version], task, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    print(done.stdout.strip())
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(not FOLDERS, reason="COURSE_LEAN names no lean runtime")
@pytest.mark.parametrize("version", FOLDERS)
def test_corrupt_and_foreign_plans_are_rejected_with_the_reason_from_the_log(version, tmp_path):
    rejected = run(version, "reject", PLAN) if PLAN else run(version, "reject")
    assert set(rejected) >= {"empty", "garbage", "short", "another compiler's"}
    for name, said in rejected.items():
        assert "rejects the plan" in said and len(said.splitlines()) == 1 and "no reason was logged" not in said, (name, said)


@pytest.mark.skipif(not FOLDERS or not PLAN, reason="COURSE_LEAN or COURSE_KEEP_PLAN is not set")
@pytest.mark.parametrize("version", [v for v in FOLDERS if v.startswith("10")])
def test_a_version_compatible_plan_of_8_runs_on_10_with_torch_tensors(version):
    found = run(version, "run", PLAN)
    assert found["version"].startswith("10")
    assert max(found["errors"].values()) < 5e-3, found
    assert found["ran_on_the_callers_stream"], found


@pytest.mark.skipif(not FOLDERS or not PLAN, reason="COURSE_LEAN or COURSE_KEEP_PLAN is not set")
@pytest.mark.parametrize("version", [v for v in FOLDERS if v.startswith("11")])
def test_a_version_compatible_plan_of_8_is_rejected_by_11(version):
    assert "rejects the plan" in run(version, "reject", PLAN)["version-compatible plan of 8"]
