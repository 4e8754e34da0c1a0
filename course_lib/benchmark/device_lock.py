"""One measurement at a time on a device, among all users of a machine: several graders, and learners who check their own files."""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from course_lib._util.files import cache_folder
from course_lib.engines.cuda import driver
from course_lib.errors import CourseError

_T = TypeVar("_T")
_SHARED = (Path("/run/lock"), Path("/tmp"))  # the first one in which every user can write. TMPDIR may differ from user to user.
_EVERYBODY = stat.S_IWOTH | stat.S_ISVTX


def device_name() -> str:
    """The GPUs that this process sees, with ``+`` between them; ``"cpu"`` without a GPU."""
    return "+".join(sorted(driver.uuids())) or "cpu"


def in_turn(take: Callable[[], _T], /, *, device_clock: bool = False) -> _T:
    """The result of `take`, called when no other process of this machine measures on the device."""
    with alone(device_name()):
        return take()


@contextlib.contextmanager
def alone(device: str, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the locks of a device. Every process takes them in the same order, so two processes never wait for each other.

    Args:
        device: see `device_name`.
        waiting: called once if another process measures there.

    Raises:
        CourseError: a lock cannot be opened.
    """
    if os.name == "nt":  # a learner's own machine; such locks do not exist there
        yield
        return
    with contextlib.ExitStack() as held:
        for name in sorted(device.split("+")):
            descriptor = _locked(_folder() / f"tensorrt-course-{platform.node()}-{name}.lock", waiting)
            held.callback(os.close, descriptor)
        yield


def _folder() -> Path:
    """A folder in which every user can write; without one, this user's own."""
    for shared in _SHARED:
        with contextlib.suppress(OSError):
            if shared.stat().st_mode & _EVERYBODY == _EVERYBODY:
                return shared
    folder = cache_folder("locks")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _locked(path: Path, waiting: Callable[[], None]) -> int:
    """A descriptor of the file, which no other process holds; the system frees it when this process ends, however it ends."""
    import fcntl  # not on Windows

    while True:
        descriptor = _opened(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        os.close(descriptor)  # a cleaner of temporary files removed it in the meantime


def _opened(path: Path) -> int:
    """The file opened for reading, which is enough for a lock and which the system allows for another user's file, too."""
    while True:
        try:
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            _create(path)
        except OSError as error:
            raise CourseError(
                f"{path} keeps two measurements apart and cannot be opened ({error.strerror}): remove it, or ask its owner to"
            ) from None


def _create(path: Path) -> None:
    """Make the file at once with permissions for every user, whatever this user's umask is."""
    made = path.with_name(f"{path.name}.{secrets.token_hex(6)}")
    try:
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, 0o444)
        finally:
            os.close(descriptor)
        with contextlib.suppress(FileExistsError):  # another process was faster
            os.link(made, path)
    except OSError as error:
        raise CourseError(f"{path} keeps two measurements apart and cannot be made: {error.strerror}") from None
    finally:
        made.unlink(missing_ok=True)
