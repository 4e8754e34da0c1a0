"""The process that calls a learner's functions, which may call back: each line of standard input asks for one call.

It is started as text, by `isolation.text_command`, in a sandbox without the course. A callback is a question to the judge, so this
process knows nothing about what the judge keeps, such as a simulated device, but the answers that it asked for.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_lib.labs.framework.sandboxed.learner_code import OnlyPackages, failure, loaded

_PIECE = 1 << 16
_MOST_CONTENT = 4 << 20  # bytes of a file that are read
_MEMORY = "/dev/shm"  # a file system in memory
_NOT_GIVEN = object()  # the value of a parameter that a call leaves out
_DUMPABLE, _CAPABILITIES = 4, 0x20080522  # for prctl(2) and capset(2)


class Keeper:
    """Keeps the learner's files, and never runs the learner's code: what a file holds is read by a process that the code cannot change.

    Args:
        requests, replies: two pipes to the judge.
        parent: where the folder of these files is made; "" for the usual place of temporary files.
    """

    def __init__(self, requests: Any, replies: Any, parent: str) -> None:
        self.requests, self.replies = requests, replies
        self.scratch = tempfile.TemporaryDirectory(dir=parent or None)
        self.folder = Path(self.scratch.name)
        self.to, self.source = requests, replies  # two pipes to the learner's process, once it is there
        self.process = 0  # the learner's
        self.leases: list[int] = []  # files whose opening makes the disk full

    def serve(self) -> None:
        """Answer requests about files, and pass on the others, until there are no more."""
        for line in iter(self.requests.readline, b""):
            request = json.loads(line)
            do = request.get("do")
            if do in ("content", "place", "exists", "fill", "space"):
                self.replies.write(json.dumps({"value": getattr(self, do)(request)}).encode() + b"\n")
            else:
                if do == "load":
                    self.begin(request["disk_bytes"])
                self.to.write(line)
                self.to.flush()
                if not self.pass_on():
                    return
            self.replies.flush()

    def begin(self, disk_bytes: int | None) -> None:
        """Start the learner's process, which has no other way to the judge than through this one."""
        theirs_to, ours_to = os.pipe()
        ours_from, theirs_from = os.pipe()
        self.process = os.fork()
        if self.process:
            os.close(theirs_to)
            os.close(theirs_from)
            self.to, self.source = os.fdopen(ours_to, "wb"), os.fdopen(ours_from, "rb")
            return
        try:
            for ours in (ours_to, ours_from, self.requests.fileno(), self.replies.fileno()):
                os.close(ours)
            ctypes.CDLL(None).prctl(_DUMPABLE, 1, 0, 0, 0)  # its memory is counted by what others see of it
            if disk_bytes is not None:
                limit_files(disk_bytes)
            sys.meta_path.insert(0, OnlyPackages("numpy"))
            Host(self.folder, os.fdopen(theirs_to, "rb"), os.fdopen(theirs_from, "wb")).serve()
        finally:
            os._exit(0)

    def pass_on(self) -> bool:
        """Pass on one line of the learner's process, in pieces: it may be long. False if the process ended before its end."""
        while piece := self.source.readline(_PIECE):
            self.replies.write(piece)
            if piece.endswith(b"\n"):
                return True
        return False

    def content(self, request: dict[str, Any]) -> str | None:
        """A file in base64, None if it is not there."""
        path = self.folder / request["path"]
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return base64.b64encode(file.read(_MOST_CONTENT)).decode()

    def place(self, request: dict[str, Any]) -> None:
        """Write a file."""
        (self.folder / request["path"]).write_bytes(base64.b64decode(request["content"]))

    def fill(self, request: dict[str, Any]) -> None:
        """Once the learner's process opens a file of these requests for writing, no file can grow beyond `bytes`: the disk becomes full."""
        self.leases.append(os.open(self.folder / request["path"], os.O_RDONLY))

        def full(*_: Any) -> None:  # the kernel lets the process wait until the file is closed here
            resource.prlimit(self.process, resource.RLIMIT_FSIZE, (request["bytes"],) * 2)
            while self.leases:
                os.close(self.leases.pop())

        signal.signal(signal.SIGIO, full)
        with contextlib.suppress(OSError):  # a file system without leases, where the disk never becomes full
            fcntl.fcntl(self.leases[-1], fcntl.F_SETLEASE, fcntl.F_RDLCK)

    def space(self, request: dict[str, Any]) -> None:
        """No file can grow beyond `bytes`, None for the limit from the start. The learner's process can change this, too."""
        most = resource.prlimit(self.process, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(self.process, resource.RLIMIT_FSIZE, (most if request["bytes"] is None else request["bytes"], most))

    def exists(self, request: dict[str, Any]) -> bool:
        """Whether a file is there and has content."""
        path = self.folder / request["path"]
        return path.is_file() and path.stat().st_size > 0


def other_file_system() -> str:
    """A folder from which no file can be moved to the usual place of temporary files in one step. "" if there is none."""
    with contextlib.suppress(OSError):
        if os.access(_MEMORY, os.W_OK) and os.stat(_MEMORY).st_dev != os.stat(tempfile.gettempdir()).st_dev:
            return _MEMORY
    return ""


def limit_files(most: int) -> None:
    """No file can grow beyond so many bytes, as on a full disk. Without capabilities, root cannot raise the limit again either."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(_CAPABILITIES, 0), (ctypes.c_uint32 * 6)())


class Host:
    """The learner's module, in its own process."""

    def __init__(self, folder: Path, requests: Any, replies: Any) -> None:
        self.folder, self.requests, self.replies, self.file = folder, requests, replies, ""
        self.module = types.ModuleType("empty")

    def serve(self) -> None:
        """Answer requests until there are no more: load a file, or call a function."""
        for line in iter(self.requests.readline, b""):
            request = json.loads(line)
            try:
                value = getattr(self, request["do"])(request)
                self.send({"value": value})
            except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
                self.send(failure(error, self.file))

    def load(self, request: dict[str, Any]) -> list[str]:
        """Run the learner's file. Returns the names that it defines as functions."""
        self.file = request["file"]
        self.module = loaded(request["source"], self.file)
        return [name for name, value in vars(self.module).items() if callable(value)]

    def call(self, request: dict[str, Any]) -> Any:
        """Call a function."""
        return getattr(self.module, request["function"])(*[self.argument(one) for one in request["arguments"]])

    def argument(self, one: dict[str, Any]) -> Any:
        """A plain value, a path in the folder, or a callback."""
        if "path" in one:
            return self.folder / one["path"]
        return self.callback(one["callback"], one["parameters"]) if "callback" in one else one["value"]

    def callback(self, name: str, parameters: dict[str, bool]) -> Callable[..., Any]:
        """A function whose calls the judge answers. Python itself checks its arguments, so its errors are Python's own.

        Args:
            name: of the judge's function.
            parameters: by name, whether the judge's function has a default value.
        """

        def ask(arguments: dict[str, Any]) -> Any:
            given = {one: value for one, value in arguments.items() if value is not _NOT_GIVEN}
            self.send({"ask": name, "arguments": given})
            answer = json.loads(self.requests.readline())
            if "error" in answer:
                raise RuntimeError(answer["error"])
            return answer["value"]

        made: dict[str, Any] = {"ask": ask, "not_given": _NOT_GIVEN}
        listed = ", ".join(f"{one}=not_given" if optional else one for one, optional in parameters.items())
        exec(f"def {name}({listed}):\n    return ask(locals())", made)
        return made[name]

    def send(self, message: dict[str, Any]) -> None:
        """Write one line. What is not plain JSON raises TypeError before anything is written."""
        line = json.dumps(message, default=_plain)
        self.replies.write(line.encode() + b"\n")
        self.replies.flush()


def _plain(value: Any) -> Any:
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    if hasattr(value, "tolist"):  # of numpy
        return value.tolist()
    raise TypeError(f"expected numbers, texts, lists and dictionaries, found {type(value).__name__}")


def main() -> None:
    """Serve on standard input and output. The learner's own output is discarded, and its input is empty.

    The command may name a folder for the learner's files, which its caller removes. In a sandbox, nothing has to be removed.
    """
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b") as nowhere:
        for stream in (0, 1):
            os.dup2(nowhere.fileno(), stream)
    ctypes.CDLL(None).prctl(_DUMPABLE, 0, 0, 0, 0)  # so that the learner's process cannot look into this one, or use its pipes
    in_sandbox = os.environ.get("USER") == "learner"
    Keeper(requests, replies, sys.argv[1] if sys.argv[1:] else other_file_system() if in_sandbox else "").serve()
