"""Which files belong to permitted packages, and what a sandbox shows of all others."""

from __future__ import annotations

import importlib
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from course_lib import labs
from course_lib.grading.isolation import permitted_packages, sandbox
from course_lib.grading.isolation.sandbox import Sandbox
from tests.grading.conftest import needs_sandbox

# Looks in every folder of the sandbox for a package, whatever is on Python's path.
SEARCH = """
import os, sys
for folder, inner, files in os.walk("/"):
    inner[:] = [one for one in inner if os.path.join(folder, one) not in ("/proc", "/sys", "/dev")]
    found = {"onnx", "ml_dtypes", "scipy", "course_lib", "pip", "yaml"} & {one.split(".")[0] for one in [*inner, *files]}
    if found and os.path.basename(folder) in ("site-packages", "dist-packages"):
        print(folder, sorted(found))
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder with packages: `alone`, which requires a part of a namespace, and others."""
    folder = tmp_path / "lib" / "python3" / "site-packages"

    def install(name: str, files: list[str], requires: list[str] = (), *, listed: bool = True, more: str = "") -> None:
        info = folder / f"{name.replace('-', '_')}-1.0.{'dist' if listed else 'egg'}-info"
        for file in (*files, str((info / "__init__.py").relative_to(folder))):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).touch()
        (info / "__init__.py").unlink()
        text = "".join(f"Requires-Dist: {one}\n" for one in requires)
        (info / ("METADATA" if listed else "PKG-INFO")).write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{text}{more}"
        )
        if listed:
            (info / "RECORD").write_text("".join(f"{file},,\n" for file in [*files, f"{info.name}/METADATA", "../../../bin/x"]))

    install("alone", ["alone/__init__.py", "alone/core.so", "alone.libs/libx.so", "alone_script.py"],
            ["many[part]>=1; python_version > '3'", "unwanted; extra == 'test'", "missing"])  # fmt: skip
    install("many", ["many/__init__.py"], ["space-part; extra == 'part'", "unwanted; extra == 'whole'"])
    install("space-part", ["space/part/lib.so"], ["alone"])
    install("space-other", ["space/other/lib.so"])
    install("unwanted", ["unwanted/__init__.py"])
    install("of-debian", ["of_debian/__init__.py", "of_debian.libs/libx.so"], listed=False)
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    permitted_packages.files_of.cache_clear()
    yield folder
    permitted_packages.files_of.cache_clear()


def test_a_package_has_its_files_and_those_of_what_it_requires(site):
    found = {str(path.relative_to(site)) for path in permitted_packages.files_of(("alone",))}
    assert found == {"alone", "alone.libs", "alone_script.py", "alone-1.0.dist-info", "many", "many-1.0.dist-info",
                     "space/part", "space_part-1.0.dist-info"}  # fmt: skip


def test_a_package_that_does_not_list_its_files(site):
    assert metadata.distribution("of-debian").files is None
    found = {path.name for path in permitted_packages.files_of(("of-debian",))}
    assert {"of_debian", "of_debian.libs"} <= found and "unwanted" not in found
    assert permitted_packages.files_of(("not-installed",)) == ()


def test_folders_of_packages_are_found_in_every_layout(tmp_path):
    inside = ("lib/python3.11/site-packages", "lib/python3/dist-packages", "local/lib/python3.11/dist-packages", "envs/other",
              "pkgs/scipy-1/site-packages")  # fmt: skip
    for path in inside:
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "lib64").symlink_to("lib")
    found = {str(path.relative_to(tmp_path)) for path in permitted_packages.folders_with_others(tmp_path)}
    assert found == {*inside[:3], "envs", "pkgs"}


@needs_sandbox
def test_an_environment_inside_another_one_is_shown_and_its_neighbors_are_not(tmp_path, monkeypatch):
    for name in ("mine", "theirs"):
        (tmp_path / "envs" / name).mkdir(parents=True)
        (tmp_path / "envs" / name / "file").touch()
    real = sandbox.own_folders()
    monkeypatch.setattr(sandbox, "own_folders", lambda: [tmp_path, tmp_path / "envs" / "mine", *real])
    command = Sandbox(packages=()).command(["find", str(tmp_path), "-name", "file"])
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.stdout.split() == [str(tmp_path / "envs" / "mine" / "file")], ran.stderr


@needs_sandbox
@pytest.mark.parametrize("course", [True, False])
def test_the_library_of_a_wheel_is_among_hidden_packages(course, tmp_path, monkeypatch):
    library = tmp_path / "lib" / "site-packages" / "course_lib"
    (library / "grading").mkdir(parents=True)
    for path in (library / "file", library / "grading" / "file", library.parent / "file"):
        path.touch()
    real = sandbox.own_folders()
    monkeypatch.setattr(sandbox, "own_folders", lambda: [tmp_path, *real])
    monkeypatch.setattr(sandbox, "_PACKAGE", library)
    command = Sandbox(course=course, packages=("numpy",)).command(["find", str(tmp_path), "-name", "file"])
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ([str(library / "file")] if course else [])


@needs_sandbox
@pytest.mark.parametrize("packages", [("numpy",), ("torch", "numpy")])
def test_only_permitted_packages_are_inside(packages):
    box = Sandbox(course=False, packages=packages)
    code = f"import {', '.join(packages)}\n{SEARCH}"
    ran = subprocess.run(box.command([sys.executable, "-I", "-c", code]), capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stdout + ran.stderr


@needs_sandbox
def test_the_search_finds_the_others_where_they_are_shown():
    command = Sandbox().command([sys.executable, "-I", "-c", SEARCH])
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "'onnx'" in ran.stdout, ran.stderr


@needs_sandbox
def test_nothing_can_be_written_where_others_were():
    site = Path(str(metadata.distribution("numpy").locate_file("")))
    code = f"open({str(site / 'onnx.py')!r}, 'w')"
    command = Sandbox(packages=("numpy",)).command([sys.executable, "-I", "-c", code])
    assert "Read-only file system" in subprocess.run(command, capture_output=True, text=True, timeout=60).stderr


@needs_sandbox
def test_an_installation_whose_numpy_is_not_shown_is_told_before_anything_is_graded(monkeypatch):
    monkeypatch.setattr(sandbox.permitted_packages, "files_of", lambda packages: ())
    said = sandbox.problem.__wrapped__()
    assert said.startswith("numpy cannot be imported inside (ModuleNotFoundError: No module named 'numpy'): install"), said


def test_each_lab_names_packages_that_are_installed():
    for name in labs.names():
        for package in labs.find(name).packages:
            assert permitted_packages.files_of((package,)), (name, package)
