"""The learner's bundle: a folder with everything that learners get, and without references, solutions, rubrics and tests."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from course_lib import labs
from course_lib.errors import CourseError
from course_lib.grading.isolation import withheld
from course_lib.grading.nbgrader import learner_version

# What is copied, as patterns below the course's folder. Everything else stays with the instructor.
COPIED = (
    *("LICENSE", "pyproject.toml", "constraints.txt", "nbgrader_config.py", ".gitignore"),
    *("Containerfile", ".containerignore", ".dockerignore", ".devcontainer/*", "binder/*"),
    *("lectures/*.ipynb", "lectures/figures/*.png", "labs/*/*.ipynb", "course_lib/**/*"),
    *("docs/glossary.md", "docs/messages.md", "docs/status.md", "docs/benchmarks.md", "docs/how_benchmarks_are_gamed.md"),
    *("docs/threat_model.md", "docs/api/*.md", "docs/hero.png", "docs/report.png"),
)
_TEMPLATES = "bundle"  # the folder with the learner's Makefile and the section "Start" of the README
_FOR_OTHERS = ("Status", "More")  # sections of the README for instructors and contributors
_LEFT_OUT = re.compile(r"(^|/)(__pycache__|\.ipynb_checkpoints)/|\.(pyc|plan|onnx)$")


def write(root: Path, target: Path) -> int:
    """Write the bundle. Two bundles of the same course have the same bytes.

    Args:
        root: the course's folder, with `solutions/`.
        target: a folder that is empty or does not exist.

    Returns:
        The number of files.

    Raises:
        CourseError: the target is not an empty folder, this course is a bundle itself, or a lab is not what its solution generates.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CourseError(f"{target} is not an empty folder: name another one, or empty it")
    if not (root / "solutions").is_dir():
        raise CourseError(f"{root} has no solutions/: a bundle is written from the instructor's copy of the course")
    for name in labs.names():
        lab = labs.find(name)
        if (root / "solutions" / lab.name).is_dir() and (stale := learner_version.stale(lab, root)):
            raise CourseError(f"labs/{lab.name} is stale ({', '.join(stale)}): run `course release {lab.name}`")
    found = content(root)
    for name, data in found.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        shutil.copymode(_source(root, name), path)
    return len(found)


def content(root: Path) -> Mapping[str, bytes]:
    """Every file of the bundle: its path with slashes, and its bytes."""
    placeholder = withheld.PLACEHOLDER.read_bytes()
    references = {path.relative_to(root).as_posix() for path in withheld.references(root / "course_lib")}
    found = {name: placeholder if name in references else (root / name).read_bytes() for name in _names(root)}
    found["Makefile"] = (root / _TEMPLATES / "Makefile").read_bytes()
    start = (root / _TEMPLATES / "start.md").read_text(encoding="utf-8")
    found["README.md"] = _readme((root / "README.md").read_text(encoding="utf-8"), start).encode()
    return dict(sorted(found.items()))


def _names(root: Path) -> Iterator[str]:
    for pattern in COPIED:
        for path in root.glob(pattern):
            name = path.relative_to(root).as_posix()
            if path.is_file() and not path.is_symlink() and not _LEFT_OUT.search(name):
                yield name


def _source(root: Path, name: str) -> Path:
    """The file whose permissions a file of the bundle has."""
    return root / _TEMPLATES / name if name == "Makefile" else root / name


def _readme(text: str, start: str) -> str:
    """The course's README with another section "Start", and without the sections for instructors and contributors."""
    sections = re.split(r"^(?=## )", text, flags=re.M)
    titles = [section.partition("\n")[0].removeprefix("## ") for section in sections]
    kept = (
        start.rstrip() + "\n\n" if title == "Start" else section
        for title, section in zip(titles, sections, strict=True)
        if title not in _FOR_OTHERS
    )
    return "".join(kept).rstrip() + "\n\nLicense: Apache-2.0.\n"
