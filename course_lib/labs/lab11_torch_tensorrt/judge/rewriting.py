"""Task 2: the learner's module is exported in its own process, and its graph runs in another one with secret weights and inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import EngineError
from course_lib.labs.framework import learner_answers
from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.isolation import read_hostile, transformed
from course_lib.labs.framework.learner_answers import Unwritten
from course_lib.labs.lab11_torch_tensorrt import release
from course_lib.labs.lab11_torch_tensorrt.sandboxed import export_model, run_program

MAX_BYTES = 64 << 10  # of the file
TIME_LIMIT_S = 60.0  # of each process; the reference takes a few seconds
SAME = run_program.SAME
FEW = 3  # segments, for half of the points
_SEEDS = 2
_TYPE = "float32"  # of the secret weights
_MAX_ANSWER = 8 << 20
_RUNS = "course_lib.labs.lab11_torch_tensorrt.sandboxed.run_program"


@dataclass(frozen=True)
class Exported:
    """What the learner's process sent: nodes, which `program.built` checks, and shapes and types of the state_dict by key."""

    nodes: Sequence[Any]
    state: Mapping[str, list[int]]
    types: Mapping[str, str]


@dataclass(frozen=True)
class Rewriting:
    """What was found for a module.

    Attributes:
        segments: for each its place, and its operators.
        in_pytorch: operators outside TensorRT, and why.
        attentions: what 2.2.0 makes of each fused attention.
        eager, compiled: largest relative errors.
        narrow: operators whose results have fewer digits than float32, and the type, unless the answers are wrong for another reason.
        resembles: a known mistake with the same answers, or "".
        said: why there is nothing of this, or "".
    """

    segments: Sequence[tuple[bool, Sequence[str]]] = ()
    in_pytorch: Sequence[tuple[str, str]] = ()
    attentions: Sequence[str] = ()
    eager: float = np.inf
    compiled: float = np.inf
    narrow: Sequence[tuple[str, str]] = ()
    resembles: str = ""
    said: str = ""
    empty: bool = False

    @property
    def whole(self) -> bool:
        """Whether TensorRT runs all of it."""
        return len(self.segments) == 1 and self.segments[0][0]

    @property
    def unrecorded(self) -> int:
        """Fused attentions in a form that was not recorded."""
        return sum(form not in (release.RIGHT, release.EXCHANGED) for form in self.attentions)


def examined(source: Path, rng: np.random.Generator, own: Launcher | None, launcher: Launcher | None) -> Rewriting:
    """Export the module, and run its graph.

    Args:
        own: for the process that runs the learner's code.
        launcher: for the one that runs the graph, and needs the course.

    Raises:
        EngineError: the file fails as a whole, or its process does.
    """
    from course_lib.labs.lab11_torch_tensorrt import network

    asked = {"shape": list(network.SHAPE), "decomposed": list(release.decomposed())}
    found = learner_answers.ask(
        export_model,
        source,
        {export_model.CLASS: [asked]},
        parsed,
        launcher=own,
        time_limit_s=TIME_LIMIT_S,
        max_bytes=MAX_BYTES,
        max_answer=_MAX_ANSWER,
        advice="it needs the class and nothing else",
    )
    if export_model.CLASS not in found:
        return Rewriting(said=f"it defines no class {export_model.CLASS}")
    (exported,) = found[export_model.CLASS]
    if isinstance(exported, str):
        return Rewriting(said=f"it cannot be exported: {exported}", empty=isinstance(exported, Unwritten))
    if said := _other_state(exported.state, {key: list(value.shape) for key, value in network.Reader().state_dict().items()}):
        return Rewriting(said=said)
    if other := next((key for key in exported.state if exported.types.get(key) != _TYPE), ""):
        return Rewriting(said=f"its state_dict has {other!r} in {exported.types.get(other)}, expected {_TYPE}")
    seeds = [int(seed) for seed in rng.integers(0, 1 << 31, _SEEDS)]
    try:
        answer = transformed(_RUNS, run_program.question(exported.nodes, seeds), launcher=launcher, time_limit_s=TIME_LIMIT_S)
    except EngineError as error:
        return Rewriting(said=str(error) or "its graph cannot be run")
    return read_hostile(answer, _rewriting, "its graph cannot be run")


def parsed(answer: bytes, counts: Mapping[str, int]) -> dict[str, list[Exported | str]]:
    """See `learner_answers.parsed`."""
    return learner_answers.parsed(answer, counts, _exported, "its process did not send the nodes of an exported module")


def _exported(value: Any) -> Exported:
    nodes, state = value["nodes"], value["state"]
    if not isinstance(nodes, list) or len(nodes) > export_model.MOST_NODES or not all(isinstance(one, dict) for one in nodes):
        raise TypeError
    types = {str(key)[:80]: str(name)[:20] for key, name in value["types"].items()}
    return Exported(nodes, {str(key)[:80]: [int(size) for size in shape] for key, shape in state.items()}, types)


def _rewriting(value: Any) -> Rewriting:
    return Rewriting(
        [(bool(place), [str(name) for name in names]) for place, names in value["segments"]],
        [(str(name), str(why)) for name, why in value["in_pytorch"]],
        [str(form) for form in value["attentions"]],
        float(value["eager"]),
        float(value["compiled"]),
        [(str(name), str(kind)) for name, kind in value["narrow"]],
        str(value["resembles"]),
    )


def _other_state(found: Mapping[str, list[int]], given: Mapping[str, list[int]]) -> str:
    for key in [*given, *found]:
        if found.get(key) != given.get(key):
            return f"its state_dict has {key!r} with the shape {found.get(key)}, expected {given.get(key)}"
    return ""


def criteria(found: Rewriting) -> tuple[list[Criterion], list[Criterion]]:
    """For all points, and for half of them."""
    bound = f"at most {SAME:g}"
    rows = [
        ("relative error in PyTorch", f"{found.eager:.1e}", bound, found.eager <= SAME),
        ("relative error as 2.2.0 computes it", f"{found.compiled:.1e}", bound, found.compiled <= SAME),
        ("attentions in a form that was not recorded", str(found.unrecorded), "none", not found.unrecorded),
    ]
    count, inside = len(found.segments), sum(place for place, _ in found.segments)
    name, said = "segments", f"{count}, {inside} in TensorRT"
    whole = Criterion(name, said, "1, in TensorRT", found.whole)
    few = Criterion(name, said, f"at most {FEW}, at least 1 in TensorRT", count <= FEW and inside > 0, HALF)
    return [*(Criterion(*row) for row in rows), whole], [*(Criterion(*row, HALF) for row in rows), few]


_LOWER = "Of an even number of values, PyTorch's median is the lower one in the middle."
_RESEMBLES = {
    "upper_middle": ("The median is one row too high.", _LOWER),
    "mean_of_middles": ("The median is the mean of two rows.", _LOWER),
    "mean_of_rows": ("The mean stands for the median.", "Which operator with a converter puts the rows in order?"),
    "summed": ("The gates were added up, not multiplied.", "What turns a product of positive numbers into a sum, and back?"),
    "rows_not_divided": ("The rows of the largest values were not divided by 32.", "Read `summary` again."),
    "not_scaled": (
        "The attention does not divide by the square root of the size of a head.",
        "What does scaled_dot_product_attention do besides two products and a softmax?",
    ),
    "scaled_by_width": (
        "The attention divides by the square root of the width, not of the size of a head.",
        "A head has 12 of the 48 features.",
    ),
    "exchanged": (
        "The module itself exchanges query and value, so it is right only with the mistake of 2.2.0.",
        "The module must be right in PyTorch, too. Which forms of attention does lecture 13 show to be right?",
    ),
}
_HINTS = {
    "aten.cumprod.default": "Print `release.converters()`. Which of them turns a product of positive numbers into a sum, and back?",
    "aten.median.dim": "Which operator with a converter puts the rows in order, so that the median is one of them?",
    "aten.max.dim": "The converter of max.dim gives values only. Which two operators give the values, and their rows?",
}


def described(found: Rewriting) -> tuple[str, str]:
    """The mistake that explains the result, in words, with a hint."""
    if found.said:
        hint = "Correct it, run the cell that writes the file and the cell after it, then check again."
        return f"{found.said}.", hint
    if found.resembles:
        return _RESEMBLES[found.resembles]
    if found.eager > SAME and found.narrow:
        name, kind = found.narrow[0]
        hint = f"How many digits does {kind} keep, and what is its largest number? Compute in float32."
        return f"The module has other answers than the given one, already in PyTorch: {name} returns {kind}.", hint
    if found.eager > SAME:
        hint = "Compare your four methods with those of `Reader`, one at a time, with the same input."
        return "The module has other answers than the given one, already in PyTorch.", hint
    if found.compiled > SAME:
        return (
            "The module is right in PyTorch, and wrong as 2.2.0 computes it: it exchanges query and value of an attention.",
            "`rewritten.values(rows)` and `rewritten.values(rows, eager=True)` have the result of each node. "
            "Which one is the first to differ?",
        )
    if found.unrecorded:
        return (
            "What 2.2.0 makes of this form of attention was never recorded.",
            "Use a form that lecture 13 shows to be right: chunk or three projections with permute, or attention written out.",
        )
    if found.in_pytorch:
        listed = ", ".join(f"{name} ({why})" for name, why in found.in_pytorch[:4])
        hints = (hint for name, hint in _HINTS.items() if name in dict(found.in_pytorch))
        return f"In PyTorch: {listed}.", next(hints, "Which operators with a converter compute the same?")
    return "", ""
