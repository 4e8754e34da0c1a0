"""The differences between two plans: kernels that merged, split, changed their types, appeared or vanished."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from course_lib import style
from course_lib._util.html import LEFT, notebook_table
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
_WORDS = {"kept": "", "appeared": "added", "vanished": "gone"}  # the other kinds speak for themselves
# of a table's rows: what is one kernel less, in another place, or one more; transparent, so that dark themes stay readable
_TINTS = {
    "merged": f"{style.COLORS[2]}33",
    **dict.fromkeys(("regrouped", "repeated"), f"{style.COLORS[0]}33"),
    "split": f"{style.COLORS[1]}33",
    "appeared": f"{style.COLORS[4]}33",
    "vanished": "#80808033",
}
_MOST = 3  # patterns that a sentence names before it counts the rest


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
        """The number of kernels, what was fused or taken apart most, and the type that changed most."""
        old, new = len(self.before.kernels), len(self.after.kernels)
        more = [change for change in self.of("split", "regrouped") if len(change.after) > len(change.before)]
        clauses = [f"{_called(best)} fused in {_places(best.places)}" for best in self.fused[:1] if new <= old]
        clauses += [f"{_called(worst)} taken apart in {_places(worst.places)}" for worst in self.parted[:1] if new > old]
        clauses += [f"split in {_places(len(more))}"] if more and not clauses else []
        types = _moves(self, "reads") or _moves(self, "weights")
        clauses += [f"{move} in {_kernels(n)}" for move, n in types.most_common(1)]
        counts = f"{_kernels(old)} became {new}" if old != new else f"{_kernels(old)} stayed {new}"
        return counts + (f": {', '.join(clauses)}" if clauses else "")

    def __str__(self) -> str:
        return "\n".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        """One sentence for each kind of change that occurs."""
        yield f"{_kernels(len(self.before.kernels))} before, {len(self.after.kernels)} after; {len(self.unchanged)} unchanged."
        if not self.of("kept", "merged", "split", "regrouped", "repeated"):
            yield (
                "The two tables have no ONNX node in common, so no kernel could be matched: compare plans of one export, "
                "in which nodes have the same names."
            )
        for word, found in (("Fused", self.fused), ("Taken apart", self.parted)):
            if found:
                yield f"{word}: {listed(f'{what} in {_places(what.places)}' for what in found)}."
        for kind in ("merged", "split", "regrouped", "repeated"):
            patterns = Counter(_pattern(self, change) for change in self.changes if change.kind == kind)
            if patterns:
                yield f"{kind.capitalize()}: {listed(f'{what} in {_places(n)}' for what, n in patterns.most_common())}."
        for what in ("reads", "weights", "writes", "format"):
            if moves := _moves(self, what):
                yield f"{what.capitalize()}: {listed(f'{move} in {_kernels(n)}' for move, n in moves.most_common())}."
        for word, kernels in (
            ("Added", [c.after[0] for c in self.of("appeared")]),
            ("Gone", [c.before[0] for c in self.of("vanished")]),
        ):
            if kernels:
                yield f"{word}: {_kernels(len(kernels))} ({_holding(self, kernels)})."
        for side, nodes in (("before", self.only_before), ("after", self.only_after)):
            if nodes:
                types = Counter(self.operators([node]) for node in nodes)
                yield f"Nodes that only the graph {side} has: {_summed(types)}."

    def _repr_html_(self) -> str:
        """One row per change, in order of execution; unchanged kernels in one row at the end. Names of kernels and nodes are tooltips."""
        from markupsafe import Markup

        def named(kernels: Sequence[Layer]) -> Markup:
            holds = ((kernel.name, self.operators(kernel.onnx_nodes) or "no ONNX node") for kernel in kernels)
            return Markup("<br>").join(Markup('<span title="{}">{}</span>').format(*one) for one in holds)

        kinds = [
            what for what in ("reads", "weights", "writes", "format") if any(what in change.differs for change in self.changes)
        ]
        rows = [
            (
                {"style": f"background:{_TINTS.get(change.kind, 'transparent')}", "title": ", ".join(change.nodes)},
                (
                    _WORDS.get(change.kind, change.kind),
                    named(change.before),
                    named(change.after),
                    *(" → ".join(change.differs.get(what, ())) for what in kinds),
                ),
            )
            for change in self.changes
            if not change.unchanged
        ]
        if self.unchanged:
            rows.append(({}, ("", f"{_kernels(len(self.unchanged))} unchanged")))
        return notebook_table(self.headline, dict.fromkeys(("", "before", "after", *kinds), f"{LEFT};vertical-align:top"), rows)

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


def _pattern(diff: TableDiff, change: Change) -> str:
    return f"{_kernels(len(change.before))} became {len(change.after)} ({diff.operators(change.nodes)})"


def _moves(diff: TableDiff, what: str) -> Counter[str]:
    """How many kernels of the new plan have another type or format than before, by what it is and was."""
    moves: Counter[str] = Counter()
    for change in diff.changes:
        old = traits(change.before)[what]
        for kernel in change.after if what in change.differs else ():
            new = traits([kernel])[what]
            if new and new != old:
                moves[f"{new} instead of {old}"] += 1
    return moves


def _holding(diff: TableDiff, kernels: Sequence[Layer]) -> str:
    holds = Counter(diff.operators(kernel.onnx_nodes) for kernel in kernels if kernel.onnx_nodes)
    bare = Counter(kernel.short_name for kernel in kernels if not kernel.onnx_nodes)
    texts = [_summed(holds)] if holds else []
    texts += [f"without an ONNX node: {_summed(bare)}"] if bare else []
    return "; ".join(texts)


def _called(together: Together) -> str:
    return str(together).partition(" (")[0]


def _places(n: int) -> str:
    return counted(n, "place")


def _kernels(n: int) -> str:
    return counted(n, "kernel")


def counted(n: int, thing: str) -> str:
    """``"1 kernel"``, ``"2 kernels"``."""
    return f"{n} {thing}{'' if n == 1 else 's'}"


def _summed(things: Counter[str]) -> str:
    return listed(thing if n == 1 else f"{n} {thing}" for thing, n in things.most_common())


def listed(texts: Iterable[str], most: int = _MOST) -> str:
    """The first few, and how many more there are: ``"a, b, c and 3 more"``."""
    every = list(texts)
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
