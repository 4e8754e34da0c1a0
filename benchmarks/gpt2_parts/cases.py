"""What is measured of the decoder: its shape, the prompts and steps, their inputs, and the candidates.

Every process makes the inputs itself, from the same seeds: with 64 sequences the caches of all blocks are 2.4 GB.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

LENGTH = 1024  # of the cache
POSITION = 512  # of the token that a step adds


@dataclass(frozen=True)
class Shape:
    """Arguments of `torch_steps.gpt2_shape`."""

    depth: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50_257


@dataclass(frozen=True)
class Case:
    """One row's work: `new` tokens of each sequence after `position` of them, in a cache of `length`.

    Attributes:
        new: 1 for a step. More are a prompt, at position 0.
    """

    batch: int
    new: int = 1
    position: int = POSITION
    length: int = LENGTH
    shape: Shape = Shape()

    @property
    def is_step(self) -> bool:
        return self.new == 1

    @property
    def name(self) -> str:
        """In commands and file names."""
        return f"decode-{self.batch}" if self.is_step else f"prefill-{self.batch}x{self.new}"

    def wire(self) -> dict[str, Any]:
        """Plain JSON values, for `from_wire`."""
        return asdict(self)

    @classmethod
    def from_wire(cls, known: dict[str, Any]) -> Case:
        return cls(**{**known, "shape": Shape(**known["shape"])})

    def tokens(self, index: int) -> np.ndarray:
        """The new tokens, int32 ``(batch, new)``; another index gives others."""
        return np.random.default_rng([1, index]).integers(self.shape.vocabulary, size=(self.batch, self.new), dtype=np.int32)

    def cache(self, block: int, kind: str) -> np.ndarray:
        """Keys or values of a block before the step, FP16 ``(batch, heads, length, size)``, zeros from `position` on.

        Keys are large, so that a query attends to few tokens and an error in one of them shows. The keys of sequence i are those of
        sequence 0, moved by i tokens against the values, so that no two sequences have the same answer.
        """
        heads, size = self.shape.heads, self.shape.width // self.shape.heads
        keys = kind == "key"
        one = np.random.default_rng([2, block, keys]).standard_normal((heads, self.position, size), np.float32)
        half = (3 * one if keys else one).astype(np.float16)
        found = np.zeros((self.batch, heads, self.length, size), np.float16)
        for sequence in range(self.batch):
            found[sequence, :, : self.position] = np.roll(half, sequence, axis=1) if keys else half
        return found


CASES = (Case(1), Case(8), Case(64), Case(1, new=128, position=0), Case(1, new=1024, position=0))
_SMALL = Shape(depth=2, width=128, heads=2, vocabulary=101)
SMALL = tuple(  # the same code in seconds on a CPU
    Case(batch, new, position, 16, _SMALL) for batch, new, position in ((1, 1, 5), (2, 1, 5), (1, 8, 0))
)


@dataclass(frozen=True)
class Candidate:
    """One way to run the decoder.

    Attributes:
        name: in the table.
        group: the process that holds it: ``"torch"``, ``"onnxruntime"`` or ``"tensorrt"``.
        variant: of torch, ``"eager"``, ``"compile"``, ``"cuda_graph"`` or ``"compile+cuda_graph"``.
        form: of the graph that the others run, see `onnx_opset17`.
        dtype: of the arithmetic.
    """

    name: str
    group: str
    variant: str = ""
    form: str = ""
    dtype: str = "fp16"

    @property
    def in_place(self) -> bool:
        """Whether a step writes into the cache that the next step reads."""
        return self.group == "torch" or self.form == "plugin"


REFERENCE = Candidate("eager fp32", "torch", "eager", dtype="fp32")  # its answers are right; it is not timed
BASELINE = "eager fp16"
FORMS = ("plugin", "plain")


def candidates(*, gpu: bool) -> list[Candidate]:
    """All of them, the baseline first. Without a GPU there are neither graphs nor compiled kernels nor TensorRT."""
    variants = ("eager", "cuda_graph", "compile", "compile+cuda_graph") if gpu else ("eager",)
    found = [Candidate(f"{variant.replace('_', ' ')} fp16", "torch", variant) for variant in variants]
    found.append(Candidate("onnxruntime fp16", "onnxruntime", form="plain"))
    if gpu:
        found.append(Candidate("TensorRT fp16 + CUDA graph", "tensorrt", form="plain"))
        found.append(Candidate("TensorRT fp16, cache plugin + CUDA graph", "tensorrt", form="plugin"))
    return found
