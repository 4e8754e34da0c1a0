"""What labs run in the interpreter of the engines, where another environment has NumPy and the backend, and nothing else."""

from __future__ import annotations

import venv
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from course_lib import labs
from course_lib.engines import Worker
from course_lib.engines.worker.environment import environments
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examiner
from course_lib.labs.lab10_profiling import service
from tests.labs.submissions import lab06

EXAMINER = Examiner(runner="onnxruntime@bare", seed=8)
TRUSTED = bool(sandbox.problem())


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The packages of an environment named ``bare``, which has no onnx."""
    venv.create(tmp_path / "bare", symlinks=True)
    (packages,) = (tmp_path / "bare").glob("lib/python*/site-packages")
    for name in ("numpy", "onnxruntime", "tensorrt_rtx"):
        installed = Path(str(find_spec(name).origin)).parent
        for folder in (installed, *installed.parent.glob(f"{name}[._-]*")):
            (packages / folder.name).symlink_to(folder)
    monkeypatch.setenv("COURSE_ENVIRONMENTS", f"bare={tmp_path / 'bare/bin/python'}")
    return packages


def test_an_engine_can_run_there(packages: Path) -> None:
    with Worker(environments()["bare"]) as worker:
        usable = {row["name"] for row in worker.backends() if row["version"]}
    assert usable == {"onnxruntime", "tensorrt_rtx"}


def test_the_pipeline_of_lab10(packages: Path) -> None:
    lab = labs.find("lab10")
    lab.write_reference(packages)
    stream = service.fresh_stream([2, 3], np.random.default_rng(8))
    with service.started((packages / "pipeline.py").read_text(), EXAMINER) as started:
        assert [answer.shape for answer in started.infer(stream).values()] == [(2, 10), (3, 10)]


def test_the_layer_table_of_lab06(packages: Path, tmp_path: Path) -> None:
    """On a GPU with TensorRT 8.6, its interpreter has no onnx: the table had no names of nodes, and the lab could not be graded."""
    lab = labs.find("lab06")
    lab06.save_float_layers(("stem", "depth2", "depth1"), tmp_path)
    examiner = Examiner(builder="tensorrt_rtx@bare", runner="onnxruntime", seed=8, launcher=list)
    (kernels,) = lab.examine(tmp_path, examiner, only="kernels").outcomes
    assert kernels.tier == "full", kernels.message


def test_the_servers_of_lab12(packages: Path, tmp_path: Path) -> None:
    lab = labs.find("lab12")
    lab.write_reference(tmp_path)
    (cache,) = lab.examine(tmp_path, EXAMINER, only="cache").outcomes
    assert cache.tier == "full", cache.message


def test_an_interpreter_that_cannot_start_servers_is_not_their_fault(packages: Path, tmp_path: Path) -> None:
    lab = labs.find("lab12")
    lab.write_reference(tmp_path)
    (packages / "sitecustomize.py").write_text(
        "import sys\nif 'lab12_serving' in ' '.join(sys.orig_argv): raise SystemExit('no library for this processor')\n"
    )
    verdict = judge(lab, tmp_path, examiner=EXAMINER, trusted=TRUSTED)
    assert not verdict.outcomes
    assert "servers cannot be started with" in verdict.fault and "it has to import NumPy and onnxruntime" in verdict.fault
