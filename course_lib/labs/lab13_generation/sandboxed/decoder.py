"""A decoder in its own process, where it takes an engine's place. It is fed and timed from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from course_lib.engines import LayerTable, Plan, Worker
from course_lib.engines.worker import child
from course_lib.engines.worker.environment import HERE
from course_lib.errors import EngineError
from course_lib.labs.framework.examination import Examiner, TimedWorker, fault
from course_lib.labs.lab13_generation.given import CACHE_SHAPE, CACHES, Decoder

_MOST_ANSWERED = 16 << 20  # bytes: the logits of one conversation, or the cache
_NAN = "the logits are NaN or infinite. A row of scores in which every slot has -inf gives NaN: does each token see itself?"


class Opened:
    """What the process holds: a decoder with its cache."""

    inputs: ClassVar[Sequence[Any]] = ()
    outputs: ClassVar[Sequence[Any]] = ()

    def __init__(self, model: bytes) -> None:
        self._decoder = Decoder(model)

    def infer(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The logits after each call. Without tokens the cache, after `feeds` was written to it."""
        if "tokens" not in feeds:
            for name, values in feeds.items():
                self._decoder.cache[name][:] = values
            return {name: buffer.copy() for name, buffer in self._decoder.cache.items()}
        logits, position = [], int(feeds["position"])
        for part in np.split(feeds["tokens"], np.cumsum(feeds["sizes"])[:-1]):
            logits.append(self._decoder.step(part.tolist(), position).copy())
            position += len(part)
        return {"logits": np.stack(logits)}


def serve() -> None:
    """Entry point of the process."""
    child.serve(lambda request, arrays: Opened(arrays["data"].tobytes()))


class _Process(Worker):
    program: ClassVar[str] = __name__


def hosted(model: bytes, examiner: Examiner, *, ours: bool = False) -> TimedWorker:
    """A process with the decoder of a serialized model."""
    worker = _Process(HERE, launcher=(examiner.for_ours if ours else examiner).launcher, most_bytes=_MOST_ANSWERED)
    return TimedWorker.start(worker, Plan("decoder", "", model, "", {}, (), LayerTable((), {}), 0.0), ours=ours)


def feed(decoder: TimedWorker, tokens: np.ndarray, sizes: Sequence[int], position: int = 0) -> tuple[float, np.ndarray]:
    """The milliseconds of calls of these sizes by this process's clock, and the logits after each, float32 ``(calls, 256)``.

    The cache keeps what it holds.

    Args:
        tokens: int64 ``(n,)``; n is the sum of the sizes.
        position: of the first token.
    """
    elapsed_ms, answer = decoder.timed({"tokens": tokens, "position": np.array(position), "sizes": np.array(sizes)})
    if not np.isfinite(answer["logits"]).all():
        raise fault(EngineError(_NAN), ours=decoder.ours)
    return elapsed_ms, answer["logits"]


def fill(decoder: TimedWorker, scale: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Fill the whole cache with random numbers of this size. Returns the cache by input name."""
    return decoder.infer({f"past_{name}": rng.normal(0, scale, CACHE_SHAPE).astype(np.float32) for name in CACHES})
