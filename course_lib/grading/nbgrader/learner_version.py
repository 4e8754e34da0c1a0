"""From solutions to labs: nbgrader removes the solutions, and a check detects a stale lab."""

from __future__ import annotations

import filecmp
import shutil
import tempfile
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.labs import Lab


def release(lab: Lab, root: Path) -> Path:
    """Generate ``labs/NAME`` from ``solutions/NAME`` and return it."""
    target = root / "labs" / lab.name
    with tempfile.TemporaryDirectory() as folder:
        made = _generate(lab, root, Path(folder))
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)
    return target


def stale(lab: Lab, root: Path) -> list[str]:
    """Names of the files in which ``labs/NAME`` differs from what its solution generates; empty when it is up to date."""
    with tempfile.TemporaryDirectory() as folder:
        made, kept = _generate(lab, root, Path(folder)), root / "labs" / lab.name
        names = {str(path.relative_to(base)) for base in (made, kept) for path in base.rglob("*") if path.is_file()}
        names = {name for name in names if ".ipynb_checkpoints" not in name and Path(name).name not in lab.artifacts}
        return sorted(filecmp.cmpfiles(made, kept, sorted(names), shallow=False)[1] + _absent(made, kept, names))


def _absent(made: Path, kept: Path, names: set[str]) -> list[str]:
    return [name for name in names if not ((made / name).exists() and (kept / name).exists())]


def _generate(lab: Lab, root: Path, work: Path) -> Path:
    from nbgrader.apps.api import NbGraderAPI
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import Config

    from course_lib.grading.nbgrader.bridge import configure

    source = root / "solutions" / lab.name
    if not source.is_dir():
        raise CourseError(f"{source} does not exist: a lab is generated from its solution")
    shutil.copytree(source, work / "solutions" / lab.name, ignore=shutil.ignore_patterns(*lab.artifacts, ".ipynb_checkpoints"))
    config: Any = Config()
    configure(config, root=work, work=".")
    done = NbGraderAPI(CourseDirectory(config=config), config=config).generate_assignment(lab.name)
    if not done["success"]:
        raise CourseError(f"nbgrader cannot generate {lab.name}: {(done['log'] or done['error'] or '').strip()[-300:]}")
    return work / "labs" / lab.name
