"""Where the files of a submission are, after people, browsers and learning platforms have renamed, nested or packed them.

Folders are found by `submission_folder`. Inside the copy that is graded, `arrange` moves each file that the lab asks for to its
place, if exactly one file can be meant. What was taken under another name is told, and nothing is guessed in silence.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from course_lib import labs
from course_lib._util.plain_text import plain
from course_lib.grading.batch.intake import is_usual_name, shown

MOST_BYTES, MOST_FILES = 256 << 20, 1_000  # of what an archive holds
_NUMBER = re.compile(r"(?<![a-z0-9])lab[ _-]?0*(\d+)(?!\d)")
# What browsers, file managers and platforms add to a name, in front of its suffix: " (1)", "-2", " - Copy", "_final".
_ADDED = re.compile(r"(?:[ _-]*(?:\(\d+\)|copy|copi[ae]|kopie|final)|[ _-]\d{1,2})+$")
_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz")
_SYSTEM = {"__macosx", "thumbs.db", "desktop.ini", ".ipynb_checkpoints"}


def lab_of(name: str) -> str:
    """The full name of the lab that the name of a file or folder means, "" for none.

    >>> lab_of("Lab 1 (2)"), lab_of("doejane_12345_lab01_first_engine-1.ipynb"), lab_of("notes")
    ('lab01_first_engine', 'lab01_first_engine', '')
    """
    number = _NUMBER.search(name.casefold())
    wanted = f"lab{int(number[1]):02}_" if number else "\0"
    return next((lab for lab in labs.names() if lab.startswith(wanted)), "")


def is_system_file(path: Path) -> bool:
    """Whether an operating system or a program wrote it, not a person."""
    return path.name.casefold() in _SYSTEM or (path.name.startswith(".") and not path.is_dir())


def is_archive(name: str) -> bool:
    """Whether a name is that of a packed folder."""
    return name.casefold().endswith(_ARCHIVES)


def arrange(folder: Path, names: Iterable[str]) -> list[str]:
    """Move the files of a copied submission to where the grader looks for them.

    Returns:
        One line for each file that was taken under another name, and for each that could be several.
    """
    names = tuple(names)
    notes = []
    if any(not (folder / name).is_file() for name in names):
        notes += [line for path in _files(folder) if is_archive(path.name) and (line := _unpacked(path))]
    for name in names:
        if not (folder / name).is_file():
            notes += _taken(folder, name, names)
    return notes


def _taken(folder: Path, name: str, names: tuple[str, ...]) -> list[str]:
    files = [path for path in _files(folder) if path.parent != folder or path.name not in names]
    usual, is_notebook = _usual(name), name.endswith(".ipynb")
    ways: tuple[Callable[[Path], object], ...] = (
        lambda path: path.name == name,
        lambda path: _usual(path.name) == usual,
        # as a learning platform names a file: doejane_12345_67890_model.onnx
        lambda path: re.search(rf"[ _-]{re.escape(usual)}$", _usual(path.name)),
        # a notebook by any name, unless it is another lab's
        lambda path: is_notebook and path.name.casefold().endswith(".ipynb") and lab_of(path.name) in ("", lab_of(name)),
    )
    candidates = next((found for fits in ways if (found := [path for path in files if fits(path)])), [])
    named = ", ".join(shown(path.relative_to(folder).as_posix()) for path in candidates[:4])
    if len({path.read_bytes() for path in candidates}) > 1:
        return [f"{len(candidates)} files could be {name} ({named}), and none was taken: keep one of them"]
    if not candidates:
        return []
    if (folder / name).is_dir():
        shutil.rmtree(folder / name)
    if candidates[0].is_file():
        shutil.move(candidates[0], folder / name)
    return [f"{shown(candidates[0].relative_to(folder).as_posix())} was taken as {name}"]


def _usual(name: str) -> str:
    """A name in small letters, without what browsers, file managers and editors add to it.

    >>> _usual("Model (1).ONNX"), _usual("recipe.toml.txt"), _usual("model - Copy.onnx")
    ('model.onnx', 'recipe.toml', 'model.onnx')
    """
    name = name.casefold()
    stem, dot, suffix = name.rpartition(".")
    if suffix == "txt" and "." in stem:  # added by an editor that hides suffixes
        stem, dot, suffix = stem.rpartition(".")
    return f"{_ADDED.sub('', stem)}{dot}{suffix}" if dot else _ADDED.sub("", name)


def _files(folder: Path) -> list[Path]:
    """Plain files below a folder that a person may have put there, the least deep first."""
    found = []
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not is_system_file(Path(here, name)))
        found += [path for name in sorted(files) if not is_system_file(path := Path(here, name))]
    return sorted(found, key=lambda path: len(path.parts))


def _unpacked(archive: Path) -> str:
    """Unpack the plain files of an archive beside it. Return what is wrong with it, or ""."""
    target, total, count = archive.with_name(f"{archive.name} unpacked"), 0, 0
    try:
        for name, size, content in _members(archive):
            total, count = total + size, count + 1
            if total > MOST_BYTES or count > MOST_FILES:
                return (
                    f"{shown(archive.name)} holds more than {MOST_BYTES >> 20} MiB or {MOST_FILES} files: the rest was left out"
                )
            path = PurePosixPath(name.replace("\\", "/"))
            if path.is_absolute() or ".." in path.parts or not is_usual_name(str(path)):
                continue
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            with content, open(target / path, "wb") as file:
                file.write(content.read(size))
    except Exception as error:  # whatever a damaged or locked archive does to its reader
        return f"{shown(archive.name)} cannot be unpacked ({plain(f'{type(error).__name__}: {error}', 100)})"
    return ""


def _members(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Name, size and content of each plain file in an archive."""
    if archive.name.casefold().endswith(".zip"):
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                if not entry.is_dir():
                    yield entry.filename, entry.file_size, packed.open(entry)
        return
    with tarfile.open(archive) as packed_tar:
        for member in packed_tar:
            if member.isreg() and (content := packed_tar.extractfile(member)):
                yield member.name, member.size, content
