"""Writing files completely or not at all, even if the process is killed."""

from __future__ import annotations

import os
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from course_lib.errors import CourseError


def cache_folder(name: str) -> Path:
    """``$XDG_CACHE_HOME/tensorrt-course/NAME``, or below ``~/.cache`` if that variable is not an absolute path.

    It is not the shared temporary folder, because files from here are loaded and executed.

    Raises:
        CourseError: this user has no home folder.

    Source: XDG Base Directory Specification 0.8.
    """
    return _own_folder("XDG_CACHE_HOME", ".cache", name)


def state_folder(name: str) -> Path:
    """``$XDG_STATE_HOME/tensorrt-course/NAME``, or below ``~/.local/state``: what a user did, which no program can make again."""
    return _own_folder("XDG_STATE_HOME", ".local/state", name)


def _own_folder(variable: str, below_home: str, name: str) -> Path:
    base = Path(os.environ.get(variable, ""))
    try:
        return (base if base.is_absolute() else Path.home() / below_home) / "tensorrt-course" / name
    except RuntimeError:
        raise CourseError(f"this user has no home folder to keep {name} in: set {variable} to a folder") from None


def course_folder() -> Path | None:
    """COURSE_ROOT, or the nearest folder above this one, or above the library, that holds the labs."""
    named = os.environ.get("COURSE_ROOT")
    places = [Path(named)] if named else [Path.cwd(), *Path.cwd().parents, Path(__file__).resolve().parents[2]]
    found = (place for place in places if (place / "labs").is_dir() and (place / "nbgrader_config.py").is_file())
    return next((place.resolve() for place in found), None)


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """A temporary folder that is always removed, whatever another program left in it. Python's own removal fails on deep folders."""
    folder = tempfile.mkdtemp(prefix=prefix)
    try:
        yield Path(folder)
    finally:
        remove_tree(Path(folder))


def remove_tree(folder: Path) -> None:
    """Remove a folder of any depth, with folders in it that may not be written to; do nothing if it does not exist."""
    removal = ["rm", "-rf", "--", str(folder)]
    if subprocess.run(removal, check=False, stderr=subprocess.DEVNULL).returncode and not folder.is_symlink():
        # An ordinary user cannot empty a folder that is locked. `find` follows no link, and unlocks a folder before it looks into it.
        unlock = ["find", str(folder), "-type", "d", "!", "-perm", "-700", "-exec", "chmod", "u+rwx", "{}", ";"]
        subprocess.run(unlock, check=False, stderr=subprocess.DEVNULL)
        subprocess.run(removal, check=False, stderr=subprocess.DEVNULL)


def write_atomically(target: Path, content: bytes | memoryview) -> None:
    """Write `target` completely. After an error, the old content is unchanged, and no other file is left.

    `tempfile` is not used, because only the owner can read its files, and a renamed file keeps these permissions.
    """
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
