"""What learners get, without references, solutions, rubrics and tests: the bundle as a folder, and the files of a wheel.

`setup.py` imports this module where nothing is installed but setuptools.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import course_lib
from course_lib.errors import CourseError
from course_lib.grading.isolation import withheld

# What is copied, as patterns below the course's folder. Everything else stays with the instructor.
COURSE_FILES = (  # also in a wheel
    *("LICENSE", "nbgrader_config.py", "lectures/*.ipynb", "lectures/figures/*", "labs/*/*.ipynb", "docs/api/*.md"),
    *("docs/glossary.md", "docs/messages.md", "docs/status.md", "docs/benchmarks.md", "docs/how_benchmarks_are_gamed.md"),
    *("docs/threat_model.md", "docs/your_model.md", "docs/installing.md", "docs/results.svg"),
)
COPIED = (
    *COURSE_FILES,
    *("course_lib/**/*", "pyproject.toml", "setup.py", "constraints.txt", "docs/*.png"),
    *(".gitignore", "Containerfile", ".containerignore", ".dockerignore", ".devcontainer/*", "binder/*"),
)
IN_WHEEL = "course_files"  # the folder of the library that has them there
_TEMPLATES = "bundle"  # the folder with the learner's Makefile and the section "Start" of the README
_FOR_OTHERS = ("Status", "More")  # sections of the README for instructors and contributors
_LEFT_OUT = re.compile(r"(^|/)(__pycache__|\.ipynb_checkpoints)/|\.(pyc|plan)$|^(?!.*/checkpoints/).*\.onnx$")


def write(root: Path, target: Path) -> int:
    """Write the bundle, and return the number of files. Two bundles of the same course have the same bytes.

    Raises:
        CourseError: the target is not an empty folder, this course is a bundle itself, or a lab is not what its solution generates.
    """
    from course_lib import labs
    from course_lib.grading.nbgrader import learner_version

    require_empty(target)
    if not (root / "solutions").is_dir():
        raise CourseError(f"{root} has no solutions/: a bundle is written from the instructor's copy of the course")
    for name in labs.names():
        lab = labs.find(name)
        if (root / "solutions" / lab.name).is_dir() and (stale := learner_version.stale(lab, root)):
            raise CourseError(f"labs/{lab.name} is stale ({', '.join(stale)}): run `course release {lab.name}`")
    found = content(root)
    write_files(found, target)
    for name in found:
        shutil.copymode(root / _TEMPLATES / name if name == "Makefile" else root / name, target / name)
    return len(found)


def require_empty(target: Path) -> None:
    """Raises CourseError if the target exists and is not an empty folder."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CourseError(f"{target} is not an empty folder: name another one, or empty it")


def write_files(files: Mapping[str, bytes], target: Path) -> None:
    """Write files by their path with slashes below a folder."""
    for name, data in files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def start(target: Path) -> int:
    """Write the lectures and labs of an installed wheel, and return the number of files.

    Raises:
        CourseError: the target is not an empty folder, or this library is not from a wheel.
    """
    library = Path(course_lib.__file__).parent
    if not (library / IN_WHEEL).is_dir():
        raise CourseError(f"the lectures and labs of this course are already in {library.parent}: run `course lab` there")
    require_empty(target)
    # pip compiles every Python file that it installs.
    shutil.copytree(library / IN_WHEEL, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    return sum(path.is_file() for path in target.rglob("*"))


def installed(root: Path) -> Mapping[str, bytes]:
    """The files of a wheel: the library as learners get it, and in it what `course start` copies."""
    library = _files(root, ("course_lib/**/*",))
    return library | {f"course_lib/{IN_WHEEL}/{name}": data for name, data in _files(root, COURSE_FILES).items()}


def content(root: Path) -> Mapping[str, bytes]:
    """Every file of the bundle: its path with slashes, and its bytes."""
    found = _files(root, COPIED)
    found["Makefile"] = (root / _TEMPLATES / "Makefile").read_bytes()
    start = (root / _TEMPLATES / "start.md").read_text(encoding="utf-8")
    found["README.md"] = _readme((root / "README.md").read_text(encoding="utf-8"), start).encode()
    return dict(sorted(found.items()))


def _files(root: Path, patterns: Iterable[str]) -> dict[str, bytes]:
    placeholder = withheld.PLACEHOLDER.read_bytes()
    references = {path.relative_to(root).as_posix() for path in withheld.references(root / "course_lib")}
    return {name: placeholder if name in references else (root / name).read_bytes() for name in _names(root, patterns)}


def _names(root: Path, patterns: Iterable[str]) -> Iterator[str]:
    for pattern in patterns:
        for path in root.glob(pattern):
            name = path.relative_to(root).as_posix()
            if path.is_file() and not path.is_symlink() and not _LEFT_OUT.search(name):
                yield name


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
