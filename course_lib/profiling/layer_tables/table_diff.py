"""The differences between two plans: kernels that merged, split, changed their types, appeared or vanished."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from course_lib.engines import Layer, LayerTable
from course_lib.profiling.layer_tables.boxes import nodes_of
from course_lib.profiling.layer_tables.dtypes import traits
from course_lib.profiling.layer_tables.kernel_groups import matched_groups

Kind = Literal["kept", "merged", "split", "regrouped", "repeated", "appeared", "vanished"]
# Operators that only move, cast or quantize values: not what a kernel is called after, unless it does nothing else.
_MOVES = {
    *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Split", "Concat", "Expand", "Gather", "Shape"),
    *("Identity", "Cast", "QuantizeLinear", "DequantizeLinear"),
}


@dataclass(frozen=True)
class Change:
    """Kernels before and after that hold the same ONNX nodes.

    Attributes:
        kind: "kept" (one kernel, then one), "merged" (several, then one), "split" (one, then several), "regrouped" (several, then
            several others), "repeated" (the same nodes in every kernel, but another number of kernels, as with a second profile),
            "appeared" (only after), "vanished" (only before).
        before, after: the kernels, in order of execution.
        differs: for each change of "reads", "weights", "writes" (datatypes) and "format" (of the output), the old and the new value.
            A value that one side does not report is not compared.
    """

    kind: Kind
    before: tuple[Layer, ...]
    after: tuple[Layer, ...]
    differs: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The ONNX nodes in any of the kernels."""
        return tuple(dict.fromkeys(node for kernel in (*self.before, *self.after) for node in kernel.onnx_nodes))

    @property
    def unchanged(self) -> bool:
        """One kernel before and one after, with the same nodes, types and format."""
        return self.kind == "kept" and not self.differs

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; kernels by name."""
        return {
            "kind": self.kind,
            "before": [kernel.name for kernel in self.before],
            "after": [kernel.name for kernel in self.after],
            "nodes": list(self.nodes),
            "differs": {what: list(both) for what, both in self.differs.items()},
        }


@dataclass(frozen=True)
class Together:
    """Operators that share a kernel in one plan and have separate kernels in the other.

    Attributes:
        operators: such as ``"Conv + Relu"``.
        places: number of such kernels.
        pieces: number of kernels of the other plan for all of them.
    """

    operators: str
    places: int
    pieces: int

    def __str__(self) -> str:
        before, softmax, after = self.operators.partition("Softmax")
        return f"attention ({self.operators})" if softmax and "MatMul" in before and "MatMul" in after else self.operators


@dataclass(frozen=True)
class TableDiff:
    """The result of `diff`. ``str`` gives sentences, ``headline`` one line, and a notebook shows a table.

    Attributes:
        before, after: the two tables.
        changes: every kernel of both, in order of execution, each in one change.
        only_before, only_after: ONNX nodes that are in only one of the tables, because the graphs differ.
    """

    before: LayerTable = field(repr=False)
    after: LayerTable = field(repr=False)
    changes: tuple[Change, ...]
    only_before: tuple[str, ...] = ()
    only_after: tuple[str, ...] = ()

    def of(self, *kinds: Kind) -> tuple[Change, ...]:
        """The changes of the given kinds, such as ``of("merged", "regrouped")``."""
        return tuple(change for change in self.changes if change.kind in kinds)

    @property
    def unchanged(self) -> tuple[Change, ...]:
        """One kernel before and one after, with the same nodes, types and format."""
        return tuple(change for change in self.changes if change.unchanged)

    @property
    def fused(self) -> tuple[Together, ...]:
        """Operators that share a kernel now and did not before, the ones that save most kernels first."""
        return self._together(self.after.kernels, self.before.kernels)

    @property
    def parted(self) -> tuple[Together, ...]:
        """Operators that shared a kernel and do not any more, the ones that cost most kernels first."""
        return self._together(self.before.kernels, self.after.kernels)

    def _together(self, kernels: Sequence[Layer], others: Sequence[Layer]) -> tuple[Together, ...]:
        theirs = [frozenset(other.onnx_nodes) for other in others]
        common = frozenset().union(*theirs)
        homes: dict[str, set[frozenset[str]]] = defaultdict(set)
        for kernel in kernels:
            for node in kernel.onnx_nodes:
                homes[node].add(frozenset(kernel.onnx_nodes))
        pieces: dict[str, list[int]] = defaultdict(list)
        for kernel in kernels:
            # a node in several kernels is whole in none of them: an INT8 convolution and the kernel that scales its result
            whole = [node for node in kernel.onnx_nodes if node in common and len(homes[node]) == 1]
            if len(whole) > 1 and not any(other.issuperset(whole) for other in theirs):
                pieces[self.operators(whole, at_least=2)].append(sum(not other.isdisjoint(whole) for other in theirs))
        found = [Together(operators, len(counts), sum(counts)) for operators, counts in pieces.items()]
        return tuple(sorted(found, key=lambda together: together.places - together.pieces))

    def operators(self, nodes: Iterable[str], *, at_least: int = 1) -> str:
        """The operators of nodes, in graph order, such as ``"Conv + Relu"``.

        Operators that only move values are left out if there are `at_least` others.
        """
        nodes = list(nodes)
        known = {**self.before.operators, **self.after.operators}
        # A node that only the second graph has stands at the end of the union: take the order of the graph that has most of them.
        order = max((self.before.operators, self.after.operators), key=lambda graph: sum(node in graph for node in nodes))
        place = {node: index for index, node in enumerate({**order, **known})}
        ordered = sorted(nodes, key=lambda node: place.get(node, len(place)))
        types = [known.get(node) or node.rpartition("/")[2] for node in ordered]  # without a graph a name's end has to serve
        computing = [operator for operator in types if operator not in _MOVES]
        return " + ".join(computing if len(computing) >= at_least else types)

    @property
    def headline(self) -> str:
        """One line: the number of kernels, and what matters most."""
        from course_lib.profiling.layer_tables.diff_text import headline

        return headline(self)

    def __str__(self) -> str:
        from course_lib.profiling.layer_tables.diff_text import sentences

        return "\n".join(sentences(self))

    def _repr_html_(self) -> str:
        from course_lib.profiling.layer_tables.diff_text import table

        return table(self)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "kernels": [len(self.before.kernels), len(self.after.kernels)],
            "summary": str(self).splitlines(),
            "changes": [change.to_json() for change in self.changes],
            "only_before": list(self.only_before),
            "only_after": list(self.only_after),
        }


def diff(before: LayerTable, after: LayerTable) -> TableDiff:
    """Compare the kernels of two plans of the same network, or of two versions of it.

    Kernels are matched by the ONNX nodes that they hold, so the plans may come from different builds, precisions and backends if the
    graphs use the same names of nodes. A node of only one of the graphs (a Q/DQ pair, a cast) does not match anything.

    Raises:
        ValueError: a table has no kernels, as with a backend that does not report them.
    """
    old, new = before.kernels, after.kernels
    if not old or not new:
        which = "before" if not old else "after"
        raise ValueError(
            f"the table {which} has no kernels to compare: build with tensorrt or tensorrt_rtx, or use profile_onnxruntime"
        )
    groups = matched_groups([frozenset(k.onnx_nodes) for k in old], [frozenset(k.onnx_nodes) for k in new])
    changes = (_change([old[i] for i in ours], [new[j] for j in theirs]) for ours, theirs in groups)
    mine, others = dict.fromkeys(nodes_of(before)), dict.fromkeys(nodes_of(after))
    return TableDiff(
        before,
        after,
        tuple(changes),
        tuple(node for node in mine if node not in others),
        tuple(node for node in others if node not in mine),
    )


def _change(before: Collection[Layer], after: Collection[Layer]) -> Change:
    return Change(_kind(before, after), tuple(before), tuple(after), _differs(before, after) if before and after else {})


def _kind(before: Collection[Layer], after: Collection[Layer]) -> Kind:
    if not before or not after:
        return "vanished" if before else "appeared"
    if len(before) == len(after) == 1:
        return "kept"
    if len({frozenset(kernel.onnx_nodes) for kernel in (*before, *after)}) == 1:
        return "repeated"
    return "merged" if len(after) == 1 else "split" if len(before) == 1 else "regrouped"


def _differs(before: Collection[Layer], after: Collection[Layer]) -> dict[str, tuple[str, str]]:
    old, new = traits(before), traits(after)
    return {what: (old[what], new[what]) for what in old if old[what] and new[what] and old[what] != new[what]}
