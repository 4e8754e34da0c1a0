"""The reference's server: requests wait in a queue, and one thread runs the waiting requests together.

`lab12` submits this file as ``server.py``, together with ``store.py``.
"""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.labs.lab12_serving.reference.store import plan_for

WINDOW_S = 0.001  # a request waits that long at most for others to share its run
_Request = tuple[np.ndarray, "Future[np.ndarray]"]


class Server:
    """Answers requests from any number of threads with one engine, several requests a run."""

    def __init__(self, model: Path, recipe: dict[str, Any], cache: Path, engines: Any) -> None:
        self._recipe, self._cache, self._engines = recipe, cache, engines
        low, high = (recipe["profiles"][0]["features"][bound] for bound in ("min", "max"))
        self._columns, self._most = low[1], high[0]
        self._engine = self._engine_for(model)
        self._waiting: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self._held: _Request | None = None
        threading.Thread(target=self._serve, daemon=True).start()

    def answer(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Scores for 1 to `most` payments; raises ValueError for anything else."""
        done: Future[np.ndarray] = Future()
        self._waiting.put((self._checked(feeds), done))
        return {"scores": done.result()}

    def reload(self, model: Path) -> None:
        """Serve another network from now on. Until it is ready, or if that fails, the old network answers."""
        self._engine = self._engine_for(model)

    def _engine_for(self, model: Path) -> Any:
        return self._engines.load(plan_for(model.read_bytes(), self._recipe, self._cache, self._engines))

    def _checked(self, feeds: dict[str, np.ndarray]) -> np.ndarray:
        if set(feeds) != {"features"}:
            raise ValueError(f"expected one input called features, found {', '.join(sorted(feeds)) or 'none'}")
        rows = feeds["features"]
        if rows.dtype != np.float32 or rows.ndim != 2 or rows.shape[1] != self._columns:
            raise ValueError(f"features must be float32 (n, {self._columns}), found {rows.dtype} {rows.shape}")
        if not 1 <= len(rows) <= self._most:
            raise ValueError(f"a request has 1 to {self._most} rows, found {len(rows)}")
        if not np.isfinite(rows).all():
            raise ValueError("features must be finite, found NaN or infinity")
        return rows

    def _serve(self) -> None:
        while True:
            batch = self._gather()
            try:
                rows = np.concatenate([rows for rows, _ in batch])
                scores = self._engine.infer({"features": rows})["scores"]
                ends = np.cumsum([len(rows) for rows, _ in batch])
                for (_, done), mine in zip(batch, np.split(scores, ends[:-1]), strict=True):
                    done.set_result(mine)
            except Exception as error:
                for _, done in batch:
                    done.set_exception(error)

    def _gather(self) -> list[_Request]:
        """The requests of the next run: at least one, and those that arrive within the window and fit."""
        batch = [self._held or self._waiting.get()]
        self._held, rows, until = None, len(batch[0][0]), time.monotonic() + WINDOW_S
        while rows < self._most:
            try:
                request = self._waiting.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            rows += len(request[0])
            if rows > self._most:
                self._held = request
                break
            batch.append(request)
        return batch
