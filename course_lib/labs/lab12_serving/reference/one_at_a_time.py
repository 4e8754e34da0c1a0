"""The server that the lab starts from: right, with one request at a time. Its speed is the floor."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.labs.lab12_serving.reference.store import plan_for


class Server:
    """Answers requests from any number of threads with one engine, in sequence."""

    def __init__(self, model: Path, recipe: dict[str, Any], cache: Path, engines: Any) -> None:
        self._engine = engines.load(plan_for(model.read_bytes(), recipe, cache, engines))
        self._lock = threading.Lock()

    def answer(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Scores by name, float32 ``(n, SCORES)``, for the features of n payments."""
        with self._lock:
            scores: dict[str, np.ndarray] = self._engine.infer(feeds)
            return scores
