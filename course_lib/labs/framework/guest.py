"""A learner's file in its own process, whose functions the judge calls, and whose callbacks the judge answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from inspect import Parameter, signature
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from course_lib._util.files import remove_tree
from course_lib._util.plain_text import plain
from course_lib.engines.worker.parent import Launcher
from course_lib.errors import EngineError
from course_lib.labs.framework.conversation import Conversation
from course_lib.labs.framework.isolation import text_command
from course_lib.labs.framework.sandboxed import call_back, learner_code
from course_lib.labs.framework.submission_files import read_text

MAX_BYTES = 64 << 10  # of a file
TIME_LIMIT_S = 30.0  # of one process; the reference takes about a second
_LONGEST = 200  # characters of a learner's text in a message
_MOST_CALLBACKS = 20_000  # of one call

Callback = Callable[..., Any]


@dataclass(frozen=True)
class PathIn:
    """A path in the folder of the learner's process."""

    name: str


@dataclass(frozen=True)
class Failed:
    """A call that raised.

    Attributes:
        line: the error in a line.
        empty: whether the body is not written yet.
        raised: name of the error's class if it is one of Python's own, otherwise "". The learner's process says so.
    """

    line: str
    empty: bool = False
    raised: str = ""


class Denied(Exception):
    """Raised by a callback: the learner's function gets it as a RuntimeError with these words."""


class Guest:
    """A loaded file. All answers come from a process that may be hostile: callers check their form."""

    def __init__(self, conversation: Conversation, defined: Iterator[Any]) -> None:
        self.conversation = conversation
        self.defined = frozenset(map(str, defined))

    def call(self, function: str, *arguments: Any) -> Any:
        """The result of a call, or `Failed`.

        Args:
            arguments: plain values, `PathIn`, or functions, which are called back. The learner's code may call these with
                keywords, so their parameters have the names that the task's text uses.

        Raises:
            EngineError: the process is late, has ended, or does not keep to the form of a conversation.
        """
        if function not in self.defined:
            return Failed(f"it defines no function {function}")
        callbacks: dict[str, Callback] = {}
        wired = [_wired(one, callbacks) for one in arguments]
        answer = self._ask({"do": "call", "function": function, "arguments": wired})
        for _ in range(_MOST_CALLBACKS):
            if "ask" not in answer:
                return _result(answer)
            answer = self._ask(_answered(callbacks, answer))
        raise EngineError(f"{function} calls back more than {_MOST_CALLBACKS:,} times: which of your loops does not end?")

    def content(self, path: PathIn) -> str | None:
        """A file in base64, None if it is not there."""
        found = _result(self._ask({"do": "content", "path": path.name}))
        return found if isinstance(found, str) else None

    def place(self, path: PathIn, content: str | None) -> None:
        """Write a file that `content` returned."""
        if content is not None:
            self._ask({"do": "place", "path": path.name, "content": content})

    def fill(self, path: PathIn, most: int) -> None:
        """Let the disk become full when the learner's process opens this file for writing: then no file can grow beyond `most` bytes."""
        self._ask({"do": "fill", "path": path.name, "bytes": most})

    def space(self, most: int | None) -> None:
        """From now on, no file can grow beyond `most` bytes; None ends this. It is below the limit of `started`."""
        self._ask({"do": "space", "bytes": most})

    def exists(self, path: PathIn) -> bool:
        """Whether a file is there and has content."""
        return _result(self._ask({"do": "exists", "path": path.name})) is True

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        return self.conversation.ask(message)


@contextmanager
def started(
    source: Path, launcher: Launcher | None, *, files: Mapping[PathIn, str | None] | None = None, disk_bytes: int | None = None
) -> Iterator[Guest]:
    """A learner's file, loaded in a fresh process.

    Its folder is on another file system than temporary files, where the machine has one.

    Args:
        files: what `Guest.content` returned, by paths: they are there before the learner's file runs.
        disk_bytes: no file can grow beyond this size in this process, as on a full disk.

    Raises:
        EngineError: the file is not text, or fails as a whole.
    """
    text = read_text(source, MAX_BYTES)
    command = text_command(learner_code, call_back)
    with ExitStack() as stack:
        if launcher is None:  # without a sandbox, the process is ended before it can remove its files
            parent = mkdtemp(prefix="conversation-", dir=call_back.other_file_system() or None)
            stack.callback(remove_tree, Path(parent))
            command.append(parent)
        conversation = stack.enter_context(Conversation(command, launcher=launcher, time_limit_s=TIME_LIMIT_S))
        for path, content in (files or {}).items():
            if content is not None:
                conversation.ask({"do": "place", "path": path.name, "content": content})
        defined = _result(conversation.ask({"do": "load", "file": source.name, "source": text, "disk_bytes": disk_bytes}))
        if isinstance(defined, Failed):
            raise EngineError(defined.line)
        yield Guest(conversation, iter(defined if isinstance(defined, list) else ()))


def _wired(argument: Any, callbacks: dict[str, Callback]) -> dict[str, Any]:
    if isinstance(argument, PathIn):
        return {"path": argument.name}
    if callable(argument):
        name = getattr(argument, "__name__", "")
        name = name if name.isidentifier() and name not in callbacks else f"callback_{len(callbacks)}"
        callbacks[name] = argument
        parameters = signature(argument).parameters.values()
        return {"callback": name, "parameters": {one.name: one.default is not Parameter.empty for one in parameters}}
    return {"value": argument}


def _answered(callbacks: Mapping[str, Callback], question: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"value": callbacks[question["ask"]](**question["arguments"])}
    except Denied as error:
        return {"error": str(error)}
    except (KeyError, TypeError, ValueError):
        return {"error": "called with other arguments than the task names"}


def _result(answer: Mapping[str, Any]) -> Any:
    if "error" in answer:
        raised = answer.get("raised")
        return Failed(plain(answer["error"], _LONGEST), answer.get("empty") is True, raised if isinstance(raised, str) else "")
    return answer.get("value")
