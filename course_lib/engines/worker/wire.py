"""Messages between a process and its worker: a JSON header and raw arrays, never pickle, because either side may be hostile.

A message is ``<u64 length><header>`` and then, for each entry of the header's ``arrays``, its bytes in C order.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from course_lib._util.plain_text import plain
from course_lib.errors import EngineError, WorkerDied

MAX_HEADER = 16 << 20
MAX_ARRAYS = 4 << 30
_DTYPES = frozenset(
    ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
)


def send(
    descriptor: int,
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray] | None = None,
    deadline: float | None = None,
) -> None:
    """Write one message to a file descriptor.

    Args:
        deadline: a time on ``time.monotonic()``, which needs a descriptor that does not block; None waits without a limit.

    Raises:
        EngineError: an array has a dtype that engines do not accept; nothing was written.
        TimeoutError: the other side did not read the whole message before the deadline.
    """
    contiguous = {name: np.asarray(array, order="C") for name, array in (arrays or {}).items()}
    for name, array in contiguous.items():
        if str(array.dtype) not in _DTYPES:
            raise EngineError(f"{name!r} has dtype {array.dtype}, which engines do not accept")
    described = [{"name": n, "dtype": str(a.dtype), "shape": list(a.shape)} for n, a in contiguous.items()]
    encoded = json.dumps({**header, "arrays": described}).encode()
    _write(descriptor, struct.pack("<Q", len(encoded)) + encoded, deadline)
    for array in contiguous.values():
        if array.nbytes:
            _write(descriptor, array.reshape(-1).view(np.uint8).data, deadline)


def receive(
    descriptor: int, deadline: float | None = None, most_bytes: int = MAX_ARRAYS
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read one message: its header and its arrays.

    Args:
        deadline: a time on ``time.monotonic()``; None waits without a limit.
        most_bytes: largest total size of the arrays.

    Raises:
        TimeoutError: no complete message arrived before the deadline.
        EOFError: the other side has closed the connection.
        WorkerDied: the message is malformed or larger than any valid one.
    """
    (length,) = struct.unpack("<Q", _read(descriptor, 8, deadline))
    if length > MAX_HEADER:
        raise WorkerDied(f"a message of {length} bytes was announced, more than any honest worker sends")
    try:
        header = json.loads(_read(descriptor, length, deadline))
        described = [(str(row["name"]), str(row["dtype"]), tuple(int(n) for n in row["shape"])) for row in header.pop("arrays")]
        if not isinstance(header, dict) or any(dtype not in _DTYPES or not _sane(shape) for _, dtype, shape in described):
            raise ValueError("unknown dtype or impossible shape")
        sizes = [int(np.dtype(dtype).itemsize) * math.prod(shape) for _, dtype, shape in described]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise WorkerDied(f"the worker sent an invalid answer ({plain(error, 200)})") from None
    if sum(sizes) > most_bytes:
        raise WorkerDied(f"arrays of {sum(sizes)} bytes were announced, more than any honest worker sends")
    arrays = {}
    for (name, dtype, shape), size in zip(described, sizes, strict=True):
        arrays[name] = np.frombuffer(_read(descriptor, size, deadline), dtype=dtype).reshape(shape)
    return header, arrays


def requests(descriptor: int) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """Messages as they arrive, until the other side closes the connection.

    Raises:
        WorkerDied: a message is malformed or larger than any valid one.
    """
    while True:
        try:
            message = receive(descriptor)
        except EOFError:
            return
        yield message


def _sane(shape: tuple[int, ...]) -> bool:
    """Whether numpy can hold such an array. If the shape contains a zero, the size does not limit its other numbers."""
    return len(shape) <= 32 and all(0 <= n <= MAX_ARRAYS for n in shape) and math.prod(max(n, 1) for n in shape) <= MAX_ARRAYS


def _write(descriptor: int, data: bytes | memoryview, deadline: float | None) -> None:
    view = memoryview(data)
    while view:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([], [descriptor], [], left)[1]:
                raise TimeoutError
        with contextlib.suppress(BlockingIOError):
            view = view[os.write(descriptor, view) :]


def _read(descriptor: int, size: int, deadline: float | None) -> bytearray:
    data = bytearray()
    while len(data) < size:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                raise TimeoutError
        chunk = os.read(descriptor, min(1 << 20, size - len(data)))
        if not chunk:
            raise EOFError
        data += chunk
    return data
