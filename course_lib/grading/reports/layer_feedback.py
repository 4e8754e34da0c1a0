"""A submission's layer table compared with the reference's: which layers use another type, and where kernels were won or lost.

The words name layers of the learner's own graph only; what the reference alone has is counted, not shown.
"""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path

from course_lib import labs
from course_lib.engines import LayerTable, Plan
from course_lib.engines.layers import dtype_name
from course_lib.errors import CourseError
from course_lib.labs import Examiner, Lab
from course_lib.labs.framework import onnx_model
from course_lib.profiling.layer_tables.table_diff import Change, TableDiff, Together, counted, diff, listed
from course_lib.recipe import Recipe

_WIDEST_FIRST = ("Float", "BFloat16", "Half", "FP8", "Int8", "FP4", "Int4")
_MULTIPLY = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})  # what is worth a name in a sentence
_MOST = 6  # layers or patterns that a sentence names before it counts the rest


@dataclass(frozen=True)
class Difference:
    """A place where the two tables differ.

    Attributes:
        layers: ONNX nodes of the submission's graph there; those that multiply matrices alone where there are some.
        kernels: how many the submission and the reference need for them.
        types: what the submission's kernels and the reference's read, such as ``("FP32", "INT8")``; "" where that is not told.
    """

    layers: tuple[str, ...]
    operators: str
    kernels: tuple[int, int]
    types: tuple[str, str]


@dataclass(frozen=True)
class LayerFeedback:
    """The kernels of the submission and of the reference, and their differences in words and as rows of a table."""

    kernels: tuple[int, int]
    sentences: tuple[str, ...]  # the most important first
    differences: tuple[Difference, ...]  # in order of execution


def compared_with_reference(lab: Lab, plan: Plan, examiner: Examiner) -> LayerFeedback | None:
    """Compare the plan that the examiner built from a submission with the reference's, which is built once a process.

    None where the lab hands in no ONNX model with a recipe, where the builder does not tell its kernels, or where the reference
    cannot be built: this is advice, and no points depend on it.
    """
    if not {"model.onnx", "recipe.toml"} <= lab.artifacts.keys() or not plan.layers.kernels:
        return None
    reference = _reference(lab.name, examiner.builder)
    return None if reference is None else compared(plan.layers, reference)


def compared(yours: LayerTable, reference: LayerTable) -> LayerFeedback:
    """The differences between two tables that both have kernels."""
    kernels = (len(yours.kernels), len(reference.kernels))
    if not set(_layers(yours)) & set(_layers(reference)):
        said = "Your graph has other names for its layers than the reference, so they could not be compared one by one."
        return LayerFeedback(kernels, (_about_kernels(*kernels), said), ())
    reference = _with_names_of(yours, reference)
    found = diff(reference, yours)
    sentences = (_about_kernels(*kernels), *_about_types(yours, reference), *_about_fusion(found), *_about_nodes(found))
    rows = [_difference(found, change) for change in found.changes if change.after]
    return LayerFeedback(
        kernels, sentences, tuple(row for row in rows if row.layers and (row.types[0] or len(set(row.kernels)) > 1))
    )


@cache
def _reference(name: str, builder: str) -> LayerTable | None:
    lab, examiner = labs.find(name), Examiner(builder=builder)
    try:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as scratch:
            lab.write_reference(Path(folder), opset=examiner.opset)
            model = onnx_model.fixed(Path(folder, "model.onnx"), Path(scratch), examiner)
            table = examiner.build(model, Recipe.load(Path(folder, "recipe.toml"))).layers
    except CourseError:
        return None
    return table if table.kernels else None


def _with_names_of(yours: LayerTable, reference: LayerTable) -> LayerTable:
    """The reference's table, in which nodes that only have another name have the submission's name.

    Nodes of one graph alone are the same node if the order of the operators puts them in the same place.
    """
    own, theirs = list(yours.operators), list(reference.operators)
    same = SequenceMatcher(None, list(reference.operators.values()), list(yours.operators.values()), autojunk=False)
    pairs = ((theirs[a + i], own[b + i]) for a, b, size in same.get_matching_blocks() for i in range(size))
    names = {old: new for old, new in pairs if old not in yours.operators and new not in reference.operators}
    kernels = [
        replace(kernel, onnx_nodes=tuple(names.get(node, node) for node in kernel.onnx_nodes)) for kernel in reference.kernels
    ]
    return LayerTable(tuple(kernels), {names.get(node, node): operator for node, operator in reference.operators.items()})


def _about_kernels(yours: int, reference: int) -> str:
    more = f"{abs(yours - reference)} {'more' if yours > reference else 'fewer'} than" if yours != reference else "as many as"
    return f"Your engine has {counted(yours, 'kernel')}, {more} the reference."


def _about_types(yours: LayerTable, reference: LayerTable) -> Iterator[str]:
    """For each pair of types the layers in which the submission has the one and the reference the other; other operators are counted."""
    pairs: dict[tuple[str, str], list[str]] = defaultdict(list)
    theirs = _types(reference)
    for node, dtype in _types(yours).items():
        if node in theirs and dtype != theirs[node]:
            pairs[dtype, theirs[node]].append(node)
    layers = set(_layers(yours))
    for (own, other), nodes in sorted(pairs.items()):
        named = [node for node in yours.operators if node in nodes and node in layers]
        where = f"{dtype_name(own)} where the reference does in {dtype_name(other)}"
        if named:
            yield f"{counted(len(named), 'layer')} {'computes' if len(named) == 1 else 'compute'} in {where}: {listed(named, _MOST)}."
        if rest := len(nodes) - len(named):
            yield f"{counted(rest, 'operator')} between layers {'computes' if rest == 1 else 'compute'} in {where}."


def _about_fusion(found: TableDiff) -> Iterator[str]:
    def places(patterns: Sequence[Together]) -> str:
        return listed((f"{pattern} in {counted(pattern.places, 'place')}" for pattern in patterns), _MOST)

    if found.parted:
        yield f"Apart in your engine, one kernel in the reference: {places(found.parted)}."
    if found.fused:
        yield f"One kernel in your engine, apart in the reference: {places(found.fused)}."


def _about_nodes(found: TableDiff) -> Iterator[str]:
    """What the submission's graph has more of. Nodes that are only called otherwise are on both sides and cancel."""
    more = Counter(found.operators([node]) for node in found.only_after)
    more -= Counter(found.operators([node]) for node in found.only_before)
    del more["Constant"]
    if more:
        yield f"Only your graph has: {listed((counted(n, operator) for operator, n in more.most_common()), _MOST)}."


def _difference(found: TableDiff, change: Change) -> Difference:
    own = found.after.operators
    nodes = list(dict.fromkeys(node for kernel in change.after for node in kernel.onnx_nodes if node in own))
    layers = [node for node in nodes if own[node] in _MULTIPLY] or nodes
    reference, yours = change.differs.get("reads", ("", ""))
    return Difference(tuple(layers), found.operators(layers), (len(change.after), len(change.before)), (yours, reference))


def _layers(table: LayerTable) -> list[str]:
    return [node for node, operator in table.operators.items() if operator in _MULTIPLY]


def _types(table: LayerTable) -> dict[str, str]:
    """The narrowest type that any kernel with a node reads: a convolution in INT8 is often followed by a kernel that scales in FP32."""
    found: dict[str, set[str]] = defaultdict(set)
    for kernel in table.kernels:
        for node in kernel.onnx_nodes:
            found[node] |= {tensor.dtype for tensor in kernel.inputs}
    return {node: max(known, key=_WIDEST_FIRST.index) for node, types in found.items() if (known := types & set(_WIDEST_FIRST))}
