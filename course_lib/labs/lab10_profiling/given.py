"""The pipeline that lab 10 hands out: right, slow, and written by several people."""

import json
import logging
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

log = logging.getLogger("reader")


class Pipeline:
    """Answers streams of requests. `open_engine` loads the engine, `span(name)` names a block of code for the profiler."""

    def __init__(self, open_engine: Callable[[], Any], span: Callable[[str], Any]) -> None:
        self.open_engine = open_engine
        self.span = span
        self.lock = threading.Lock()
        self.seen = 0
        with span("self-test"):
            self.ready = open_engine()
            for _ in range(144):
                self.ready.infer(np.zeros((32, 1, 32, 32), np.float32))

    def run(self, requests: Iterable[list[bytes]]) -> Iterator[np.ndarray]:
        """One array for each request, in order: logits, float32 ``(scans, 10)``."""
        for scans in requests:
            with self.span("request"):
                with self.span("open engine"):
                    engine = self.open_engine()
                rows = []
                for scan in scans:
                    image = self.prepare(scan)
                    with self.span("infer"):
                        rows.append(engine.infer(image[np.newaxis, np.newaxis]))
                    with self.span("log"):
                        log.debug(f"scan {self.seen}: digit {rows[-1].argmax()}")
                with self.span("join"):
                    answer = np.concatenate(rows)
            yield answer

    def prepare(self, scan: bytes) -> np.ndarray:
        """A scan, 64x64 gray levels compressed with zlib, as an image, float32 ``(32, 32)`` in [0, 1]."""
        with self.span("prepare"):
            with self.span("lock"), self.lock:
                self.seen += 1
            with self.span("decode"):
                gray = np.frombuffer(zlib.decompress(scan), np.uint8).reshape(64, 64)
            with self.span("hand over"):
                message = json.dumps(list(gray.tobytes()))  # the decoder was a service of its own once
                gray = np.frombuffer(bytes(json.loads(message)), np.uint8).reshape(64, 64)
            with self.span("normalize"):
                rows = gray.tolist()
                image = np.zeros((32, 32), np.float32)
                for y in range(0, 64, 2):
                    for x in range(0, 64, 2):
                        paper = (rows[y][x] + rows[y][x + 1] + rows[y + 1][x] + rows[y + 1][x + 1]) / (4 * 255)
                        image[y // 2, x // 2] = min(max(1 - paper, 0), 1)
        return image
