"""Task 4: settings that 2.2.0 reads, a check that the engine is whole, and batches of any size for a compiled module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.guest import Denied, Failed, Guest

SETTINGS, CHECK, ANSWER = "settings", "check", "answer"
NAME, OPERATORS, VERSION = "rows", 4, "2.2"  # of the input; in the only segment; of Torch-TensorRT
_SHAPE = (32, 32)
_WHOLE = ["_run_on_acc_0"]
_CALLS = 3  # of `settings` with other sizes, and of `check` with a whole module
_DIVIDED: Sequence[Sequence[str]] = (
    ["_run_on_acc_0", "_run_on_gpu_1", "_run_on_acc_2"],
    ["_run_on_gpu_0", "_run_on_acc_1"],
    ["_run_on_acc_0", "_run_on_gpu_1"],
    ["_run_on_gpu_0"],
    [],
)
_SWITCHES = (
    "debug", "disable_tf32", "enable_experimental_decompositions", "refit", "sparse_weights", "truncate_long_and_double",
    "use_fast_partitioner", "use_python_runtime", "version_compatible",
)  # fmt: skip
_MIB = 1 << 20
_SIZES = ("dla_global_dram_size", "dla_local_dram_size", "dla_sram_size", "workspace_size")
_NUMBERS = {  # the values of each keyword; sizes are in bytes
    **dict.fromkeys(_SIZES, (range(1), range(_MIB, _MIB * _MIB + 1))),
    "max_aux_streams": (range(101),),
    "num_avg_timing_iters": (range(1, 101),),
    "optimization_level": (range(6),),
}
_OF_TORCH = ("device", "enabled_precisions", "engine_capability")  # their values are objects that service.py cannot import
_GRAPH_MODULE = ("fx", "graph_module")  # as 2.2.0 names them when it rejects another format
_WIDTH = 3  # of the rows in the simulation
_SAME = 1e-6  # largest difference of an image from itself in a batch


@dataclass(frozen=True)
class Verdict:
    """One function, its mistake in words, or "", and where to look."""

    name: str
    said: str = ""
    hint: str = ""
    empty: bool = False


def examined(learner: Guest, rng: np.random.Generator) -> list[Verdict]:
    """Call all three functions.

    Raises:
        EngineError: the process of the file failed.
    """
    return [_settings(learner, rng), _check(learner, rng), _answers(learner, rng)]


def _failed(name: str, failed: Failed) -> Verdict:
    if failed.empty:
        return Verdict(name, f"{name} is still empty", "Write its body, and run the cell, which writes the file.", True)
    return Verdict(name, f"{name} failed: {failed.line}", "Call it in the notebook: the same error appears there.")


def _settings(learner: Guest, rng: np.random.Generator) -> Verdict:
    for _ in range(_CALLS):
        sizes = sorted(int(size) for size in rng.choice(np.arange(2, 65), 3, replace=False))
        found = learner.call(SETTINGS, *sizes)
        if isinstance(found, Failed):
            return _failed(SETTINGS, found)
        said, hint = judged_settings(found, sizes)
        if said:
            return Verdict(SETTINGS, said, hint)
    return Verdict(SETTINGS)


def judged_settings(found: Any, sizes: Sequence[int]) -> tuple[str, str]:
    """What is wrong with keywords for ``torch_tensorrt.compile``, and where to look."""
    from course_lib.engines.backends.torch_tensorrt.keywords import table

    known = table()[VERSION]
    if not isinstance(found, Mapping):
        return f"settings returned {str(found)[:60]}, expected a dictionary of keywords", "Return {'ir': 'dynamo', ...}."
    read = set(known["compile"]) - set(known["ignored"]) | {"ir"}
    if unread := next((str(key) for key in found if key not in read), ""):
        return (
            f"2.2.0 ignores the keyword {unread[:40]!r}, and says nothing about it",
            "`keywords.table()['2.2']` lists what it reads under 'compile', without those under 'ignored'.",
        )
    if said := _other_value(found):
        return said, "See requirements 2 and 4: which values does 2.2.0 read, and what keeps an operator out of TensorRT?"
    inputs = found.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], Mapping):
        return "inputs is not a list with one dictionary", "The dictionary has the keywords of torch_tensorrt.Input."
    one = inputs[0]
    shapes = {f"{word}_shape": [size, *_SHAPE] for word, size in zip(("min", "opt", "max"), sizes, strict=True)}
    for key, shape in shapes.items():
        if one.get(key) != shape:
            return f"{key} is {str(one.get(key))[:40]}, expected {tuple(shape)}", "Only the batch varies."
    if one.get("name") != NAME:
        return (
            f"the input has the name {str(one.get('name'))[:30]!r}, expected {NAME!r}",
            "2.2.0 needs the name of forward's parameter for an input with a range.",
        )
    if unread := next((str(key) for key in one if key not in known["Input"]), ""):
        return f"torch_tensorrt.Input of 2.2.0 does not read {unread[:30]!r}", "Which keywords has it?"
    if other := next((str(key) for key in one if key not in (*shapes, "name")), ""):
        return (
            f"the input has the keyword {other[:30]!r}, which a range of shapes does not need",
            "Some keywords exclude each other, and the values of others are objects of torch. See requirement 3.",
        )
    if found.get("ir") != "dynamo":
        return f"ir is {str(found.get('ir'))[:30]!r}, expected 'dynamo'", "See requirement 2."
    if found.get("disable_tf32") is not True:
        return "TF32 is on", "Lecture 13 shows the error of an engine with and without TF32."
    size = found.get("min_block_size", 5)
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= OPERATORS:
        return (
            f"with min_block_size {str(size)[:20]}, {OPERATORS} operators stay in PyTorch",
            "How many operators must a segment have to stay in TensorRT?",
        )
    if found.get("output_format") not in _GRAPH_MODULE:
        return (
            f"output_format is {str(found.get('output_format'))[:30]!r}, expected one that returns a graph module",
            "check needs the names of the segments. Which output_format does lecture 13 show for a graph module?",
        )
    return "", ""


def _other_value(found: Mapping[str, Any]) -> str:
    """What is wrong with a keyword that the task does not ask for, or ""."""
    for key, value in found.items():
        if key == "torch_executed_ops" and value:
            return f"torch_executed_ops is {str(value)[:60]}, expected none: all {OPERATORS} operators must run in TensorRT"
        if key in _SWITCHES and not isinstance(value, bool):
            return f"{key} is {str(value)[:30]!r}, expected True or False"
        if key in _NUMBERS and (said := _other_number(value, _NUMBERS[key])):
            return f"{key} is {str(value)[:30]!r}, expected {said}"
        if key in _OF_TORCH:
            return f"{key} is given, but its values are objects of torch, which service.py cannot import"
    return ""


def _other_number(value: Any, allowed: Sequence[range]) -> str:
    """What was expected in place of a number, or ""."""
    if isinstance(value, int) and not isinstance(value, bool) and any(value in part for part in allowed):
        return ""
    return ", or ".join("0" if part == range(1) else f"an integer from {part[0]} to {part[-1]}" for part in allowed)


def _other_error(failed: Failed) -> Verdict:
    hint = "Requirement 5 asks for RuntimeError itself, Python's own class. Call it in the notebook with these names."
    return Verdict(CHECK, f"check failed: {failed.line}, expected RuntimeError itself", hint, failed.empty)


def _check(learner: Guest, rng: np.random.Generator) -> Verdict:
    """Whole and divided modules in a secret order, so that nothing but the names tells them apart."""
    if CHECK not in learner.defined:
        return _failed(CHECK, learner.call(CHECK))
    asked = [*[_WHOLE] * _CALLS, *_DIVIDED, *_more_divided(rng)]
    answers = {int(place): learner.call(CHECK, list(asked[place])) for place in rng.permutation(len(asked))}
    verdicts = (_checked(names, answers[place]) for place, names in enumerate(asked))
    return next((verdict for verdict in verdicts if verdict.said), Verdict(CHECK))


def _more_divided(rng: np.random.Generator) -> list[list[str]]:
    """Segments that take turns, from either side."""
    sides = ("acc", "gpu")
    counts = rng.integers(2, 9, _CALLS)
    return [[f"_run_on_{sides[(place + first) % 2]}_{place}" for place in range(count)] for first, count in enumerate(counts)]


def _checked(names: Sequence[str], found: Any) -> Verdict:
    if names == _WHOLE:
        if not isinstance(found, Failed):
            return Verdict(CHECK)
        if found.raised != "RuntimeError":
            return _failed(CHECK, found)
        return Verdict(CHECK, "check rejects a module that is one engine", "Which names has such a module?")
    if not isinstance(found, Failed):
        hint = "A module without any engine has no segment at all: 2.2.0 returns the graph as it is." if not names else ""
        said = f"check accepts a module with the segments {', '.join(names) or '(none)'}"
        return Verdict(CHECK, said, hint or "What runs in PyTorch?")
    return Verdict(CHECK) if found.raised == "RuntimeError" else _other_error(found)


@dataclass
class Engine:
    """A compiled module whose profile has batches from `least` to `most`. Outside it, 2.2.0 returns another number of rows.

    Attributes:
        weights, shifts: of its rows. These are sines, so that no matrix that fits some of them gives the others.
        images: those that `answer` has to answer now.
        sent: which of them were in a batch.
        calls: the sizes of the batches.
    """

    least: int
    most: int
    weights: np.ndarray
    shifts: np.ndarray
    images: np.ndarray = field(default_factory=lambda: np.zeros((0, _WIDTH)))
    sent: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    calls: list[int] = field(default_factory=list)

    @classmethod
    def drawn(cls, least: int, most: int, rng: np.random.Generator) -> Engine:
        """With secret weights."""
        return cls(least, most, 8 * rng.standard_normal((_WIDTH, 2)), rng.uniform(0, 2 * np.pi, 2))

    def is_asked(self, images: np.ndarray) -> None:
        """From now on, these are the images of the call."""
        self.images, self.sent, self.calls = images, np.zeros(len(images), bool), []

    def rows(self, images: np.ndarray) -> np.ndarray:
        """One row for each image."""
        return np.sin(images @ self.weights + self.shifts)

    def run(self, batch: Any) -> list[list[list[float]]]:
        """A tuple with one output. Without an exception, it has `most` rows for a larger batch, and `least` for a smaller one."""
        try:
            images = np.array(batch, np.float64).reshape(len(batch), _WIDTH)
        except (TypeError, ValueError, OverflowError):
            raise Denied(f"run needs rows of {_WIDTH} numbers") from None
        self.calls.append(len(images))
        rows = np.zeros((min(max(len(images), self.least), self.most), self.weights.shape[1]))
        inside = images[: len(rows)]
        with np.errstate(all="ignore"):  # a batch may hold infinity
            rows[: len(inside)] = self.rows(inside)
            self.sent |= np.any(np.all(np.abs(self.images[:, None] - inside) <= _SAME, axis=2), axis=1)
        return [rows.tolist()]


def _answers(learner: Guest, rng: np.random.Generator) -> Verdict:
    """Several profiles: a wide one, one batch alone, one that begins at 1, and one whose largest batch cannot be divided into two."""
    one, least = (int(rng.integers(low, low + 6)) for low in (2, 4))
    profiles = ((int(rng.integers(3, 5)), int(rng.integers(9, 17))), (one, one), (1, one), (least, least + 1))
    wrong = (found for profile in profiles if (found := _answers_within(learner, rng, *profile)).said)
    return next(wrong, Verdict(ANSWER))


def _answers_within(learner: Guest, rng: np.random.Generator, least: int, most: int) -> Verdict:
    engine = Engine.drawn(least, most, rng)
    named = (most, least, 1, most + 1, 2 * most + least - 1, 3 * most, least - 1)  # those whose mistakes are the clearest
    verdicts = {}
    for size in rng.permutation(np.arange(1, 3 * most + 1)):
        images = rng.integers(-256, 257, (size, _WIDTH)) / 64  # exact in float32
        engine.is_asked(images)
        found = learner.call(ANSWER, engine.run, images.tolist(), least, most)
        verdicts[int(size)] = _judged_rows(found, engine, images)
    wrong = (verdicts[size] for size in (*named, *verdicts) if size in verdicts and verdicts[size].said)
    return next(wrong, Verdict(ANSWER))


def _judged_rows(found: Any, engine: Engine, images: np.ndarray) -> Verdict:
    size, wrong = len(images), [one for one in engine.calls if not engine.least <= one <= engine.most]
    if isinstance(found, Failed):
        return _failed(ANSWER, found)
    if wrong:
        said = f"a batch of {wrong[0]} went to an engine for {engine.least} to {engine.most}"
        return Verdict(ANSWER, said, "It answers with another number of rows and no exception. Divide or fill up the batch.")
    if len(engine.calls) > -(-size // engine.most):
        said = f"{len(engine.calls)} runs for {size} images, at most {-(-size // engine.most)} are needed"
        return Verdict(ANSWER, said, "Each run but the last can take as many images as the profile allows.")
    try:
        rows = np.array(found, np.float64)
        if rows.shape != (size, engine.weights.shape[1]):
            said = f"answer returned the shape {rows.shape} for {size} images"
            hint = "One row for each image, without the rows that only fill up a batch. A compiled module returns a tuple."
            return Verdict(ANSWER, said, hint)
    except (TypeError, ValueError, OverflowError):
        return Verdict(ANSWER, f"answer returned {str(found)[:60]}, expected an array", "A compiled module returns a tuple.")
    if not engine.sent.all():
        said = f"{int((~engine.sent).sum())} of {size} images were not in the batch of any run"
        return Verdict(ANSWER, said, "Each row must be what the compiled module returns for its image. See requirement 6.")
    if not np.allclose(rows, engine.rows(images), rtol=1e-6, atol=1e-6):
        return Verdict(ANSWER, f"answer has wrong rows for {size} images", "Are the parts joined in the order of the images?")
    return Verdict(ANSWER)


_NAMES = {
    SETTINGS: "settings",
    CHECK: "a check of the segments",
    ANSWER: "batches of any size",
}


def criteria(found: Sequence[Verdict]) -> tuple[list[Criterion], list[Criterion]]:
    """For all points, and for half of them."""
    rows = [Criterion.yes_or_no(_NAMES[one.name], not one.said) for one in found]
    return rows, [replace(one, needed_for=HALF) for one in rows[:2]]
