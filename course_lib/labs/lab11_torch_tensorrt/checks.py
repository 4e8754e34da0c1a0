"""What is looked at in each task of lab 11: criteria with a hint each, cheapest first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from course_lib._util.plain_text import plain
from course_lib.engines.backends.torch_tensorrt.blocks import Blocks
from course_lib.exercises.exercise import Case
from course_lib.labs.framework import learner_code
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, equals
from course_lib.labs.framework.runner import Failed, case_criterion
from course_lib.labs.lab11_torch_tensorrt.sandboxed.compile_files import OPERATOR

# Relative to the largest logit. FP16 in the reference: at most 0.024 in 300 draws. The upper median: at least 0.097 in 60.
SAME = 0.04
FEW = 3  # blocks, for half of the points
PLAN_BYTES = 3_000_000  # FP16 takes 2.8 MB, FP32 takes 3.5 MB
WIDEST = 32  # batch size that a range may reach
_PRODUCTS = {(32, 192), (192, 192), (192, 576), (192, 384)}  # shapes of the given module's weights, the head's left out
_LONGEST = 300  # characters of a learner's text in a message
_COMPARE = "Convert this median in the notebook's cell before the check, and compare it with PyTorch's."


def median(x: np.ndarray, dim: int, keepdim: bool, output: int) -> Case:
    """A median that the converter is asked for, with the results of usual mistakes.

    Args:
        output: 0 for the values, 1 for the indices.
    """
    import torch

    tensor, size = torch.from_numpy(x), x.shape[dim]
    expected, other = (tensor.median(dim, keep)[output].numpy() for keep in (keepdim, not keepdim))
    ordered = np.sort(x, axis=dim)
    places = {
        "found the upper of the two middle values": size // 2,
        "found the smallest value: which of TopK's elements is the last one?": 0,
        "found the largest value: in which order does TopK sort?": size - 1,
        "found the value before the middle one: which k belongs to an odd size?": size // 2 - 1,
    }
    values = {words: np.take(ordered, [place], dim).reshape(expected.shape) for words, place in places.items()}
    mistakes = {
        f"found the shape {other.shape}: what does keepdim say?": other,
        "found several elements. How many does TopK return?": np.take(ordered, range((size + 1) // 2), dim),
        **({"found the values and not the indices": tensor.median(dim, keepdim)[0].numpy()} if output else values),
    }
    words = f"{'indices' if output else 'values'} of x.median(dim={dim}, keepdim={keepdim}) with x of shape {x.shape}"
    return Case((x, dim, keepdim, output), expected, mistakes, words, tolerance=1e-5)


def cases(rng: np.random.Generator) -> list[Case]:
    """Secret medians: odd and even sizes, each axis from both ends, with and without the axis."""
    several = []
    for dim, keepdim, output in (
        (1, True, 0), (1, False, 0), (0, True, 0), (-1, False, 0), (-2, True, 0), (2, False, 0), (1, True, 1), (-1, False, 1)
    ):  # fmt: skip
        shape = tuple(int(size) for size in rng.permutation([4, 7, 10]) + rng.integers(0, 3) * 2)
        several.append(median(rng.standard_normal(shape).astype(np.float32), dim, keepdim, output))
    return several


def question(asked: Sequence[Case]) -> dict[str, Any]:
    """What the process is asked about a converter."""
    return {"converter": learner_code.plain_values([case.arguments for case in asked])}


@dataclass(frozen=True)
class Found:
    """What the process of the learner's files sent.

    Attributes:
        registered: operators that the files convert.
        empty: whether a body is not written yet.
        failed: the line of an error of the file as a whole, or of the module; "" if there is none.
        medians: one answer for each case.
        places: where a median runs, by ``"dynamic"`` and ``"long"``: the blocks, or the line of an error.
        blocks, logits, types: of the module; None and nothing if it failed.
        border: how the given module ends with the settings.
    """

    registered: tuple[str, ...]
    empty: bool = False
    failed: str = ""
    medians: tuple[np.ndarray | Failed, ...] = ()
    places: Mapping[str, Blocks | str] = field(default_factory=dict)
    blocks: Blocks | None = None
    logits: tuple[np.ndarray, ...] = ()
    types: frozenset[str] = frozenset()
    border: str = ""


def read(values: Mapping[str, Any], file: str) -> Found:
    """The answer of a process that may be hostile. Any error means that it has another form.

    Args:
        file: whose failure counts.
    """
    failures = [values.get(f"failed {file}") or {}, values.get("model") or {}]
    failed: Mapping[str, Any] = next((one for one in failures if _failure(one)), {})
    made = values.get("model") if not failed else None
    medians = values.get("converter", [])
    return Found(
        tuple(plain(name, 80) for name in values["registered"]),
        any(one.get("empty") is True for one in (failed, *medians)),
        _failure(failed),
        tuple(Failed(_failure(one)) if _failure(one) else learner_code.decoded(one) for one in medians),
        {name: _failure(values[name]) or Blocks.from_json(values[name]) for name in ("dynamic", "long") if name in values},
        Blocks.from_json(made["blocks"]) if made else None,
        tuple(learner_code.decoded(one) for one in made["answers"]) if made else (),
        frozenset(plain(one["type"], 20) for one in made["answers"]) if made else frozenset(),
        _failure(values.get("border")) or plain(values.get("border", ""), _LONGEST),
    )


def _failure(values: Any) -> str:
    """The line of an error in place of an answer, or ""."""
    return plain(values["error"], _LONGEST) if isinstance(values, Mapping) and "error" in values else ""


def registrations(found: Found) -> Criterion:
    """Which operators the learner's files convert."""
    hint = f"Register one converter, for torch.ops.{OPERATOR}. The answers of the lowered graph do not test a converter."
    names = ", ".join(found.registered[:5]) or "none"
    return Criterion("operators that your files convert", names, OPERATOR, found.registered == (OPERATOR,), HALF, hint)


def converter(found: Found, asked: Sequence[Case]) -> Iterator[Criterion]:
    """The network that the converter writes, computed in numpy, and when the partitioner takes it."""
    yield registrations(found)
    answers = [*found.medians, *[Failed("no answer")] * len(asked)]
    for output, name, needed in ((0, "right values", HALF), (1, "right indices", ALL)):
        chosen = [number for number, case in enumerate(asked) if case.arguments[3] == output]
        yield case_criterion(name, [asked[n] for n in chosen], [answers[n] for n in chosen], needed, hint=_COMPARE)
    place, words = _place(found.places.get("dynamic"))
    hint = words or "What does the registration of the converter say about a batch size that is not known?"
    registered = Criterion("a median with an open batch size", place, "TensorRT", place == "TensorRT", hint=hint)
    yield replace(registered, expected="supports_dynamic_shapes=True in the registration")
    place, words = _place(found.places.get("long"))
    hint = f"TensorRT's TopK takes at most 3,840 elements. What can a registration say about a single node? {words}".strip()
    left = Criterion("a median of 9,000 rows", place, "PyTorch", place == "PyTorch", hint=hint)
    yield replace(left, expected="a capability_validator that returns False for it")


def model(found: Found, expected: Sequence[np.ndarray]) -> Iterator[Criterion]:
    """The blocks, answers and kernels of the module."""
    blocks = found.blocks or Blocks(())
    if found.registered:
        yield registrations(found)
    types = ", ".join(sorted(found.types))
    hint = "Which type does the last operation of `forward` have?"
    yield Criterion("type of the logits", types, "float32", types == "float32", HALF, hint, expected="x.float() as the result")
    error, hint = _error(found.logits, expected)
    yield Criterion("relative error of the logits", f"{error:.2g}", f"{SAME}", error <= SAME, HALF, hint)
    outside = ", ".join(blocks.in_pytorch)
    hint = f"In PyTorch: {outside}. Which of them has a converter in 2.13 or in converter.py, and what does it require?"
    count = f"{len(blocks.blocks)} blocks, {blocks.engines} in TensorRT"
    yield Criterion("blocks", count, f"at most {FEW}", len(blocks.blocks) <= FEW and blocks.engines > 0, HALF, hint)
    yield Criterion("blocks", count, "1, in TensorRT", len(blocks.blocks) == blocks.engines == 1, hint=hint)
    kernels = [kernel for block in blocks.blocks for kernel in block.layers.kernels]
    weights = [(kernel.name, tensor) for kernel in kernels for tensor in kernel.weights if tensor.dtype == "Float"]
    wide = list(dict.fromkeys(name for name, tensor in weights if tuple(sorted(tensor.shape[-2:])) in _PRODUCTS))
    hint = (
        f"These kernels multiply by FP32 weights: {', '.join(wide[:3])}. Which type do their layers have, and what they read?"
    )
    narrow = Criterion("kernels with FP32 weights of a layer", str(len(wide)), "0", not wide and bool(kernels), hint=hint)
    yield replace(narrow, expected="half() on these layers and on what they read")
    fused = sum("mha" in kernel.name for kernel in kernels)
    hint = "Without a kernel such as _gemm_mha_v2, the scores make a round trip to memory. Which type do query, key and value have?"
    yield Criterion("attention in one kernel", str(fused), "at least 1", fused >= 1, hint=hint)


def settings(batch: Mapping[str, int], traffic: Mapping[int, int], found: Found) -> Iterator[Criterion]:
    """The range, what the given module makes of the keywords, and the size of the plan."""
    least, best, most = (batch[name] for name in ("min", "opt", "max"))
    covers = least <= min(traffic) and max(traffic) <= most <= WIDEST
    wanted, day = f"{min(traffic)} to at least {max(traffic)}", f"the batch sizes of the day, at most {WIDEST}"
    hint = "A batch outside the range is an error at run time."
    yield Criterion("range of batch sizes", f"{least} to {most}", day, covers, HALF, hint, expected=wanted)
    frequent = max(traffic, key=lambda size: traffic[size])
    yield equals("opt", best, frequent, bound="the most frequent batch size", hint="The kernels are chosen for opt.")
    border, blocks = found.border, found.blocks.blocks if found.blocks else ()
    plan = blocks[0].plan_bytes if len(blocks) == 1 and blocks[0].in_tensorrt else None
    whole = "not fully supported" in border
    ended = "an error" if whole else border or "compiled"
    hint = "The given module has operators without a converter. Which keyword makes such a graph break an error?"
    if border and not whole:
        hint = "2.13 accepts every keyword and reads only some. print(sorted(known)) in the notebook lists them."
    yield Criterion("the given module with your keywords", ended, "an error", whole, HALF, hint)
    size = "no plan" if plan is None else f"{plan / 1e6:.2f} MB"
    met = plan is not None and plan <= PLAN_BYTES
    hint = "FP32 weights are the larger half of a plan: see task 2."
    yield Criterion("plan of model.py", size, f"{PLAN_BYTES / 1e6:.1f} MB", met, hint=hint)


def _place(found: Blocks | str | None) -> tuple[str, str]:
    """Where a median runs, and the error without which it would run somewhere."""
    if found is None or isinstance(found, str):
        return "an error", found or ""
    return ("TensorRT" if found.engines and not found.in_pytorch else "PyTorch"), ""


def _error(answers: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> tuple[float, str]:
    """The largest error relative to the largest logit, and its cause as far as it shows."""
    largest, hint = 0.0 if answers else float("inf"), "Compare method by method with the given module, in FP64."
    for found, want in zip(answers, expected, strict=False):
        if found.shape != want.shape:
            return float("inf"), f"Found logits of shape {found.shape}, expected {want.shape}."
        if not np.isfinite(found).all():
            return float("inf"), "The logits are not finite. FP16 reaches 65,504: which sum is larger?"
        largest = max(largest, float(np.abs(found - want).max() / np.abs(want).max()))
        if len(found) > 1 and np.ptp(found, axis=0).max() < 1e-3 * np.abs(want).max():
            hint = (
                "The logits are the same for each image. FP16 reaches 65,504: which sum is larger, and what is x divided by it?"
            )
    return largest, hint
