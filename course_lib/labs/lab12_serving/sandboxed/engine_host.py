"""The process that holds a server's engines: plans and inputs in, outputs out. Learner code does not run in it.

Faults are injected here, so a server cannot switch them off. Each server has its own host. Its engines behave as TensorRT does:
a plan belongs to one version and one device.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Collection
from typing import Any

import numpy as np

_MAGIC = b"PLAN"
DELAY = struct.Struct("<d")  # in a file: seconds that each of the next loads takes longer
_MOST_DELAYED = 3  # loads with one value: a server with many contexts loads a plan many times


def stamped(description: dict[str, Any], data: bytes) -> bytes:
    """A plan in the form that the server receives: a header with version and device, then its bytes."""
    header = json.dumps(description).encode()
    return _MAGIC + struct.pack("<Q", len(header)) + header + data


def row_digest(row: np.ndarray) -> str:
    """SHA-256 of one row of an input, hexadecimal."""
    return hashlib.sha256(row.tobytes()).hexdigest()


class EngineHost:
    """Loads plans for one server and runs their engines.

    Args:
        server: socket to the server's process. Each loaded engine gets another one.
        version, device: what plans must have been built for.
        failing: digests of rows (`row_digest`). Each run with one of them in its inputs fails, so no earlier run can use up a fault.
        delay: descriptor of a file with a `DELAY`, which is read before each load; None if no load is delayed.
    """

    def __init__(
        self, server: socket.socket, version: str, device: str, failing: Collection[str], delay: int | None = None
    ) -> None:
        self._server, self._version, self._device = server, version, device
        self._failing, self._delay = frozenset(failing), delay
        self._delayed: tuple[float, int] = 0.0, 0  # the last value, and the loads that it delayed

    def serve(self) -> None:
        """Load plans until the server's process has ended."""
        from course_lib.engines.worker import wire

        for _, arrays in wire.requests(self._server.fileno()):
            self._wait()
            try:
                engine = self._load(arrays["plan"].tobytes())
            except Exception as error:
                wire.send(self._server.fileno(), {"error": f"the plan cannot be loaded: {error}"[:200]})
                continue
            ours, theirs = socket.socketpair()
            threading.Thread(target=self._run, args=(engine, ours), daemon=True).start()
            wire.send(self._server.fileno(), {})
            with theirs:
                socket.send_fds(self._server, [b"+"], [theirs.fileno()])

    def _wait(self) -> None:
        """Delay a load, if it is one of the first since the value in the file changed."""
        if self._delay is None:
            return
        (seconds,) = DELAY.unpack(os.pread(self._delay, DELAY.size, 0))
        loads = self._delayed[1] + 1 if self._delayed[0] == seconds else 1
        self._delayed = seconds, loads
        if loads <= _MOST_DELAYED:
            time.sleep(seconds)

    def _load(self, plan: bytes) -> Any:
        """The engine of a plan. As with TensorRT, a damaged plan may load without an error."""
        from course_lib.engines import registry
        from course_lib.engines.layers import LayerTable
        from course_lib.engines.plan import Plan

        if plan[:4] != _MAGIC:
            raise ValueError("it does not begin like a plan")
        (length,) = struct.unpack_from("<Q", plan, 4)
        header = json.loads(plan[12 : 12 + length])
        if (header["version"], header["device"]) != (self._version, self._device):
            built = f"{header['version']} on {header['device']}"
            raise ValueError(f"it was built by {built}, this is {self._version} on {self._device}")
        values: dict[str, Any] = {
            key: tuple(value) if key in ("targets", "notes") else value for key, value in header["plan"].items()
        }
        return registry.load(Plan(data=plan[12 + length :], layers=LayerTable((), {}), **values))

    def _run(self, engine: Any, context: socket.socket) -> None:
        """Answer the inputs that arrive for one engine, until the server's end is closed."""
        from course_lib.engines.worker import wire

        with context:
            for _, feeds in wire.requests(context.fileno()):
                header, outputs = self._inferred(engine, feeds)
                wire.send(context.fileno(), header, outputs)

    def _inferred(self, engine: Any, feeds: dict[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        if self._failing and any(row_digest(row) in self._failing for rows in feeds.values() if rows.ndim for row in rows):
            return {"error": "CUDA error 700: an illegal memory access was encountered"}, {}
        try:
            return {}, engine.infer(feeds)
        except Exception as error:
            return {"error": str(error)[:200]}, {}
