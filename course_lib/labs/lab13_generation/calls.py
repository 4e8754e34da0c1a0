"""Task 2 of lab 13: the service's requests, the recorder of a host's calls, and the file in which they are handed in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from course_lib.errors import EngineError
from course_lib.labs.framework.submission_files import read_json
from course_lib.labs.lab13_generation.network import LENGTH, VOCABULARY

FILE, MAX_BYTES = "calls.json", 64 << 10
STOP = 10  # the newline: an answer ends with the first one
_MOST_CALLS = 4 * LENGTH


@dataclass(frozen=True)
class Asked:
    """A request of the service: a prompt, and the largest number of new bytes."""

    prompt: bytes
    count: int

    @property
    def most(self) -> int:
        """The largest number of new bytes for which no call is beyond the cache. The last one is never fed."""
        return min(self.count, LENGTH - len(self.prompt) + 1)


_LONG = (
    b"The cache of keys and values holds what every later token reads, and a decoder that has one computes only the new token. "
)
SERVICE = (
    Asked(b"A serialized engine and a timing cache can ", 24),
    Asked(b"    PrecisionError: the layers do not have t", 60),
    Asked(2 * _LONG, 40),
    Asked(b"| file or folder | runs ", 1),
)


@dataclass(frozen=True)
class Call:
    """One run of the decoder: the number of tokens in the cache before it, and the new ones."""

    position: int
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Reply:
    """A request as a host served it: its calls in order, and the bytes that it answered with."""

    calls: tuple[Call, ...]
    answer: bytes


class Recorder:
    """A decoder with one cache for all requests, which records the calls that your host makes.

    Args:
        path: your ``decoder.onnx``. ONNX Runtime runs it on the CPU, with the cache bound as input and as output.
    """

    def __init__(self, path: str | Path = "decoder.onnx") -> None:
        import onnx
        import onnxruntime

        from course_lib.models import CachedSession

        onnxruntime.set_default_logger_severity(3)  # errors: a graph that copies its cache would log it in each step

        self._session = CachedSession(onnx.load(path))
        self._calls: list[Call] = []
        self._replies: list[Reply] = []

    @property
    def cache(self) -> dict[str, np.ndarray]:
        """The buffers of the cache by input name. You may write to them: ``cache["past_key_0"][:] = 0``."""
        return self._session.cache

    def step(self, tokens: Sequence[int], position: int) -> np.ndarray:
        """Run the decoder.

        Args:
            tokens: the new tokens, at least one.
            position: number of tokens in the cache, which the new ones follow.

        Returns:
            The scores of the next token, float32 ``(256,)``, which the next call overwrites.
        """
        self._calls.append(Call(int(position), tuple(map(int, tokens))))
        self._session.position[:] = position
        return self._session.step(np.asarray(tokens, np.int64)[None])[0, -1]

    def answer(self, answer: bytes) -> None:
        """End a request: keep its calls with the bytes that your host answers."""
        self._replies.append(Reply(tuple(self._calls), bytes(answer)))
        self._calls = []

    def save(self, path: str | Path = FILE) -> None:
        """Write all requests that were answered."""
        write(self._replies, path)


def write(replies: Sequence[Reply], path: str | Path) -> None:
    """Write a submission's file."""
    rows = [{"calls": [asdict(call) for call in reply.calls], "answer": list(reply.answer)} for reply in replies]
    Path(path).write_text(json.dumps({"requests": rows}), encoding="utf-8")


def read(file: Path) -> list[Reply]:
    """The replies in a submission's file.

    Raises:
        EngineError: the file is missing or not of that form; the message has one line.
    """
    found = read_json(file, MAX_BYTES, "it holds the calls of four requests")
    try:
        assert isinstance(found, dict)
        return [
            Reply(
                tuple(Call(_number(call["position"], 1 << 30), _bytes(call["tokens"])) for call in row["calls"][:_MOST_CALLS]),
                bytes(_bytes(row["answer"])),
            )
            for row in found["requests"][: 2 * len(SERVICE)]
        ]
    except (AssertionError, KeyError, TypeError, ValueError, AttributeError):
        raise EngineError(f"{file.name} is not a record of calls: write it with Recorder.save") from None


def _number(value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError
    return value


def _bytes(values: object) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise TypeError
    return tuple(_number(value, VOCABULARY - 1) for value in values)
