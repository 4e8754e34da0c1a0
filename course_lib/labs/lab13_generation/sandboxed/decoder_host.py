"""The process that holds one decoder: it feeds tokens as the judge asks, and gives back logits and the cache. It runs no learner code.

Each request has ``do``: ``load`` a model, ``start`` at a position, ``write`` to the cache, ``feed`` calls, or ``cache``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from course_lib._util.plain_text import reason
from course_lib.engines.worker import wire
from course_lib.errors import CourseError, EngineError
from course_lib.labs.lab13_generation.network import VOCABULARY


class Decoder(Protocol):
    """A decoder that remembers the tokens that it was fed."""

    def start(self, position: int) -> None:
        """Keep only the first `position` tokens."""

    def feed(self, tokens: np.ndarray) -> np.ndarray:
        """Logits ``(256,)`` of the last token of int64 ``(new,)``."""

    def cache(self) -> Mapping[str, np.ndarray]:
        """The buffers of the cache; empty without one."""


class Cached:
    """A graph with a cache that is bound as input and as output, so that a node may write in place."""

    def __init__(self, model: Any) -> None:
        from course_lib.models.gpt_generation import CachedSession

        self._session = CachedSession(model)

    def start(self, position: int) -> None:
        """See `Decoder.start`. The slots after it keep what they hold."""
        self._session.position[:] = position

    def feed(self, tokens: np.ndarray) -> np.ndarray:
        """See `Decoder.feed`."""
        return self._session.step(tokens[None])[0, -1]

    def cache(self) -> Mapping[str, np.ndarray]:
        """See `Decoder.cache`."""
        return self._session.cache


class Recomputing:
    """The decoder without a cache, which reads all tokens again in each call."""

    def __init__(self, model: Any) -> None:
        from course_lib.engines.backends.onnxruntime.session import open_session

        self._session = open_session(model.SerializeToString(), "cpu")
        self._tokens = np.empty(0, np.int64)

    def start(self, position: int) -> None:
        """See `Decoder.start`."""
        self._tokens = self._tokens[:position]

    def feed(self, tokens: np.ndarray) -> np.ndarray:
        """See `Decoder.feed`."""
        self._tokens = np.concatenate([self._tokens, tokens])
        (logits,) = self._session.run(["logits"], {"tokens": self._tokens[None]})
        return np.asarray(logits[0, -1])

    def cache(self) -> Mapping[str, np.ndarray]:
        """See `Decoder.cache`."""
        return {}


def serve() -> None:
    """Answer requests on standard input until it closes."""
    reader, writer = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # libraries print on standard output, which carries messages here
    decoder: Decoder | None = None
    for request, arrays in wire.requests(reader):
        try:
            if request["do"] == "load":
                decoder = opened(arrays["model"].tobytes())
                wire.send(writer, {})
            elif decoder is None:
                raise EngineError("the process has no decoder: load one first")
            else:
                wire.send(writer, {}, _answer(decoder, request, arrays))
        except Exception as error:  # every failure is an answer; only a crash ends this process
            kind = type(error).__name__ if isinstance(error, CourseError) else "EngineError"
            wire.send(writer, {"error": kind, "message": reason(error), "code": ""})


def opened(model: bytes) -> Decoder:
    """The decoder in a serialized model; one without inputs for a cache computes everything again."""
    import onnx
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)  # errors: a graph that copies its cache would log it in each step
    loaded = onnx.load_model_from_string(model)
    return Cached(loaded) if any(info.name.startswith("past_") for info in loaded.graph.input) else Recomputing(loaded)


def _answer(decoder: Decoder, request: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    if request["do"] == "start":
        decoder.start(int(request["position"]))
    elif request["do"] == "write":
        for name, buffer in decoder.cache().items():
            buffer[:] = arrays[name]
    elif request["do"] == "feed":
        return {"logits": _fed(decoder, arrays["tokens"], request["sizes"])}
    elif request["do"] == "cache":
        return {name: buffer.copy() for name, buffer in decoder.cache().items()}
    return {}


def _fed(decoder: Decoder, tokens: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Feed tokens in calls of the given sizes; the logits after each call, ``(calls, 256)``."""
    logits = np.empty((len(sizes), VOCABULARY), np.float32)
    begin = 0
    for call, size in enumerate(sizes):
        logits[call] = decoder.feed(tokens[begin : begin + size])
        begin += size
    return logits
