"""The process that calls a learner's functions, which may call back: each line of standard input asks for one call.

It is started as text, by `isolation.text_command`, in a sandbox without the course. A callback is a question to the judge, so this
process knows nothing about what the judge keeps, such as a simulated device, but the answers that it asked for.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_lib.labs.framework.learner_code import OnlyPackages, failure, loaded


class Host:
    """The learner's module, a folder for its files, and the two pipes."""

    def __init__(self, requests: Any, replies: Any) -> None:
        self.requests, self.replies, self.file = requests, replies, ""
        self.module = types.ModuleType("empty")
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = Path(self.scratch.name)

    def serve(self) -> None:
        """Answer requests until there are no more: load a file, call a function, or cut a file to half of its bytes."""
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
        """Call a function. With ``disk_bytes``, no file can grow beyond so many bytes during the call."""
        arguments = [self.argument(one) for one in request["arguments"]]
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        if (most := request["disk_bytes"]) is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
        try:
            return getattr(self.module, request["function"])(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    def cut(self, request: dict[str, Any]) -> None:
        """Cut a file to half of its bytes, as a crash of the machine can."""
        path = self.folder / request["path"]
        os.truncate(path, path.stat().st_size // 2)

    def content(self, request: dict[str, Any]) -> str | None:
        """A file in base64, None if it is not there."""
        path = self.folder / request["path"]
        return base64.b64encode(path.read_bytes()).decode() if path.is_file() else None

    def place(self, request: dict[str, Any]) -> None:
        """Write a file."""
        (self.folder / request["path"]).write_bytes(base64.b64decode(request["content"]))

    def exists(self, request: dict[str, Any]) -> bool:
        """Whether a file is there and has content."""
        path = self.folder / request["path"]
        return path.is_file() and path.stat().st_size > 0

    def argument(self, one: dict[str, Any]) -> Any:
        """A plain value, a path in the folder, or a callback."""
        if "path" in one:
            return self.folder / one["path"]
        return self.callback(one["callback"]) if "callback" in one else one["value"]

    def callback(self, name: str) -> Callable[..., Any]:
        """A function whose calls the judge answers."""

        def ask(*arguments: Any) -> Any:
            self.send({"ask": name, "arguments": arguments})
            answer = json.loads(self.requests.readline())
            if "error" in answer:
                raise RuntimeError(answer["error"])
            return answer["value"]

        return ask

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
    """Serve on standard input and output. The learner's own output is discarded, and its input is empty."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b") as nowhere:
        for stream in (0, 1):
            os.dup2(nowhere.fileno(), stream)
    sys.meta_path.insert(0, OnlyPackages("numpy"))
    Host(requests, replies).serve()
