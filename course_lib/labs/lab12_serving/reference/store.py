"""The reference's store of plans: one file per plan, which begins with a digest. A file that cannot be trusted is built again.

`lab12` submits this file as ``store.py``. It imports only Python's own modules.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

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
