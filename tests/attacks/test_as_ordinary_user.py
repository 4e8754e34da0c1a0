"""The attacks as an ordinary user, who can make no control groups and for whom bubblewrap needs user namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.grading.conftest import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

USER = "12345"  # nobody's, and nobody's in particular
TESTS = ("attacks", "engines")
_NEEDED = ("course_lib", "labs", "solutions", "tests", "pyproject.toml", "nbgrader_config.py")
_ALEMBIC = "#!{python}\nfrom alembic.config import main\nmain()\n"


@pytest.fixture
def home() -> Iterator[Path]:
    """A copy of the course and of its environment that everybody may read, and a folder that the user may write."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user, with setpriv (util-linux)")
    folder = Path(tempfile.mkdtemp(prefix="ordinary-"))
    folder.chmod(0o755)
    try:
        (folder / "course").mkdir()
        _copy_environment(folder / "venv", folder / "course")
        for name in _NEEDED:
            subprocess.run(["cp", "-r", str(ROOT / name), str(folder / "course")], check=True)
        for name in ("own", "course/build"):  # the tests keep exports in the second one
            (folder / name).mkdir()
            os.chown(folder / name, int(USER), int(USER))
        yield folder
    finally:
        subprocess.run(["rm", "-rf", str(folder)], check=True)  # attacks leave folders deeper than shutil can follow


def _copy_environment(target: Path, course: Path) -> None:
    """An environment with the packages of this one, and an interpreter of the same version that everybody may start."""
    same = f"python{sys.version_info.major}.{sys.version_info.minor}"
    found = [path for path in (sys._base_executable, f"/usr/bin/{same}", f"/usr/local/bin/{same}") if _reachable(Path(path))]
    if not found:
        pytest.skip(f"no {same} here that another user may start: {sys._base_executable} lies in a closed folder")
    subprocess.run([found[0], "-m", "venv", "--without-pip", str(target)], check=True)
    packages = target / "lib" / same / "site-packages"
    shutil.rmtree(packages)
    for source, copy in ((Path(pytest.__file__).parent.parent, packages), (Path(sys.prefix, "share"), target / "share")):
        # names of the same files where that is possible: the packages have gigabytes
        if subprocess.run(["cp", "-al", str(source), str(copy)], capture_output=True).returncode:
            subprocess.run(["cp", "-a", str(source), str(copy)], check=True)
    for path in packages.glob("__editable__*"):
        path.unlink()
    (packages / "course.pth").write_text(f"{course}\n")
    program = target / "bin" / "alembic"  # nbgrader starts it by name
    program.write_text(_ALEMBIC.format(python=target / "bin" / "python"))
    program.chmod(0o755)


def _reachable(program: Path) -> bool:
    """Whether a stranger may start it."""
    real = program.resolve()
    return real.is_file() and all(folder.stat().st_mode & 0o001 for folder in (real, *real.parents))


def test_all_attacks_as_an_ordinary_user(home):
    own = {"HOME": str(home / "own"), "TMPDIR": str(home / "own"), "PATH": f"{home}/venv/bin:/usr/local/bin:/usr/bin:/bin"}
    command = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", str(home / "venv/bin/python"), "-m", "pytest"]
    command += ["-p", "no:cacheprovider", "-rs", "-m", "slow or not slow", *(f"tests/attacks/test_{name}.py" for name in TESTS)]
    own["PYTHONDONTWRITEBYTECODE"] = "1"
    ran = subprocess.run(command, cwd=home / "course", env=own, capture_output=True, text=True, timeout=3000)
    last = ran.stdout.strip().splitlines()[-1]
    if "passed" not in last and "skipped" in last:
        pytest.skip(ran.stdout.strip().splitlines()[-2])  # the kernel gives ordinary users no namespaces
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    assert "skipped" not in last, ran.stdout[-2000:]
