"""The folders that an interpreter needs, so that a sandbox shows only these."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from course_lib._util.files import course_folder
from course_lib.engines.worker.environment import HERE, environments
from course_lib.errors import CourseError

SYSTEM = tuple(map(Path, ("/usr", "/lib", "/lib64", "/bin", "/opt")))  # every sandbox shows these
_FIRST_ORDINARY_USER = 1000
# asked with -s: the interpreter inside has another home folder, and packages of this user are not its own
_ASK = (
    "import json, os, sys\n"
    "libraries = os.environ.get('LD_LIBRARY_PATH', '').split(':')\n"
    "print('\\n' + json.dumps([sys.prefix, sys.base_prefix, *sys.path, *libraries]))"
)


def readable_for_interpreters() -> list[Path]:
    """Folders of this interpreter and of every other environment's, and the programs that start them.

    Raises:
        CourseError: one of them holds a home folder or the course itself.
    """
    found: dict[str, tuple[Path, ...]] = {sys.executable: (Path(sys.prefix), Path(sys.base_prefix))}
    for environment in environments().values():
        if environment != HERE:
            found[" ".join(environment.command)] = _reported(environment.command)
    for command, folders in found.items():
        for folder in _beside_the_system(folders):
            if held := _holds(folder):
                raise CourseError(
                    f"submissions would see {held}: the interpreter {command} needs {folder}. Install it in its own folder"
                )
    return _beside_the_system(folder for folders in found.values() for folder in folders)


@cache
def _reported(command: tuple[str, ...]) -> tuple[Path, ...]:
    """The interpreter's own answer. It is empty if the interpreter does not answer; such an interpreter cannot start a worker."""
    try:
        asked = subprocess.run(
            [*command, "-s", "-c", _ASK], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
        )
        answered = json.loads(asked.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, RecursionError, IndexError):
        return ()
    programs = (Path(word) for word in command if word.startswith("/"))
    return tuple(path for path in (*programs, *map(Path, answered)) if path.is_absolute() and path.exists())


def _holds(folder: Path) -> str:
    """What a folder contains that submissions must not see, or ""."""
    inside = folder.resolve()
    if (course := course_folder()) and course.is_relative_to(inside):
        return "the course's folder with solutions and grades"
    for home in _homes():
        if home.is_relative_to(inside):
            return f"the home folder {home}"
    return ""


def _homes() -> set[Path]:
    import pwd  # not on Windows, where `course doctor` imports this module

    homes = {Path(user.pw_dir) for user in pwd.getpwall() if user.pw_uid == 0 or user.pw_uid >= _FIRST_ORDINARY_USER}
    with contextlib.suppress(RuntimeError):  # a user without one
        homes.add(Path.home())
    return {home.resolve() for home in homes if home.is_dir() and home != Path("/")}


def _beside_the_system(folders: Iterable[Path]) -> list[Path]:
    """Each folder once, without those inside another one or in every sandbox. An interpreter of the system may report "/"."""
    kept: list[Path] = []
    for folder in sorted({*folders} - {Path("/")}, key=lambda path: len(path.parts)):
        if not any(folder.is_relative_to(other) for other in (*kept, *SYSTEM)):
            kept.append(folder)
    return sorted(kept)
