"""The reference of lab 07. The examiner also runs it with causes left in, as yardsticks: `LEFT` names them, a hand-in has none."""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

LEFT: tuple[str, ...] = ()
BATCH = 1 if "batch" in LEFT else 32


class Pipeline:
    def __init__(self, open_engine: Callable[[], Any], span: Callable[[str], Any]) -> None:
        self.open_engine, self.span = open_engine, span
        self.engine = open_engine()

    def run(self, requests: Iterable[list[bytes]]) -> Iterator[np.ndarray]:
        for scans in requests:
            with self.span("request"):
                engine = self.open_engine() if "engine" in LEFT else self.engine
                images = self.prepare(scans)
                with self.span("infer"):
                    rows = [engine.infer(images[i : i + BATCH]) for i in range(0, len(images), BATCH)]
            yield np.concatenate(rows)

    def prepare(self, scans: list[bytes]) -> np.ndarray:
        with self.span("prepare"):
            with self.span("decode"):
                grey = np.frombuffer(b"".join(map(zlib.decompress, scans)), np.uint8).reshape(-1, 64, 64)
            if "conversion" in LEFT:
                messages = [json.dumps(list(one.tobytes())) for one in grey]
                grey = np.stack([np.frombuffer(bytes(json.loads(m)), np.uint8).reshape(64, 64) for m in messages])
            with self.span("normalise"):
                images = np.stack([by_pixel(one) for one in grey]) if "pixels" in LEFT else at_once(grey)
        return images[:, np.newaxis]


def at_once(grey: np.ndarray) -> np.ndarray:
    rows = grey[:, 0::2].astype(np.uint16) + grey[:, 1::2]
    return np.float32(1) - (rows[:, :, 0::2] + rows[:, :, 1::2]) * np.float32(1 / (4 * 255))


def by_pixel(grey: np.ndarray) -> np.ndarray:
    rows = grey.tolist()
    image = np.zeros((32, 32), np.float32)
    for y in range(0, 64, 2):
        for x in range(0, 64, 2):
            paper = (rows[y][x] + rows[y][x + 1] + rows[y + 1][x] + rows[y + 1][x + 1]) / (4 * 255)
            image[y // 2, x // 2] = min(max(1 - paper, 0), 1)
    return image
