"""Decoders in processes without learner code, fed and timed from outside."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from course_lib.engines import Worker
from course_lib.engines.worker.environment import HERE
from course_lib.errors import CourseError, EngineError, ExaminerFault
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.lab13_generation.network import CACHE_SHAPE, CACHES, VOCABULARY

_MOST_ANSWERED = 16 << 20  # bytes: the logits of one request, or the cache


class _Host(Worker):
    program: ClassVar[str] = "course_lib.labs.lab13_generation.sandboxed.decoder_host"

    def ask(self, request: dict[str, object], arrays: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        return self._ask(request, arrays)[1]


@dataclass(frozen=True)
class HostedDecoder(AbstractContextManager["HostedDecoder"]):
    """A decoder in its own process.

    Attributes:
        ours: it is the course's own, so that a failure never counts against the submission.
    """

    host: _Host
    ours: bool

    @classmethod
    def start(cls, model: bytes, examiner: Examiner, *, ours: bool = False) -> HostedDecoder:
        """Start the process and load a serialized model in it.

        Raises:
            EngineError: ONNX Runtime rejects the model.
            ExaminerFault: the same, with `ours`.
        """
        launcher = (examiner.for_ours if ours else examiner).launcher
        host = _Host(HERE, launcher=launcher, most_bytes=_MOST_ANSWERED)
        decoder = cls(host, ours)
        try:
            decoder._ask({"do": "load"}, {"model": np.frombuffer(model, np.uint8)})
        except CourseError:
            host.close()
            raise
        return decoder

    def __exit__(self, *_: object) -> None:
        self.host.close()

    def restart(self, position: int = 0) -> None:
        """Continue after the first `position` tokens. The cache keeps what it holds."""
        self._ask({"do": "start", "position": position})

    def feed(self, tokens: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
        """Feed int64 ``(n,)`` in calls of the given sizes, whose sum is n. The logits after each call, float32 ``(calls, 256)``.

        Raises:
            EngineError: the decoder fails, or its logits are not finite.
        """
        logits = self._ask({"do": "feed", "sizes": list(map(int, sizes))}, {"tokens": tokens}).get("logits")
        if logits is None or logits.shape != (len(sizes), VOCABULARY) or logits.dtype != np.float32:
            raise self._fault(EngineError("the decoder's process sent an invalid answer"))
        if not np.isfinite(logits).all():
            raise self._fault(
                EngineError(
                    "the logits are NaN or infinite. A row of scores in which every slot has -inf gives NaN: does each token see itself? "
                    "The grader computes float64 in float32, as TensorRT does."
                )
            )
        return logits

    def time_ms(self, tokens: np.ndarray, sizes: Sequence[int]) -> tuple[float, np.ndarray]:
        """The time of `feed` by this process's clock, in milliseconds, and the logits."""
        started = time.perf_counter()
        logits = self.feed(tokens, sizes)
        return 1e3 * (time.perf_counter() - started), logits

    def cache(self) -> dict[str, np.ndarray]:
        """A copy of the cache, by input name.

        Raises:
            EngineError: the answer is not a cache.
        """
        found = self._ask({"do": "cache"})
        if any(f"past_{name}" not in found or found[f"past_{name}"].shape != CACHE_SHAPE for name in CACHES):
            raise self._fault(EngineError("the decoder's process sent an invalid cache"))
        return found

    def overwrite(self, scale: float, rng: np.random.Generator) -> None:
        """Fill the whole cache with random numbers of this size."""
        self.write({f"past_{name}": rng.normal(0, scale, CACHE_SHAPE).astype(np.float32) for name in CACHES})

    def write(self, cache: Mapping[str, np.ndarray]) -> None:
        """Replace the whole cache, by input name."""
        self._ask({"do": "write"}, cache)

    def _ask(self, request: dict[str, object], arrays: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        try:
            return self.host.ask(request, arrays)
        except CourseError as error:
            raise self._fault(error) from None

    def _fault(self, error: CourseError) -> CourseError:
        if self.ours:
            return ExaminerFault(str(error))
        return error if isinstance(error, EngineError) else EngineError(str(error), code=error.code)
