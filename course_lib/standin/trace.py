"""The trace of a device: what crossed the boundary between host and device, in the order of the calls, as rows of plain values.

``gpu.reset(trace=rows)`` plugs in a device that appends to `rows`. A row begins with its kind; `FIELDS` names what follows. Streams,
events, contexts, engines and page-locked blocks have handles, numbers that are never used twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from course_lib.standin.gpu import Row

FIELDS: Mapping[str, tuple[str, ...]] = {
    # what is taken and given back
    "allocate": ("address", "size"),
    "free": ("address",),
    "pin": ("block", "size"),
    "unpin": ("block",),
    "stream": ("stream",),
    "stream_gone": ("stream",),
    "event": ("event",),
    "event_gone": ("event",),
    "engine": ("engine", "digest"),  # SHA-256 of the plan
    "engine_gone": ("engine",),
    "context": ("context", "engine"),
    "context_gone": ("context",),
    # work for a stream; 0 is the default stream
    "in": ("stream", "address", "size", "block", "offset", "data", "changed"),  # block 0: ordinary memory
    "out": ("stream", "address", "size", "block", "offset"),
    "within": ("stream", "target", "source", "size"),
    "profile": ("stream", "context", "index"),
    "run": ("stream", "context", "profile", "shapes", "reads", "writes"),  # address and bytes by tensor
    "record": ("stream", "event"),
    "wait": ("stream", "event"),
    # the host waits
    "sync_stream": ("stream",),
    "sync_event": ("event",),
    "sync_device": (),
    # a call that failed
    "rejected": ("call", "context", "reason"),
    "lost": ("reason",),
    "after_loss": ("call",),
    # the program asks for its next input; noted by the code that feeds it
    "asked": ("number",),
}
"""The fields of a row by its kind. ``data`` is what was on the host when a copy was enqueued; ``changed`` says that the copy found
other bytes there when it ran."""


def named(row: Row) -> dict[str, Any]:
    """The fields of a row by name, with its kind as ``"kind"``."""
    return {"kind": row[0], **dict(zip(FIELDS[row[0]], row[1:], strict=True))}
