"""Work that depends on nothing but known files and packages is done again only when one of them changes.

The digests are kept in ``build/unchanged``; a clean checkout has none, so there, and with ``CI`` set, everything is done.
"""

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable
from functools import cache
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "unchanged"
PACKAGE = ROOT / "course_lib"


def key(*parts: object, files: Iterable[Path] = ()) -> str:
    """SHA-256 of the parts, of the files' names and contents, of this Python and of every installed package's version."""
    digest = hashlib.sha256(repr((parts, sys.version, packages())).encode())
    for path in sorted(set(files)):
        digest.update(f"\0{path.relative_to(ROOT)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def packages() -> tuple[str, ...]:
    return tuple(sorted(f"{one.name}=={one.version}" for one in metadata.distributions()))


def known(name: str) -> bool:
    """Whether `remember` was called with this key, in a checkout that is worked in."""
    return not os.environ.get("CI") and (FOLDER / name).is_file()


def remember(name: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / name).touch()


def made(name: str, make: Callable[[], bytes]) -> bytes:
    """What `make` returns, from a file if it was made before: by another process of this run, or in an earlier one."""
    from filelock import FileLock

    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{name}.bytes"
    with FileLock(f"{path}.lock"):
        if not path.is_file():
            temporary = path.with_suffix(".temporary")
            temporary.write_bytes(make())
            temporary.replace(path)
        return path.read_bytes()


def imported(source: str) -> set[Path]:
    """The library's files that a program may load: every package of which it imports a part, whole, and what those import.

    Whole packages, because many import their modules by name and not before they are used.
    """
    found: set[Path] = set()
    todo = _parts(source)
    while todo:
        part = todo.pop()
        if part not in found:
            found.add(part)
            todo += [other for path in _files(part) if path.suffix == ".py" for other in _parts_of(path)]
    return {path for part in found for path in _files(part)} | {PACKAGE / "__init__.py"}


def _files(part: Path) -> list[Path]:
    """Of a package or of a module of the library's own folder."""
    files = [part] if part.is_file() else part.rglob("*")
    return [path for path in files if path.is_file() and path.suffix != ".pyc"]


@cache
def _parts_of(path: Path) -> tuple[Path, ...]:
    return tuple(_parts(path.read_text(encoding="utf-8")))


def _parts(source: str) -> list[Path]:
    """Packages and modules directly below ``course_lib`` that a text names, in an import or in a string."""
    names = set(re.findall(r"\bcourse_lib\.(\w+)", source))
    for listed in re.findall(r"^ *from course_lib import ([\w ,()\n]+)", source, re.M):
        names |= set(re.findall(r"\w+", listed))
    places = [PACKAGE / name for name in names] + [PACKAGE / f"{name}.py" for name in names]
    return [place for place in places if place.exists()]
