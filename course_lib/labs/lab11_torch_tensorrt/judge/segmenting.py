"""Task 1: the segments of secret graphs, as PyTorch's own splitter makes them for 2.2.0, and the reason of each node in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.guest import Failed, Guest

SEGMENTS, REASONS = "segments", "reasons"
NO_CONVERTER, KEPT, SMALL = "no converter", "kept", "small segment"
CONVERTERS = (
    "aten.relu.default",
    "aten.convolution.default",
    "aten.add.Tensor",
    "aten.mul.Tensor",
    "aten.sigmoid.default",
    "aten.addmm.default",
    "aten.mean.dim",
    "aten.exp.default",
)
_POOL = (*CONVERTERS, "aten.cumprod.default", "aten.median.dim", "aten.topk.default", "aten.flip.default")
_GRAPHS, _PLAIN = 14, 6  # of all; of those with blocks of any size, where nothing is kept
Node = dict[str, Any]  # name, operator, inputs
Found = list[tuple[bool, list[str]]]


@dataclass(frozen=True)
class Question:
    """A graph in the order of its nodes, and the settings."""

    nodes: Sequence[Node]
    in_pytorch: Sequence[str]
    min_block_size: int
    converters: Sequence[str] = CONVERTERS

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What both functions get."""
        return (self.nodes, list(self.converters), list(self.in_pytorch), self.min_block_size)

    def supported(self, node: Node) -> bool:
        """Whether TensorRT can run a node and may."""
        return node["operator"] in self.converters and f"torch.ops.{node['operator']}" not in self.in_pytorch

    @property
    def forms(self) -> list[str]:
        """The names of `in_pytorch`, whatever their form."""
        return [name.rpartition("ops.")[2].replace("::", ".") for name in self.in_pytorch]


def questions(rng: np.random.Generator) -> list[Question]:
    """Fresh graphs on which each usual mistake gives another answer than the splitter."""
    while True:
        asked = [_drawn(rng, plain=index < _PLAIN) for index in range(_GRAPHS)]
        right = [split(one) for one in asked]
        if all(
            [_same(rule(one), want) for one, want in zip(asked, right, strict=True)].count(False) for _, rule, _ in _MISTAKES
        ) and any(
            f"torch.ops.{node['operator']}" in one.in_pytorch and node["operator"] not in one.converters
            for one in asked
            for node in one.nodes
        ):
            return asked


def _drawn(rng: np.random.Generator, *, plain: bool) -> Question:
    pool = [str(name) for name in rng.permutation(_POOL)]
    converters, without = pool[: len(CONVERTERS)], pool[len(CONVERTERS) :]
    size = int(rng.integers(12, 30))
    numbers = rng.permutation(np.arange(100, 1000))[:size]
    nodes: list[Node] = []
    for index in range(size):
        lacking = rng.random() < 0.17
        operator = str(rng.choice(without if lacking else converters))
        count = min(index, int(rng.choice([0, 1, 2, 3, 5], p=[0.08, 0.56, 0.2, 0.1, 0.06])))
        near = [node["name"] for node in (nodes if count > 2 else nodes[-4:])]
        inputs = sorted(map(str, rng.choice(near, min(count, len(near)), replace=False))) if near and count else []
        nodes.append({"name": f"node_{numbers[index]}", "operator": operator, "inputs": inputs})
    kept: list[str] = []
    if not plain and rng.random() < 0.7:
        short, without_overload = (str(rng.choice(converters)).rpartition(".")[0] for _ in range(2))
        kept = [
            f"torch.ops.{rng.choice(converters)}",
            str(rng.choice(converters)),
            short.replace(".", "::"),
            f"torch.ops.{without_overload}",
        ]
    if kept:
        kept.append(f"torch.ops.{rng.choice(without)}")  # it lacks a converter, which is its reason
    return Question(nodes, kept, 1 if plain else int(rng.choice([2, 3, 4, 5, size])), converters)


def split(asked: Question, *, starts_inside: bool = False, any_form: bool = False, without_overload: bool = False) -> Found:
    """The segments that PyTorch's splitter makes, with the rule of 2.2.0 about small segments. A keyword breaks a rule of the task.

    Args:
        starts_inside: the first segment is always in TensorRT.
        any_form: each form of a name in `in_pytorch` counts.
        without_overload: ``"torch.ops.aten.relu"`` counts for all overloads.
    """
    import torch

    from course_lib.labs.lab11_torch_tensorrt import partitioner

    graph = torch.fx.Graph()
    given = graph.placeholder("given")
    first = graph.call_function(len, (given,))  # with `starts_inside`, a node in TensorRT that all others read
    first.meta["tensor_meta"] = True
    made: dict[str, torch.fx.Node] = {}
    for node in asked.nodes:
        needs = tuple(made[name] for name in node["inputs"]) or (first if starts_inside else given,)
        made[node["name"]] = graph.call_function(len, (needs,))
        made[node["name"]].meta["tensor_meta"] = True
    if not starts_inside:
        graph.erase_node(first)
    graph.output(tuple(made.values()))
    named = {fx: node for node, fx in zip(asked.nodes, made.values(), strict=True)}

    def supported(fx: torch.fx.Node) -> bool:
        if fx not in named:
            return True
        name = named[fx]["operator"]
        kept = any_form and any(name == form or name.startswith(f"{form}.") for form in asked.forms)
        kept |= without_overload and f"torch.ops.{name.rpartition('.')[0]}" in asked.in_pytorch
        return asked.supported(named[fx]) and not kept

    runs = partitioner.split(torch.fx.GraphModule(torch.nn.Module(), graph), supported, 1)
    names = ((one.in_tensorrt, [named[fx]["name"] for fx in one.nodes if fx in named]) for one in runs)
    return partitioner.without_small(((place, several) for place, several in names if several), asked.min_block_size)


def _neighbors(asked: Question) -> Found:
    """Runs of neighbors in the list, without a look at the inputs."""
    from course_lib.labs.lab11_torch_tensorrt.partitioner import without_small

    runs = groupby(asked.nodes, key=asked.supported)
    return without_small(((place, [node["name"] for node in several]) for place, several in runs), asked.min_block_size)


def _first_inputs(asked: Question) -> Found:
    """A node waits for its first two inputs only."""
    return split(replace(asked, nodes=[{**node, "inputs": node["inputs"][:2]} for node in asked.nodes]))


def _not_joined(asked: Question) -> Found:
    runs = split(replace(asked, min_block_size=1))
    return [(place and len(names) >= asked.min_block_size, names) for place, names in runs]


def reasons(asked: Question, found: Found) -> dict[str, str]:
    """Why each node in PyTorch is there."""
    by_name = {node["name"]: node for node in asked.nodes}

    def why(node: Node) -> str:
        if asked.supported(node):
            return SMALL
        return KEPT if node["operator"] in asked.converters else NO_CONVERTER

    return {name: why(by_name[name]) for place, names in found for name in names if not place}


@dataclass(frozen=True)
class Answered:
    """A question, and what the two functions returned.

    Attributes:
        said: why `segments` gave no segments, or "".
        failed: the error of `reasons`, or "".
    """

    question: Question
    right: Found
    found: Found
    why: Any
    said: str = ""
    failed: str = ""
    empty: bool = False

    @property
    def segments_right(self) -> bool:
        """Whether the segments are those of the splitter."""
        return not self.said and _same(self.found, self.right)

    @property
    def reasons_right(self) -> bool:
        """Whether the reasons are right."""
        return bool(self.why == reasons(self.question, self.right))


def answered(learner: Guest, rng: np.random.Generator) -> list[Answered]:
    """Ask both functions about secret graphs.

    Raises:
        EngineError: the process of the file failed.
    """
    found = []
    for asked in questions(rng):
        answer = learner.call(SEGMENTS, *asked.arguments)
        why = learner.call(REASONS, *asked.arguments)
        found.append(_answered(asked, answer, why))
        if found[-1].empty:
            break
    return found


def _answered(asked: Question, answer: Any, why: Any) -> Answered:
    right = split(asked)
    failed = why.line if isinstance(why, Failed) else ""
    if isinstance(answer, Failed):
        return Answered(asked, right, [], why, f"segments failed: {answer.line}", failed, answer.empty)
    try:
        found = [(place, [str(name) for name in names]) for place, names in answer]
        if not all(isinstance(place, bool) for place, _ in found):
            raise TypeError
    except (TypeError, ValueError):
        said = f"segments returned {str(answer)[:60]}, expected a list of (True or False, list of names)"
        return Answered(asked, right, [], why, said, failed)
    names = sorted(name for _, several in found for name in several)
    if names != sorted(node["name"] for node in asked.nodes):
        return Answered(asked, right, [], why, "segments did not return each node once", failed)
    return Answered(asked, right, found, why, "", failed)


def _same(one: Found, other: Found) -> bool:
    return [(place, sorted(names)) for place, names in one] == [(place, sorted(names)) for place, names in other]


def criteria(found: Sequence[Answered]) -> tuple[list[Criterion], list[Criterion]]:
    """For all points, and for half of them."""
    total, plain = len(found), found[:_PLAIN]
    right, why = sum(one.segments_right for one in found), sum(one.reasons_right for one in found)
    easy = sum(one.segments_right for one in plain)
    full = [
        Criterion("graphs with the right segments", f"{right} of {total}", f"{total}", right == total),
        Criterion("graphs with the right reasons", f"{why} of {total}", f"{total}", why == total),
    ]
    name = "graphs with the right segments, min_block_size=1 and nothing kept"
    return full, [Criterion(name, f"{easy} of {len(plain)}", f"{len(plain)}", easy == len(plain), HALF)]


_MISTAKES: Sequence[tuple[str, Callable[[Question], Found], str]] = (
    (
        "The segments are those for the converters of the graph in the notebook.",
        lambda asked: split(replace(asked, converters=CONVERTERS)),
        "Other graphs have other converters. Which parameter lists them?",
    ),
    (
        "The segments are runs of neighbors in the list of nodes.",
        _neighbors,
        "A node further down may have all its inputs already. In which segment does the splitter take it?",
    ),
    (
        "A segment of exactly min_block_size nodes was given to PyTorch.",
        lambda asked: split(replace(asked, min_block_size=asked.min_block_size + 1)),
        "The setting is the smallest size that stays in TensorRT.",
    ),
    (
        "In your answer, two segments in PyTorch follow each other. They must be one.",
        _not_joined,
        "What happens with a small segment, and with the segments before and after it?",
    ),
    (
        "Your first segment is in TensorRT, although a node without inputs is not supported.",
        lambda asked: split(asked, starts_inside=True),
        "Can the first segment be in PyTorch? Look at the nodes that read no other node.",
    ),
    (
        "Names in another form than torch.ops.NAME were kept in PyTorch.",
        lambda asked: split(asked, any_form=True),
        "2.2.0 ignores a name that is not written in full. Which names are equal to 'torch.ops.' and the operator?",
    ),
    (
        "Names without an overload, such as 'torch.ops.aten.relu', were kept in PyTorch.",
        lambda asked: split(asked, without_overload=True),
        "2.2.0 ignores a name that is not written in full. An operator ends in its overload, such as '.default'.",
    ),
    (
        "A node with more than two inputs is there before its last ones.",
        _first_inputs,
        "A node is available when all its inputs are.",
    ),
)


def described(found: Sequence[Answered]) -> tuple[str, str]:
    """The mistake that explains the answers, in words, with a hint."""
    if wrong := next((one for one in found if one.said), None):
        return f"{wrong.said}.", "Call it in the notebook with the graph of the cell above: the same answer appears there."
    wrong_ones = [one for one in found if not one.segments_right]
    for words, rule, hint in _MISTAKES:
        if wrong_ones and all(_same(one.found, rule(one.question)) for one in wrong_ones):
            return words, hint
    if wrong_ones:
        return (
            _misplaced(wrong_ones[0]),
            "Write down for a small graph which nodes are available at the beginning, and which after each segment.",
        )
    if failed := next((one.failed for one in found if one.failed), ""):
        return f"reasons failed: {failed}.", "Call it in the notebook with the graph of the cell above."
    wrong_why = next((one for one in found if not one.reasons_right), None)
    return _described_reasons(wrong_why) if wrong_why else ("", "")


def _misplaced(one: Answered) -> str:
    """The first node whose segment is wrong, with both segments."""
    right, found = _numbered(one.right), _numbered(one.found)
    size = len(one.question.nodes)
    for node in one.question.nodes:
        name = node["name"]
        if right[name] != found[name]:
            return f"In a graph of {size} nodes, {name} must be in {right[name]}, and segments put it in {found[name]}."
    return f"In a graph of {size} nodes, segments returned {len(one.found)} segments, expected {len(one.right)}: one is empty."


def _numbered(found: Found) -> dict[str, str]:
    return {
        name: f"segment {number} ({'TensorRT' if place else 'PyTorch'})"
        for number, (place, names) in enumerate(found, 1)
        for name in names
    }


def _described_reasons(one: Answered) -> tuple[str, str]:
    right = reasons(one.question, one.right)
    hint = "Only nodes in PyTorch have a reason. A node with a converter that is not kept is there for one reason only."
    if not isinstance(one.why, dict):
        return f"reasons returned {str(one.why)[:60]}, expected a dictionary.", hint
    name = next((name for name in [*right, *one.why] if one.why.get(name) != right.get(name)), "")
    return f"The reason of {str(name)[:20]} is {str(one.why.get(name))[:30]!r}, expected {right.get(name)!r}.", hint
