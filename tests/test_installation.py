"""`course doctor` and `course check` on machines that lack what the course needs: one clear line each."""

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from course_lib.cli.installation import DISTRIBUTION
from tests.grading.conftest import ROOT

REQUIRED = sorted(
    package.name
    for package in map(Requirement, metadata.requires(DISTRIBUTION) or ())
    if not package.marker or package.marker.evaluate({"extra": ""})
)


def tops(name: str) -> set[str]:
    """The files and folders that a distribution put into site-packages."""
    files = metadata.distribution(name).files or ()
    return {Path(file).parts[0] for file in files} - {"..", "__pycache__"}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Links to everything that is installed here, for an interpreter that sees nothing else."""
    folder = tmp_path_factory.mktemp("packages")
    for entry in Path(str(metadata.distribution("numpy").locate_file(""))).iterdir():
        if not entry.name.endswith(".pth") and entry.name != "__pycache__":
            (folder / entry.name).symlink_to(entry)
    return folder


def course(packages: Path, without: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    gone = {name: (packages / name).readlink() for one in without for name in tops(one) if (packages / name).is_symlink()}
    for name in gone:
        (packages / name).unlink()
    try:
        environment = {**os.environ, "PYTHONPATH": f"{packages}:{ROOT}", "COURSE_ROOT": str(ROOT)}
        command = [sys.executable, "-S", "-m", "course_lib", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    finally:
        for name, target in gone.items():
            (packages / name).symlink_to(target)


# One that everything needs, and the command's own; the others are tried at night.
FEW = ("numpy", "typer")


@pytest.mark.parametrize("name", [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in REQUIRED])
def test_doctor_names_what_is_missing_in_one_line(packages: Path, name: str) -> None:
    done = course(packages, (name,), "doctor")
    assert "internal error" not in done.stderr and "Traceback" not in done.stderr
    if done.returncode:  # the command itself cannot do without it
        (line,) = done.stderr.strip().splitlines()
        assert not done.stdout
    else:
        (line,) = (line for line in done.stdout.splitlines() if "missing" in line)
    assert re.search(rf"missing(?: packages| in all): [^;]*\b{re.escape(name)}\b[^;]*; run `pip install", line), line


def test_nothing_to_run_an_engine_with(packages: Path, tmp_path: Path) -> None:
    without = ("onnxruntime", "tensorrt-rtx-cu13", "tensorrt-rtx-cu13-libs", "tensorrt-rtx-cu13-bindings")
    done = course(packages, without, "doctor")
    assert done.returncode == 0 and "engines are built with nothing and run with nothing" in done.stdout
    (tmp_path / "recipe.toml").write_text("")
    done = course(packages, without, "check", "lab01", str(tmp_path))
    assert done.returncode == 1 and not done.stdout
    line = done.stderr.strip().splitlines()[-1]  # after the steps that began
    assert (
        "Traceback" not in done.stderr
        and line.startswith("course: no backend can run engines here (")
        and "onnxruntime: not installed" in line
    )


def test_a_version_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from course_lib.cli import installation

    assert installation.missing_packages() == ()
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.1" if name == "onnx" else real(name))
    (found,) = installation.missing_packages()
    assert found.startswith("onnx >=") and found.endswith("(found 0.1)")
