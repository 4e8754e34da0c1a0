"""The reference of lab 10: all four causes fixed, in one thread."""

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np


class Pipeline:
    """Answers streams of requests. `open_engine` loads the engine, `span(name)` names a block of code for the profiler."""

    def __init__(self, open_engine: Callable[[], Any], span: Callable[[str], Any]) -> None:
        self.engine, self.span = open_engine(), span

    def run(self, requests: Iterable[list[bytes]]) -> Iterator[np.ndarray]:
        """One array for each request, in order: logits, float32 ``(scans, 10)``."""
        for scans in requests:
            with self.span("request"):
                images = self.prepare(scans)
                with self.span("infer"):
                    rows = [self.engine.infer(images[i : i + 32]) for i in range(0, len(images), 32)]
            yield np.concatenate(rows)

    def prepare(self, scans: list[bytes]) -> np.ndarray:
        """The scans of a request, each compressed with zlib, as images, float32 ``(n, 1, 32, 32)`` in [0, 1]."""
        with self.span("prepare"):
            with self.span("decode"):
                gray = np.frombuffer(b"".join(map(zlib.decompress, scans)), np.uint8).reshape(-1, 64, 64)
            with self.span("normalize"):
                rows = gray[:, 0::2].astype(np.uint16) + gray[:, 1::2]
                paper = (rows[:, :, 0::2] + rows[:, :, 1::2]) * np.float32(1 / (4 * 255))
        return (np.float32(1) - paper)[:, np.newaxis]
