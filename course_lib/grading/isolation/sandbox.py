"""The sandbox: bubblewrap without network and without other users' files, as the user nobody, with limits on what a process may use."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import course_lib
from course_lib._util import system_calls
from course_lib._util.files import course_folder
from course_lib.engines.worker.environment import HERE, environments
from course_lib.errors import CourseError
from course_lib.grading.isolation import supervise, withheld

INSTALL = "apt-get install bubblewrap (Debian, Ubuntu) or dnf install bubblewrap (Fedora)"
NOBODY = "65534"
_PACKAGE = Path(course_lib.__file__).resolve().parent
_DEVICES = Path("/dev")
_GPU_DEVICES = (
    "nvidia[0-9]*",
    "nvidiactl",
    "nvidia-uvm",
    "nvidia-uvm-tools",
)  # all GPUs: the variable below says which is used
_INHERITED = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "COURSE_TACTIC_SOURCES")  # where drivers are, and which device
_GIB = 1 << 30
_DESCRIPTORS = 1024  # that one process may have open
_SETTINGS = tuple(map(Path, ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/fonts")))
_SYSTEM = tuple(map(Path, ("/usr", "/lib", "/lib64", "/bin", "/opt")))  # every sandbox shows these
_FIRST_ORDINARY_USER = 1000
# asked with -s: the interpreter inside has another home folder, and packages of this user are not its own
_ASK = (
    "import json, os, sys\n"
    "libraries = os.environ.get('LD_LIBRARY_PATH', '').split(':')\n"
    "print('\\n' + json.dumps([sys.prefix, sys.base_prefix, *sys.path, *libraries]))"
)


class SandboxMissing(CourseError):
    """There is no working sandbox on this machine, so a learner's submission must not be run."""


@dataclass(frozen=True)
class Sandbox:
    """What a process inside may see and use. Nothing else exists inside.

    Attributes:
        readable: folders shown read-only, at their own paths.
        writable: folders shown writable, at their own paths.
        cpu_seconds: processor time of one process.
        file_bytes: largest file that may be written.
        address_bytes: address space of one process. It is not limited with a GPU, whose driver reserves far more than it uses.
        processes, memory_bytes: limits for all processes inside together. Threads count as processes; see `confinement`.
        disk_bytes, files: limits for the content of `writable` folders; see `confinement`.
        environment: variables set inside. Of the grader's own variables, only those in `_INHERITED` are passed on.
        course: show the library, without the grader and without the labs' references.
    """

    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    cpu_seconds: int = 300
    file_bytes: int = 256 << 20
    address_bytes: int = 12 * _GIB
    processes: int = 512
    memory_bytes: int = 6 * _GIB
    disk_bytes: int = 1 * _GIB
    files: int = 20_000
    environment: dict[str, str] = field(default_factory=dict)
    course: bool = True

    def command(self, argv: Sequence[str]) -> list[str]:
        """The command that runs `argv` inside the sandbox."""
        import resource  # there is none on Windows, where the rest of the course works

        devices = [path for pattern in _GPU_DEVICES for path in sorted(_DEVICES.glob(pattern))]
        limits = ["--core=0", "--nproc=4096", f"--cpu={self.cpu_seconds}", f"--fsize={self.file_bytes}"]
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        limits.append(f"--nofile={_DESCRIPTORS if most == resource.RLIM_INFINITY else min(_DESCRIPTORS, most)}")
        if not devices:
            limits.append(f"--as={self.address_bytes}")
        bubblewrap = ["bwrap", "--unshare-all", "--unshare-user", "--uid", NOBODY, "--gid", NOBODY, "--cap-drop", "ALL"]
        bubblewrap += ["--die-with-parent", "--new-session", "--clearenv"]
        bubblewrap += ["--proc", "/proc", "--dev", "/dev", "--size", str(2 * _GIB), "--tmpfs", "/tmp"]
        bubblewrap += ["--size", str(_GIB), "--tmpfs", "/dev/shm"]  # it would take half of the machine's memory otherwise
        bubblewrap += [*_as_they_are((*_SYSTEM, *_SETTINGS)), *_shown(_readable_for_interpreters())]
        bubblewrap += [*_shown([_PACKAGE]), *_without_answers()] if self.course else _emptied([_PACKAGE])
        bubblewrap += [*_shown(self.readable), *_shown(self.writable, "--bind"), *_shown(devices, "--dev-bind")]
        inside = {"PATH": "/usr/local/cuda/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "USER": "learner"}
        inside |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MPLCONFIGDIR": "/tmp"}
        inside |= {"CUDA_MODULE_LOADING": "LAZY", **self.environment}  # without: every kernel of TensorRT's, at every start
        inside |= {name: os.environ[name] for name in _INHERITED if name in os.environ}
        for name, value in inside.items():
            bubblewrap += ["--setenv", name, value]
        # bubblewrap's own process is in the sandbox as number 1, and its environment can be read there: it gets none of the grader's
        clean = ["env", "-i", f"PATH={os.environ.get('PATH', os.defpath)}"]
        folder = str(self.writable[0]) if self.writable else "/tmp"
        return [*clean, "prlimit", *limits, *bubblewrap, "--chdir", folder, "--", *argv]

    def supervised(self, argv: Sequence[str], *, report: Path, groups: Sequence[Path] = ()) -> list[str]:
        """The command that runs `argv` inside, with limits for all processes together.

        Args:
            report: file for the reason why the sandbox did not start. No sandbox shows it.
            groups: control groups for its processes.
        """
        limits = {
            "groups": [str(group) for group in groups],
            "processes": self.processes,
            "memory_bytes": self.memory_bytes,
            "folders": [str(folder) for folder in self.writable],
            "disk_bytes": self.disk_bytes,
            "files": self.files,
            "filter": system_calls.program().hex(),
            "report": str(report),
        }
        return [sys.executable, "-I", "-S", supervise.__file__, json.dumps(limits), *self.command(argv)]


def require() -> None:
    """Raises SandboxMissing if the sandbox does not work, with the reason and what to install."""
    if reason := problem():
        raise SandboxMissing(f"a learner's submission runs only in the sandbox, and it does not work here: {reason}")


@cache
def problem() -> str:
    """Why the sandbox cannot be used on this machine; empty if it works. Tried, not guessed."""
    if shutil.which("bwrap") is None:
        return f"bwrap is not installed: {INSTALL}"
    try:
        tried = subprocess.run(
            Sandbox().supervised(["/usr/bin/true"], report=Path(os.devnull)), capture_output=True, text=True, timeout=60
        )
    except CourseError as error:  # an interpreter needs a folder that submissions must not see
        return str(error)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not start: {error}"
    if tried.returncode == 0:
        return ""
    reason = (tried.stderr.strip().splitlines() or ["no reason given"])[-1]
    return f"bubblewrap is installed but does not run ({reason}): allow unprivileged user namespaces, or run the grader as root"


def _without_answers() -> list[str]:
    """Arguments that hide the grader, and put a placeholder where a reference is, as in the learner's bundle."""
    references = withheld.references(_PACKAGE)
    hidden = [_PACKAGE / "grading"]
    for compiled in sorted({reference.parent / "__pycache__" for reference in references}):
        with contextlib.suppress(OSError):  # a package that cannot be written to gets no compiled modules later, either
            compiled.mkdir(exist_ok=True)
        if compiled.is_dir():
            hidden.append(compiled)
    placeholders = (("--ro-bind", str(withheld.PLACEHOLDER), str(reference)) for reference in references)
    return _emptied(hidden, (word for words in placeholders for word in words))


def _emptied(paths: Sequence[Path], inside: Iterable[str] = ()) -> list[str]:
    """Arguments that show an empty folder in place of each, with what others show in it. Nothing can be written there."""
    empty, closed = ([word for path in paths for word in (option, str(path))] for option in ("--tmpfs", "--remount-ro"))
    return [*empty, *inside, *closed]


def _shown(paths: Iterable[Path], option: str = "--ro-bind") -> list[str]:
    """Arguments that show files and folders at their own paths, by default read-only."""
    return [word for path in paths for word in (option, str(path), str(path))]


def _as_they_are(paths: Iterable[Path]) -> list[str]:
    """The same for those that exist, and links as links."""
    kinds = ((path, "--symlink" if path.is_symlink() else "--ro-bind") for path in paths if path.exists())
    return [word for path, kind in kinds for word in (kind, str(path.readlink() if kind == "--symlink" else path), str(path))]


def _readable_for_interpreters() -> list[Path]:
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
        if not any(folder.is_relative_to(other) for other in (*kept, *_SYSTEM)):
            kept.append(folder)
    return sorted(kept)
