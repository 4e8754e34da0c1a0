"""Check that every TensorRT name in this course exists in the versions for which the code is meant.

The course's modules take the TensorRT module as a parameter named `trt` and run on all versions; a file that imports ``tensorrt_rtx``
or ``tensorrt`` is meant for that module. A name that only some versions have must be under a condition that distinguishes them,
``hasattr(...)`` or ``"NAME" in trt.Enum.__members__``, or on a line with a comment such as ``# TensorRT 8.6 only``.

``python docs/conformance.py`` prints the names and their versions as a page of the book.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.migration.analysis import python2
from course_lib.migration.analysis.sources import Program, find, read
from course_lib.migration.analysis.uses import Use, collect
from course_lib.migration.rules import torch_trt
from course_lib.migration.scanner import comments_of
from course_lib.migration.tables import known
from course_lib.migration.tables.api_table import ApiTable

EVERY = (*known.RELEASES_IN_ORDER, known.RTX)
ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("course_lib", "lectures", "labs", "solutions")
_VERSIONS = r"(for RTX|\d[\d.]*(?:(?:, | and )\d[\d.]*)*)"
_SAID = re.compile(rf"(not in )?TensorRT {_VERSIONS}(?(1)\b| only\b)")
_IMPORTED = re.compile(r"^\s*(?:import|from)\s+(tensorrt(?:_rtx)?)\b(?!\w)", re.M)
_TORCH_FUNCTIONS = {
    **dict.fromkeys(("torch_tensorrt.compile", "torch_tensorrt.dynamo.compile"), "compile"),
    "torch_tensorrt.save": "save",
    "torch_tensorrt.Input": "Input",
}


@dataclass(frozen=True)
class Row:
    """One name and where the course uses it.

    Attributes:
        name: the name after ``trt.``, with ``(keyword=)`` for a keyword, ``torch_tensorrt.`` in front for one of Torch-TensorRT's.
        versions: versions that have it.
        reached: versions in which at least one use is reached.
        files: paths relative to the course.
    """

    name: str
    versions: tuple[str, ...]
    reached: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class _Place:
    file: str
    line: str
    name: str
    versions: tuple[str, ...]
    reached: tuple[str, ...]


def check(paths: Sequence[Path], root: Path = ROOT) -> tuple[list[Row], list[str]]:
    """The names in files and folders, and the problems, one line each.

    There are three kinds of problem. A name, keyword or assignment is missing in a version in which the place is reached. A
    condition has the same result in every version. A comment says "only" or "not in" of a name that every version has.
    """
    places: list[_Place] = []
    problems: list[str] = []
    for path in find(paths):
        if path.suffix not in (".py", ".ipynb"):
            continue
        source = read(path)
        name = str(path.resolve().relative_to(root)) if path.resolve().is_relative_to(root) else path.name
        for program in source.programs:
            found, wrong = _program(program, name)
            places += found
            problems += wrong
    return _rows(places), problems


def _program(program: Program, file: str) -> tuple[list[_Place], list[str]]:
    parsed = python2.parse(program.text)
    meant, comments = _meant_for(program.text), comments_of(program.text)
    places: list[_Place] = []
    problems: list[str] = []
    for use in collect(parsed.tree, evidence=bool(re.search(r"\btrt\b|tensorrt", program.text))):
        place = program.place(use.line)
        line = f"cell {place.cell}, line {place.line}" if place.cell else str(place.line)
        where = f"{file}:{line}"
        if use.name.startswith("torch_tensorrt"):
            for name, versions, rejection in _torch(use):
                places.append(_Place(file, line, name, versions, versions))
                problems += [f"{where}: {name} {rejection}"] if rejection else []
            continue
        if use.how in ("import", "compare", "with", "len", "index") or use.name.startswith(("torch.", "polygraphy.")):
            continue
        reached, wrong = _reached(use, meant, comments.get(use.line, ""))
        reached = tuple(one for one in reached if all(ApiTable.load(one).has(base) for base in use.derived_from))
        problems += [f"{where}: {use.name}: {text}" for text in wrong]
        for name, versions, lacking in _names(use, reached):
            places.append(_Place(file, line, name, versions, reached))
            problems += [f"{where}: TensorRT {version} has no {name}" for version in lacking]
    return places, problems


def _meant_for(text: str) -> tuple[str, ...]:
    imported = set(_IMPORTED.findall(text))
    if imported == {"tensorrt_rtx"}:
        return (known.RTX,)
    return known.RELEASES_IN_ORDER if imported == {"tensorrt"} else EVERY


def _reached(use: Use, meant: tuple[str, ...], comment: str) -> tuple[tuple[str, ...], list[str]]:
    """The versions in which a use is reached, and the problems of its condition or comment."""
    said = _SAID.search(comment)
    if said:
        wanted = tuple(version for version in meant if _is_named(version, said[2]) != bool(said[1]))
        everywhere = all(ApiTable.load(version).has(use.name) for version in meant)
        return wanted, [f"the comment {said[0]!r} is wrong, every version has it"] if everywhere else []
    if use.condition is None:
        return meant, []
    held = {version: use.condition.holds(ApiTable.load(version)) for version in meant}
    if None in held.values():
        return tuple(version for version in meant if held[version]), [
            "the versions that reach this line cannot be determined: name them in a comment"
        ]
    answers = set(held.values())
    dead = "every version" if answers == {True} else "no version" if answers == {False} else ""
    return tuple(version for version in meant if held[version]), [f"{dead} passes the condition around it"] if dead else []


def _is_named(version: str, said: str) -> bool:
    if said == "for RTX":
        return version == known.RTX
    return any(version == one or version.startswith(f"{one}.") for one in re.split(r", | and ", said))


def _names(use: Use, reached: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...], list[str]]]:
    """A use's name and its keywords, each with the versions that have it and those that are reached and have not."""
    tables = {version: ApiTable.load(version) for version in EVERY}
    have = tuple(version for version in EVERY if tables[version].has(use.name))
    yield use.name, have, [version for version in reached if version not in have]
    if use.how == "write" and any(tables[version].access(use.name) for version in have):
        writable = tuple(version for version in have if "w" in tables[version].access(use.name))
        yield f"{use.name} (assignment)", writable, [v for v in reached if v in have and v not in writable]
    if not isinstance(use.node, ast.Call):
        return
    for keyword in (one.arg for one in use.node.keywords if one.arg):
        taken = {version: _parameters(use.name, tables[version]) for version in have}
        known_by = tuple(version for version in have if keyword in taken[version])
        yield f"{use.name}({keyword}=)", known_by, [v for v in reached if v in have and taken[v] and v not in known_by]


def _parameters(name: str, table: ApiTable) -> set[str]:
    overloads = table.signature(name) or table.signature(f"{name}.__init__")
    return {parameter.name for overload in overloads for parameter in overload.parameters}


def _torch(use: Use) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Each keyword of a Torch-TensorRT call, with the versions that read it and the problems."""
    function = _TORCH_FUNCTIONS.get(use.name)
    if function is None or not isinstance(use.node, ast.Call):
        return
    for keyword in (one.arg for one in use.node.keywords if one.arg):
        tables = {version: torch_trt.keywords(version, function) for version in torch_trt.versions()}
        read = [version for version, (taken, ignored) in tables.items() if keyword in taken - ignored]
        lacking = [version for version in tables if version not in read]
        yield f"{use.name}({keyword}=)", tuple(read), f"is not read by Torch-TensorRT {', '.join(lacking)}" if lacking else ""


def _rows(places: Sequence[_Place]) -> list[Row]:
    order = (*EVERY, *torch_trt.versions())
    rows = []
    for name in sorted({place.name for place in places}, key=lambda name: (name.startswith("torch_"), name)):
        of_name = [place for place in places if place.name == name]
        reached = {version for place in of_name for version in place.reached}
        files = sorted({place.file for place in of_name})
        rows.append(Row(name, of_name[0].versions, tuple(version for version in order if version in reached), tuple(files)))
    return rows


def page(rows: Sequence[Row]) -> str:
    """The names and their versions as Markdown: a table of TensorRT's, a table of Torch-TensorRT's.

    A tick marks a version that has the name. A cross marks a version that does not; no use of the name is reached there.
    """
    torch_rows = [row for row in rows if row.name.startswith("torch_tensorrt")]
    tensorrt_rows = [row for row in rows if row not in torch_rows]
    text = ["# TensorRT names that this course uses, by version", ""]
    text += ["Read from NVIDIA's Python bindings and from the released wheels of Torch-TensorRT; `make test` compares.", ""]
    text += _table(tensorrt_rows, EVERY, "name behind `trt.`")
    text += ["", "## Keywords of Torch-TensorRT", "", *_table(torch_rows, torch_trt.versions(), "keyword")]
    return "\n".join(text) + "\n"


def _table(rows: Sequence[Row], versions: Sequence[str], title: str) -> Iterator[str]:
    yield f"| {title} | {' | '.join(versions)} | used in |"
    yield "|---" * (len(versions) + 2) + "|"
    for row in rows:
        marks = ["✓" if version in row.versions else "✗" for version in versions]
        yield f"| `{row.name}` | {' | '.join(marks)} | {', '.join(row.files)} |"


def course_folders(root: Path = ROOT) -> list[Path]:
    """The folders of the course that hold code for TensorRT. The stand-in takes its place and is compared with its bindings by a test."""
    folders = [root / name for name in FOLDERS if (root / name).is_dir()]
    package = root / "course_lib"
    parts = sorted(path for path in package.glob("*") if path.name != "standin" and (path.is_dir() or path.suffix == ".py"))
    return [part for folder in folders for part in (parts if folder == package else [folder])]


def main() -> int:
    """Print the page; the problems go to stderr, and their number is the exit status."""
    rows, problems = check(course_folders())
    print(page(rows), end="")
    print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
    return min(len(problems), 100)


if __name__ == "__main__":
    sys.exit(main())
