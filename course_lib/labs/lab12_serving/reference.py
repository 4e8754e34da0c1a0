"""The reference submission: one file per plan that starts with a digest, and one thread that runs waiting requests together.

`sources` writes these functions and this class as ``store.py`` and ``server.py``, which do not import the course.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import tempfile
import threading
import time
from concurrent.futures import Future
from inspect import getsource
from pathlib import Path
from typing import Any

import numpy as np

CONFIG = """\
name: "scorer"
platform: "tensorrt_plan"
max_batch_size: 16
input [ { name: "features" data_type: TYPE_FP32 dims: [ 256 ] } ]
output [ { name: "scores" data_type: TYPE_FP32 dims: [ 8 ] } ]
instance_group [ { kind: KIND_GPU count: 2 } ]
dynamic_batching { preferred_batch_size: [ 8, 16 ] max_queue_delay_microseconds: 1000 }
version_policy { latest { num_versions: 2 } }
"""
WINDOW_S = 0.001  # a request waits that long at most for others to share its run
_DIGEST_BYTES = 32


def plan_for(model: bytes, recipe: dict[str, Any], cache: Path, engines: Any) -> bytes:
    """The plan for this model, from the cache or built and kept there."""
    file = cache / f"{key(model, recipe, engines)}.plan"
    plan = _read(file)
    if plan is None:
        plan = engines.build(model, recipe)
        with contextlib.suppress(OSError):  # a full disk costs the next start a build, not this one its plan
            _write(file, plan)
    return plan


def key(model: bytes, recipe: dict[str, Any], engines: Any) -> str:
    """Everything that the plan depends on."""
    parts = [hashlib.sha256(model).hexdigest(), recipe, engines.version, engines.device]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _read(file: Path) -> bytes | None:
    try:
        content = file.read_bytes()
    except OSError:
        return None
    digest, plan = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return plan if hashlib.sha256(plan).digest() == digest else None


def _write(file: Path, plan: bytes) -> None:
    """Write the whole file or nothing: write to a temporary name in the same folder, flush, then rename."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as new:
            new.write(hashlib.sha256(plan).digest() + plan)
            new.flush()
            os.fsync(new.fileno())
        os.replace(temporary, file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


class Server:
    """Answers requests from any number of threads with one engine, several requests a run."""

    def __init__(self, model: Path, recipe: dict[str, Any], cache: Path, engines: Any) -> None:
        self._recipe, self._cache, self._engines = recipe, cache, engines
        low, high = (recipe["profiles"][0]["features"][bound] for bound in ("min", "max"))
        self._columns, self._most = low[1], high[0]
        self._engine = self._engine_for(model)
        self._waiting: queue.SimpleQueue[tuple[np.ndarray, Future[np.ndarray]]] = queue.SimpleQueue()
        self._held: tuple[np.ndarray, Future[np.ndarray]] | None = None
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

    def _gather(self) -> list[tuple[np.ndarray, Future[np.ndarray]]]:
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


def sources() -> dict[str, str]:
    """The text of ``store.py`` and ``server.py``."""
    here = Path(__file__).read_text(encoding="utf-8").splitlines()
    imports = [line for line in here if line.startswith(("from ", "import "))]
    store = [*imports, f"_DIGEST_BYTES = {_DIGEST_BYTES}", *(getsource(one) for one in (plan_for, key, _read, _write))]
    server = [*imports, "from store import plan_for", f"WINDOW_S = {WINDOW_S}", getsource(Server)]
    return {"store.py": "\n".join(store), "server.py": "\n".join(server)}


def write(folder: Path) -> None:
    """Write the three files of the reference's submission."""
    for name, text in (sources() | {"config.pbtxt": CONFIG}).items():
        (folder / name).write_text(text, encoding="utf-8")
