"""What lab 10 gives to a learner: the network, streams of scans, the pipeline with this learner's causes, and shares of ranges."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from course_lib.labs.framework import submission
from course_lib.labs.lab10_profiling import given as lab10_given
from course_lib.labs.lab10_profiling.sandboxed.pipeline import START
from course_lib.models import digits, fresh_digits
from course_lib.profiling import Timeline

if TYPE_CHECKING:
    from onnx import ModelProto

_WIDTH = 1280
_RIDGE = 1.0
Stream = Mapping[str, np.ndarray]
SCAN = 64  # pixels along each side
_NETWORK = """
<ir_version: 9, opset_import: ["": 17]>
reader (float[batch, 1, 32, 32] image) => (float[batch, 10] logits) {
  pixels = Flatten(image)
  product0 = MatMul(pixels, w0)
  features0 = Relu(product0)
  product1 = MatMul(features0, w1)
  features1 = Relu(product1)
  logits = MatMul(features1, w2)
}"""
_NOISE = 3  # gray levels that a scanner is off by, at most


def model() -> ModelProto:
    """The network in ONNX, opset 17: ``image`` float32 (n, 1, 32, 32), ink from 0 to 1, to ``logits`` (n, 10).

    Random features with a linear readout that is fitted in closed form: no training, and it reads 99 % of the held-out digits.
    Source: Huang, Zhu, Siew, "Extreme learning machine: theory and applications", Neurocomputing 70 (2006).
    """
    import onnx

    made = onnx.parser.parse_model(_NETWORK)
    for index, matrix in enumerate(_weights()):
        made.graph.initializer.append(onnx.numpy_helper.from_array(matrix, f"w{index}"))
    return made


def _weights() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng, train = np.random.default_rng(7), digits("train")
    inputs = train.images.reshape(len(train), -1)
    first = rng.normal(0, (2 / inputs.shape[1]) ** 0.5, (inputs.shape[1], _WIDTH)).astype(np.float32)
    second = rng.normal(0, (2 / _WIDTH) ** 0.5, (_WIDTH, _WIDTH)).astype(np.float32)
    features = np.maximum(np.maximum(inputs @ first, 0) @ second, 0).astype(np.float64)
    target = 2.0 * np.eye(10)[train.labels] - 1
    readout = np.linalg.solve(features.T @ features + _RIDGE * np.eye(_WIDTH), features.T @ target)
    return first, second, readout.astype(np.float32)


def fresh_stream(sizes: Sequence[int], rng: np.random.Generator) -> Stream:
    """Requests of the given numbers of fresh scans.

    A scan is `SCAN` x `SCAN` gray levels in uint8, 0 is black and 255 is paper, row by row, compressed with zlib.

    Returns:
        ``bytes``, all scans in sequence, uint8; ``lengths``, bytes of each scan; ``sizes``, scans of each request; int64.
    """
    scans = [] if sum(sizes) == 0 else [zlib.compress(scan.tobytes()) for scan in _scans(sum(sizes), rng)]
    return {
        "bytes": np.frombuffer(b"".join(scans), np.uint8),
        "lengths": np.array([len(scan) for scan in scans], np.int64),
        "sizes": np.array(sizes, np.int64),
    }


def _scans(n: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    ink = fresh_digits(n, seed=int(rng.integers(1 << 31))).images[:, 0].repeat(2, axis=1).repeat(2, axis=2)
    gray = 255 * (1 - ink) + rng.integers(-_NOISE, _NOISE + 1, ink.shape)
    yield from gray.clip(0, 255).astype(np.uint8)


def usual_sizes(rng: np.random.Generator, requests: int = 8) -> list[int]:
    """Numbers of scans in the requests of the service: 8 to 32, 20 on average."""
    return [int(n) for n in rng.integers(8, 33, requests)]


RECORDED = tuple(usual_sizes(np.random.default_rng(7), 16))  # scans in the requests of a recording: the same in every one


# Suspects that cost time in some pipelines and not in others: the form in `given.py`, and the other one. Each costs about as much as
# the engine's work for one image at a time, 1.2 to 1.6 ms of a loaded core for each scan.
FORMS: Mapping[str, tuple[str, str]] = {
    "engine": ("engine = self.open_engine()\n", "engine = self.ready\n"),
    "conversion": (
        """message = json.dumps(list(gray.tobytes()))  # the decoder was a service of its own once
                gray = np.frombuffer(bytes(json.loads(message)), np.uint8).reshape(64, 64)
""",
        """message = gray.tobytes()  # the decoder was a service of its own once
                gray = np.frombuffer(message, np.uint8).reshape(64, 64)
""",
    ),
    "pixels": (
        """rows = gray.tolist()
                image = np.zeros((32, 32), np.float32)
                for y in range(0, 64, 2):
                    for x in range(0, 64, 2):
                        paper = (rows[y][x] + rows[y][x + 1] + rows[y + 1][x] + rows[y + 1][x + 1]) / (4 * 255)
                        image[y // 2, x // 2] = min(max(1 - paper, 0), 1)
""",
        """rows = gray.astype(np.uint16)
                paper = rows[::2, ::2] + rows[::2, 1::2] + rows[1::2, ::2] + rows[1::2, 1::2]
                image = (1 - paper / (4 * 255)).astype(np.float32)
""",
    ),
    "logging": ("digit {rows[-1].argmax()}", "digit {rows[-1].argmax()}, pixels {image.tolist()}"),
    "lock": (
        """with self.span("lock"), self.lock:
                self.seen += 1
""",
        """with self.span("lock"):
                for _ in range(64 * 32):  # pairs of pixels
                    with self.lock:
                        self.seen += 1
""",
    ),
    "compression": (
        """gray = np.frombuffer(zlib.decompress(scan), np.uint8).reshape(64, 64)
""",
        """unpack = zlib.decompressobj()
                parts = [unpack.decompress(scan[i : i + 3]) for i in range(0, len(scan), 3)]  # as a network sends them
                gray = np.frombuffer(b"".join(parts), np.uint8).reshape(64, 64)
""",
    ),
}
COSTLY_IN_FILE = frozenset(("engine", "conversion", "pixels"))


def costly(learner: str) -> frozenset[str]:
    """Which suspects of `FORMS` cost time in a learner's pipeline: three of them. One image at a time costs time in each pipeline."""
    return frozenset(submission.rng(learner, "lab10").choice(sorted(FORMS), 3, replace=False).tolist())


def given(learner: str = "") -> str:
    """The text of a learner's given pipeline; without an id, the one in `given.py`."""
    text = Path(lab10_given.__file__).read_text(encoding="utf-8")
    for suspect in sorted(costly(learner) ^ COSTLY_IN_FILE) if learner else ():
        text = text.replace(*FORMS[suspect])
    return text


def serving(timeline: Timeline) -> Timeline:
    """The recording without the pipeline's start, which happens once: from the first request to the last answer."""
    begin = next((event.end_us for event in timeline.events if event.name == START), 0.0)
    served = [event for event in timeline.events if event.start_us >= begin]
    return Timeline(tuple(served), (served[0].start_us, timeline.end_us)) if served else timeline


def shares(timeline: Timeline) -> dict[str, float]:
    """Share of the serving time for each range, without the start. A range inside another range counts in both."""
    served = serving(timeline)
    return {row.name: row.total_us / (served.span_us or 1.0) for row in served.summary() if row.kind == "range"}
