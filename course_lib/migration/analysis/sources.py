"""Split files of old code into Python programs and command lines, and keep the place of each line in the file."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from course_lib._util.plain_text import plain
from course_lib.errors import CourseError
from course_lib.migration.analysis.commands import join_lines

PYTHON = (".py", ".pyw", ".pyi")
NOTEBOOK = (".ipynb",)
SHELL = (".sh", ".bash", ".zsh", ".mk", ".dockerfile", ".yml", ".yaml", ".bat", ".ps1", ".cfg", ".toml")
PROJECT = ("pyproject.toml", "setup.py", "setup.cfg", "pipfile", "environment.yml", "environment.yaml")
UNREAD = {  # what holds code for TensorRT and is not read
    **dict.fromkeys((".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".cu", ".cuh", ".inl"), "C++ and CUDA"),
    **dict.fromkeys((".java", ".kt", ".cs", ".rs", ".go", ".js", ".ts", ".swift", ".m", ".mm"), "another language"),
}
MARKDOWN = (".md", ".rst", ".markdown")
_BY_NAME = ("dockerfile", "makefile", "gnumakefile", "jenkinsfile")
_SKIPPED = ("node_modules", "__pycache__", "site-packages", "build", "dist")
_LARGEST = 20 << 20  # a notebook may hold pictures; source text is never larger

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # how such a text begins
_FENCE = re.compile(r"^\s*(```+|~~~+)\s*\{?\.?([\w+-]*)")
_PYTHON_BLOCKS = ("python", "py", "python3", "ipython")
_MAGIC = re.compile(r"^(\s*)(?:[\w, ]+=\s*)?([!%?].*|.*\?)$")
_ASSIGNED_OR_ASKED = re.compile(r"[\w, ]+=\s*[!%]\w.*|[\w.]+\?\??")
_IN_EXPORTED_NOTEBOOKS = ("!pip", "!trtexec", "!nsys", "!polygraphy", "%%", "%matplotlib", "%pip")
_CELL_MAGIC = re.compile(r"^\s*%%\s*(\w+)")


@dataclass(frozen=True)
class Place:
    """A line in a file: `cell` counts a notebook's cells from 1, and `line` the lines of the cell or file."""

    line: int
    cell: int | None = None


@dataclass(frozen=True)
class Program:
    """Python code without notebook commands, and the origin of each line."""

    text: str
    places: tuple[Place, ...]

    def place(self, line: int) -> Place:
        """The origin of a line, counted from 1."""
        return self.places[min(max(line, 1), len(self.places)) - 1]


@dataclass(frozen=True)
class Source:
    """The content of one file.

    Attributes:
        programs: its Python code: one program, or one for each block of a README.
        commands: its command lines.
        requirements: the commands are lines of a requirements file.
        pins: lines of a project file, which may require a TensorRT version.
        excerpts: the programs are excerpts in a text, which need not be complete.
    """

    programs: tuple[Program, ...] = ()
    commands: tuple[tuple[Place, str], ...] = ()
    requirements: bool = False
    pins: tuple[tuple[Place, str], ...] = ()
    excerpts: bool = False


def find(paths: Sequence[Path], exclude: Sequence[str] = ()) -> list[Path]:
    """The files to read: the named files, and within folders the files whose names indicate code or commands.

    Args:
        exclude: patterns such as ``"third_party"``, ``"*_pb2.py"`` or ``"docs/*.md"``: matching files within a folder are left out.

    Raises:
        CourseError: a path that does not exist.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            inside = ((one, one.relative_to(path)) for one in _files(path, []))
            wanted = (one for one, name in inside if _is_wanted(name) and not _is_excluded(name, exclude))
            found.update(dict.fromkeys(sorted(wanted)))
        elif path.is_file():
            found[path] = None
        else:
            raise CourseError(f"{path}: no such file or folder")
    return list(found)


def not_read(paths: Sequence[Path], exclude: Sequence[str] = ()) -> list[str]:
    """One line for each folder and language: how many files with code are in it that `read` does not understand.

    And one for each folder that cannot be listed.
    """
    lines: list[str] = []
    for folder in (path for path in paths if path.is_dir()):
        names = (one.relative_to(folder) for one in _files(folder, lines))
        suffixes = [name.suffix.lower() for name in names if not _is_hidden(name) and not _is_excluded(name, exclude)]
        languages = Counter(UNREAD[suffix] for suffix in suffixes if suffix in UNREAD)
        lines += [
            f"{folder}: {count} file{'s' * (count > 1)} of {language} not read: only Python, notebooks and command lines are understood"
            for language, count in languages.items()
        ]
    return lines


def _files(folder: Path, failed: list[str]) -> Iterator[Path]:
    """The files below a folder, without recursion, because folders may be nested deeper than Python's stack.

    Hidden folders and links to folders are left out. `failed` gets a line for each folder that cannot be listed.
    """
    waiting = [folder]
    while waiting:
        here = waiting.pop()
        try:
            for entry in os.scandir(here):
                one = here / entry.name
                if entry.is_file(follow_symlinks=False) or (entry.is_symlink() and one.is_file()):
                    yield one
                elif entry.is_dir(follow_symlinks=False) and not _is_hidden(Path(entry.name)):
                    waiting.append(one)
        except OSError as error:
            failed.append(f"{plain(here, 200)}: the folder was not read: {error.strerror}")


def _is_excluded(path: Path, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches the path within the folder, one of the folders above it, or one part of it."""
    names = (path.as_posix(), *(str(one.as_posix()) for one in path.parents), *path.parts)
    return any(fnmatch.fnmatch(name, pattern.rstrip("/")) for pattern in patterns for name in names)


def _is_wanted(path: Path) -> bool:
    if _is_hidden(path):
        return False
    return path.suffix.lower() in (*PYTHON, *NOTEBOOK, *SHELL, *MARKDOWN) or _is_named(path) or _is_requirements(path)


def _is_hidden(path: Path) -> bool:
    return any(part in _SKIPPED or (part.startswith(".") and part not in (".", "..", ".github")) for part in path.parts)


def _is_named(path: Path) -> bool:
    return path.name.lower().startswith(_BY_NAME) or path.name.lower() in PROJECT


def _is_requirements(path: Path) -> bool:
    name = path.name.lower()
    return path.suffix in (".txt", ".in") and ("requirements" in name or name.startswith("constraints"))


def read(path: Path, only_if: Callable[[bytes], bool] | None = None) -> Source:
    """Split a file into programs and commands.

    Args:
        only_if: called with the bytes first. If it returns False, the result is empty.

    Raises:
        CourseError: the file cannot be read, is not text, is in an unsupported language, or has the name of a notebook but is none.
    """
    if (language := UNREAD.get(path.suffix.lower())) is not None:
        raise CourseError(f"{path}: not read: {language} is not understood, only Python, notebooks and command lines are")
    try:
        if path.stat().st_size > _LARGEST:
            raise CourseError(f"{path}: not read: {path.stat().st_size >> 20} MiB is too large for source code")
        data = path.read_bytes()
    except OSError as error:
        raise CourseError(f"{path}: {error.strerror or error}") from None
    if not data.startswith(_UTF_16) and b"\0" in data[:4096]:
        raise CourseError(f"{path}: not a text file")
    if only_if is not None and path.suffix.lower() not in NOTEBOOK and not only_if(data):
        return Source()  # a notebook is taken apart in any case, to say if it is damaged
    return from_text(path, _decoded(data))


def from_text(path: Path, text: str) -> Source:
    """Split the text of a file according to its name. The errors are those of `read`."""
    suffix = path.suffix.lower()
    if suffix in NOTEBOOK:
        return _notebook(path, text)
    pins = _lines(text) if path.name.lower() in PROJECT else ()
    if suffix in PYTHON or (not suffix and text.startswith("#!") and "python" in text.partition("\n")[0]):
        return replace(from_python(text), pins=pins)
    if suffix in MARKDOWN:
        return _markdown(text)
    if _is_requirements(path):
        return Source(commands=_lines(text), requirements=True)
    return Source(commands=tuple((Place(number), line) for number, line in join_lines(text)), pins=pins)


def _lines(text: str) -> tuple[tuple[Place, str], ...]:
    return tuple((Place(number), line) for number, line in enumerate(text.splitlines(), 1))


def from_python(text: str) -> Source:
    """A program, which may hold notebook commands, as exported notebooks do."""
    lines, commands = _without_magics(text, None)
    return Source((Program("\n".join(lines), tuple(Place(number) for number in range(1, len(lines) + 1))),), tuple(commands))


def _decoded(data: bytes) -> str:
    if data.startswith(_UTF_16):
        return data.decode("utf-16", errors="replace")
    return data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", errors="replace")


def _notebook(path: Path, text: str) -> Source:
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CourseError(f"{path}: not a notebook, its JSON is damaged: {error}") from None
    cells = document.get("cells") if isinstance(document, dict) else None
    if cells is None and isinstance(document, dict):  # format 3
        sheets = document.get("worksheets")
        cells = [cell for sheet in sheets for cell in sheet.get("cells", ())] if isinstance(sheets, list) else None
    if not isinstance(cells, list):
        raise CourseError(f"{path}: not a notebook, it has no list of cells")
    program: list[str] = []
    places: list[Place] = []
    commands: list[tuple[Place, str]] = []
    for number, cell in enumerate(cells, 1):
        if not isinstance(cell, dict):
            continue
        source = cell.get("source", cell.get("input", ""))
        content = "".join(map(str, source)) if isinstance(source, list) else str(source)
        if cell.get("cell_type") == "markdown":
            commands += [(Place(place.line, number), line) for place, line in _markdown(content).commands]
        elif cell.get("cell_type") == "code":
            lines, found = _cell(content, number)
            program += lines
            places += [Place(line, number) for line in range(1, len(lines) + 1)]
            commands += found
    return Source((Program("\n".join(program), tuple(places)),), tuple(commands))


def _cell(content: str, number: int) -> tuple[list[str], list[tuple[Place, str]]]:
    magic = _CELL_MAGIC.match(content)
    if magic and magic[1] in ("bash", "sh", "script", "system", "sx"):
        return [], [(Place(line, number), text) for line, text in join_lines(content)]
    if magic and magic[1] == "writefile":
        name, _, body = content.partition("\n")
        if name.rstrip().endswith(PYTHON):
            return _without_magics(f"\n{body}", number)
        return [], [(Place(line, number), text) for line, text in join_lines(f"\n{body}")]
    return _without_magics(content, number)


def _without_magics(text: str, cell: int | None) -> tuple[list[str], list[tuple[Place, str]]]:
    """A cell's lines with its `!commands` and `%magics` replaced by `pass`, and the commands."""
    lines = text.replace("\r\n", "\n").split("\n")
    commands: list[tuple[Place, str]] = []
    continued = False
    for index, line in enumerate(lines):
        found = _MAGIC.match(line)
        is_magic = found is not None and (cell is not None or found[2].startswith(("!", "%")))
        if continued or (is_magic and found and _stands_alone(line, cell)):
            if continued:
                place, begun = commands[-1]
                commands[-1] = (place, f"{begun.rstrip().removesuffix(chr(92))} {line.strip()}")
            elif found:
                commands.append((Place(index + 1, cell), found[2].lstrip("!%")))
            continued = line.rstrip().endswith("\\")
            lines[index] = f"{found[1]}pass" if found and not line.lstrip().startswith("%%") else ""
    return lines, commands


def _stands_alone(line: str, cell: int | None) -> bool:
    """Whether it is a command rather than part of an expression: `%` or `!` begins the line or follows an assignment in a notebook."""
    stripped = line.lstrip()
    if cell is None:
        return stripped.startswith(_IN_EXPORTED_NOTEBOOKS)
    return stripped.startswith(("!", "%")) or _ASSIGNED_OR_ASKED.fullmatch(stripped) is not None


def _markdown(text: str) -> Source:
    """The fenced blocks of a page: Python as programs, the others as command lines; and lines that begin with a prompt."""
    programs: list[list[tuple[Place, str]]] = []
    shell: list[str] = []
    fence, language = "", ""
    for number, line in enumerate(text.split("\n"), 1):
        mark = _FENCE.match(line)
        is_command = False
        if mark and (not fence or (line.strip().startswith(fence) and not mark[2])):
            fence, language = ("", "") if fence else (mark[1], mark[2].lower())
            programs += [[]] if language in _PYTHON_BLOCKS else []
        elif fence and language in _PYTHON_BLOCKS:
            programs[-1].append((Place(number), line))
        else:
            is_command = bool(fence) or line.lstrip().startswith("$ ") or line.startswith(("    ", "\t"))
        shell.append(line if is_command else "")
    commands = tuple((Place(number), line) for number, line in join_lines("\n".join(shell)) if line.strip())
    blocks = tuple(
        Program(textwrap.dedent("\n".join(line for _, line in block)), tuple(place for place, _ in block))
        for block in programs
        if block
    )
    return Source(blocks, commands, excerpts=True)
