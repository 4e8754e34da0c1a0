"""Submissions for lab 10: pipelines that are right in another way, and pipelines with the mistakes that learners make."""

from __future__ import annotations

import inspect
from pathlib import Path

from course_lib.labs.lab10_profiling import reference

REFERENCE = Path(inspect.getfile(reference.Pipeline)).read_text(encoding="utf-8")

THREADS = '''
import queue
import threading
import zlib

import numpy as np


class Pipeline:
    """Prepares the next request, scan by scan, while the engine works on this one."""

    def __init__(self, open_engine, span):
        self.engine = open_engine()

    def run(self, requests):
        ready = queue.Queue(maxsize=4)
        threading.Thread(target=self.fill, args=(requests, ready), daemon=True).start()
        while (images := ready.get()) is not None:
            if isinstance(images, Exception):
                raise images
            yield np.concatenate([self.engine.infer(images[i : i + 32]) for i in range(0, len(images), 32)])

    def fill(self, requests, ready):
        try:
            for scans in requests:
                ready.put(np.stack([self.prepare(scan) for scan in scans]))
            ready.put(None)
        except Exception as error:
            ready.put(error)

    def prepare(self, scan):
        gray = np.frombuffer(zlib.decompress(scan), np.uint8).reshape(64, 64)
        return 1 - gray.reshape(1, 32, 2, 32, 2).mean((2, 4), np.float32) / 255
'''


def changed(text: str, *pairs: tuple[str, str]) -> str:
    """A text with parts of it replaced."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


_YIELD = "yield np.concatenate(rows)"

# By name: the text, the tier of equality, words of the message and words of the hint.
MISTAKES = {
    "the last partial batch is dropped": (
        changed(
            REFERENCE,
            ("range(0, len(images), 32)", "range(0, len(images) - 31, 32)"),
            (_YIELD, "yield np.concatenate([images[:0, 0, 0, :10], *rows])"),
        ),
        "none",
        "its answer 0 rows",
        "last batch",
    ),
    "rows leave in another order": (
        changed(REFERENCE, (_YIELD, "yield np.concatenate(rows)[::-1]")),
        "none",
        "another order",
        "order of the requests",
    ),
    "batches of 33": (
        changed(REFERENCE, ("i + 32]", "i + 33]"), ("len(images), 32)", "len(images), 33)")),
        "none",
        "outside every profile",
        "1 to 32 images",
    ),
    "the whole stream is read ahead": (
        changed(REFERENCE, ("for scans in requests", "for scans in list(requests)")),
        "none",
        "reads ahead too far",
        "before you read the one after the next",
    ),
    "every second pixel in place of the mean": (
        changed(REFERENCE, ("return (np.float32(1) - paper)", "return (np.float32(1) - gray[:, ::2, ::2] / np.float32(255))")),
        "partial",
        "all points need at most 0.1 % of the largest logit",
        "rounds, clips or scales",
    ),
    "sums in eight bits": (changed(REFERENCE, (".astype(np.uint16)", "")), "none", "off by", "scan by scan"),
    "a thread that dies": (
        changed(
            THREADS,
            ("        try:\n            for scans", "        if True:\n            for scans"),
            ("        except Exception as error:\n            ready.put(error)\n", ""),
            ("ready.put(np.stack", "ready.put(1 / 0 or np.stack"),
        ),
        "none",
        "no answer to",
        "A thread that ends with an exception",
    ),
    "nothing is written yet": (
        changed(
            REFERENCE, ("        for scans in requests:", "        raise NotImplementedError\n        for scans in requests:")
        ),
        "none",
        "NotImplementedError",
        "still empty",
    ),
}

# By name: the text, words of the message and words of the hint. None of them has points.
CHEATS = {
    "memorized answers": (
        changed(REFERENCE, (_YIELD, "yield np.eye(10)[[len(s) % 10 for s in scans]]")),
        "off by",
        "scan by scan",
    ),
    "another network": (
        changed(
            REFERENCE, (_YIELD, "yield images.reshape(len(images), -1) @ np.random.default_rng(1).random((1024, 10)) / 500")
        ),
        "off by",
        "scan by scan",
    ),
    "the course's own pipeline": (
        "from course_lib.labs.lab10_profiling.reference import Pipeline",
        "may import numpy",
        "record(source)",
    ),
    "its error has the name of a code of the grader": (
        "class no_reference(Exception): ...\n\nclass Pipeline:\n    def __init__(self, open_engine, span):\n        raise no_reference",
        "no_reference",
        "record(source)",
    ),
}

# Right while equality is examined, then constant.
CONSTANT_LATER = changed(
    REFERENCE, (_YIELD, "self.n = getattr(self, 'n', 0) + 1\n            yield np.concatenate(rows) * (self.n < 2)")
)
