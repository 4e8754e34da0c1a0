"""A decoder in its own process, fed and timed from outside. It runs no learner code, but a learner's graph."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np

from course_lib._util.plain_text import reason
from course_lib.engines import Worker
from course_lib.engines.worker import wire
from course_lib.engines.worker.environment import HERE
from course_lib.errors import CourseError, EngineError
from course_lib.labs.framework.examination import Examiner, fault
from course_lib.labs.lab13_generation.given import CACHE_SHAPE, CACHES, MOST_NEW, VOCABULARY, Decoder

_MOST_ANSWERED = 16 << 20  # bytes: the logits of one conversation, or the cache
_NAN = "the logits are NaN or infinite. A row of scores in which every slot has -inf gives NaN: does each token see itself?"


def calls(position: int, new: int) -> list[int]:
    """Sizes of calls for `new` tokens from a position on, each within a half of the ring."""
    ends = [*range((position // MOST_NEW + 1) * MOST_NEW, position + new, MOST_NEW), position + new]
    return [end - begin for begin, end in zip([position, *ends], ends, strict=False)]


class _Host(Worker):
    program: ClassVar[str] = __name__

    def ask(self, request: dict[str, object], arrays: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        return self._ask(request, arrays)[1]


class HostedDecoder(AbstractContextManager["HostedDecoder"]):
    """A decoder in its own process. A failure of one of the course's own never counts against the submission."""

    def __init__(self, model: bytes, examiner: Examiner, *, ours: bool = False) -> None:
        """Start the process and load a serialized model in it.

        Raises:
            EngineError: ONNX Runtime rejects the model.
            ExaminerFault: the same, with `ours`.
        """
        self.ours = ours
        self.host = _Host(HERE, launcher=(examiner.for_ours if ours else examiner).launcher, most_bytes=_MOST_ANSWERED)
        try:
            self._ask({"do": "load"}, {"model": np.frombuffer(model, np.uint8)})
        except CourseError:
            self.host.close()
            raise

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self.host.close()

    def feed(self, tokens: np.ndarray, sizes: Sequence[int], position: int = 0) -> np.ndarray:
        """The logits after each call, float32 ``(calls, 256)``. The cache keeps what it holds.

        Args:
            tokens: int64 ``(n,)``.
            sizes: of the calls; their sum is n.
            position: of the first token.

        Raises:
            EngineError: the decoder fails, or its logits are not finite.
        """
        request = {"do": "feed", "position": position, "sizes": list(map(int, sizes))}
        logits = self._ask(request, {"tokens": tokens}).get("logits")
        if logits is None or logits.shape != (len(sizes), VOCABULARY) or logits.dtype != np.float32:
            raise fault(EngineError("the decoder's process sent an invalid answer"), ours=self.ours)
        if not np.isfinite(logits).all():
            raise fault(EngineError(_NAN), ours=self.ours)
        return logits

    def timed(self, tokens: np.ndarray, sizes: Sequence[int], position: int) -> tuple[float, np.ndarray]:
        """The time of `feed` by this process's clock, in milliseconds, and the logits."""
        started = time.perf_counter()
        logits = self.feed(tokens, sizes, position)
        return 1e3 * (time.perf_counter() - started), logits

    def cache(self) -> dict[str, np.ndarray]:
        """A copy of the cache, by input name.

        Raises:
            EngineError: the answer is not a cache.
        """
        found = self._ask({"do": "cache"})
        if any(f"past_{name}" not in found or found[f"past_{name}"].shape != CACHE_SHAPE for name in CACHES):
            raise fault(EngineError("the decoder's process sent an invalid cache"), ours=self.ours)
        return found

    def fill(self, scale: float, rng: np.random.Generator) -> None:
        """Fill the whole cache with random numbers of this size."""
        self._ask({"do": "write"}, {f"past_{name}": rng.normal(0, scale, CACHE_SHAPE).astype(np.float32) for name in CACHES})

    def _ask(self, request: dict[str, object], arrays: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        try:
            return self.host.ask(request, arrays)
        except CourseError as error:
            raise fault(error, ours=self.ours) from None


class Recomputing:
    """The decoder without a cache, which reads all tokens again in each call."""

    cache: ClassVar[dict[str, np.ndarray]] = {}

    def __init__(self, model: bytes) -> None:
        from course_lib.engines.backends.onnxruntime.session import open_session

        self._session = open_session(model, "cpu")
        self._tokens: list[int] = []

    def step(self, tokens: Sequence[int], position: int) -> np.ndarray:
        """The scores of the next token."""
        self._tokens = [*self._tokens[:position], *tokens]
        (logits,) = self._session.run(["logits"], {"tokens": np.array([self._tokens])})
        return np.asarray(logits[0, -1])


def opened(model: bytes) -> Decoder | Recomputing:
    """The decoder in a serialized model; one without inputs for a cache computes everything again."""
    import onnx

    inputs = onnx.load_model_from_string(model).graph.input
    return Decoder(model) if any(info.name.startswith("past_") for info in inputs) else Recomputing(model)


def answer(
    decoder: Decoder | Recomputing, request: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """What the process answers: to ``feed`` logits, to ``cache`` a copy, to ``write`` nothing."""
    if request["do"] == "write":
        for name, buffer in decoder.cache.items():
            buffer[:] = arrays[name]
    elif request["do"] == "cache":
        return {name: buffer.copy() for name, buffer in decoder.cache.items()}
    elif request["do"] == "feed":
        ends = np.cumsum(request["sizes"])
        tokens, position = arrays["tokens"].tolist(), request["position"]
        parts = [
            (tokens[end - size : end], position + int(end) - size) for end, size in zip(ends, request["sizes"], strict=True)
        ]
        return {"logits": np.stack([decoder.step(*part).copy() for part in parts])}
    return {}


def serve() -> None:
    """Answer requests on standard input until it closes."""
    reader, writer = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # libraries print on standard output, which carries messages here
    decoder: Decoder | Recomputing | None = None
    for request, arrays in wire.requests(reader):
        try:
            if request["do"] == "load":
                decoder = opened(arrays["model"].tobytes())
                wire.send(writer, {})
            elif decoder is None:
                raise EngineError("the process has no decoder: load one first")
            else:
                wire.send(writer, {}, answer(decoder, request, arrays))
        except Exception as error:  # every failure is an answer; only a crash ends this process
            kind = type(error).__name__ if isinstance(error, CourseError) else "EngineError"
            wire.send(writer, {"error": kind, "message": reason(error), "code": ""})
