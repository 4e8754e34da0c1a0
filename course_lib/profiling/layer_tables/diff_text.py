"""A diff of layer tables in words: one line, a few sentences, or a table for a notebook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from course_lib import style
from course_lib._util.html import LEFT, notebook_table
from course_lib.profiling.layer_tables.dtypes import traits

if TYPE_CHECKING:
    from course_lib.engines import Layer
    from course_lib.profiling.layer_tables.table_diff import Change, TableDiff, Together

_WORDS = {"kept": "", "appeared": "added", "vanished": "gone"}  # the other kinds speak for themselves
# of a table's rows: what is one kernel less, in another place, or one more; transparent, so that dark themes stay readable
_TINTS = {
    kind: f"{color}33"
    for kind, color in (
        ("merged", style.color(2)),
        ("regrouped", style.color(0)),
        ("repeated", style.color(0)),
        ("split", style.color(1)),
        ("appeared", style.color(4)),
        ("vanished", "#808080"),
    )
}
_MOST = 3  # patterns that a sentence names before it counts the rest


def headline(diff: TableDiff) -> str:
    """The number of kernels, what was fused or taken apart most, and the type that changed most."""
    old, new = len(diff.before.kernels), len(diff.after.kernels)
    more = [change for change in diff.of("split", "regrouped") if len(change.after) > len(change.before)]
    clauses = [f"{_called(best)} fused in {_places(best.places)}" for best in diff.fused[:1] if new <= old]
    clauses += [f"{_called(worst)} taken apart in {_places(worst.places)}" for worst in diff.parted[:1] if new > old]
    clauses += [f"split in {_places(len(more))}"] if more and not clauses else []
    types = _moves(diff, "reads") or _moves(diff, "weights")
    clauses += [f"{move} in {_kernels(n)}" for move, n in types.most_common(1)]
    counts = f"{_kernels(old)} became {new}" if old != new else f"{_kernels(old)} stayed {new}"
    return counts + (f": {', '.join(clauses)}" if clauses else "")


def sentences(diff: TableDiff) -> Iterator[str]:
    """One sentence for each kind of change that occurs."""
    yield f"{_kernels(len(diff.before.kernels))} before, {len(diff.after.kernels)} after; {len(diff.unchanged)} unchanged."
    if not diff.of("kept", "merged", "split", "regrouped", "repeated"):
        yield (
            "The two tables have no ONNX node in common, so no kernel could be matched: compare plans of one export, "
            "in which nodes have the same names."
        )
    for word, found in (("Fused", diff.fused), ("Taken apart", diff.parted)):
        if found:
            yield f"{word}: {listed(f'{what} in {_places(what.places)}' for what in found)}."
    for kind in ("merged", "split", "regrouped", "repeated"):
        patterns = Counter(_pattern(diff, change) for change in diff.changes if change.kind == kind)
        if patterns:
            yield f"{kind.capitalize()}: {listed(f'{what} in {_places(n)}' for what, n in patterns.most_common())}."
    for what in ("reads", "weights", "writes", "format"):
        if moves := _moves(diff, what):
            yield f"{what.capitalize()}: {listed(f'{move} in {_kernels(n)}' for move, n in moves.most_common())}."
    for word, kernels in (
        ("Added", [c.after[0] for c in diff.of("appeared")]),
        ("Gone", [c.before[0] for c in diff.of("vanished")]),
    ):
        if kernels:
            yield f"{word}: {_kernels(len(kernels))} ({_holding(diff, kernels)})."
    for side, nodes in (("before", diff.only_before), ("after", diff.only_after)):
        if nodes:
            types = Counter(diff.operators([node]) for node in nodes)
            yield f"Nodes that only the graph {side} has: {_summed(types)}."


def table(diff: TableDiff) -> str:
    """One row per change, in order of execution; unchanged kernels in one row at the end. Names of kernels and nodes are tooltips."""
    from markupsafe import Markup

    def named(kernels: Sequence[Layer]) -> Markup:
        holds = ((kernel.name, diff.operators(kernel.onnx_nodes) or "no ONNX node") for kernel in kernels)
        return Markup("<br>").join(Markup('<span title="{}">{}</span>').format(*one) for one in holds)

    kinds = [
        what for what in ("reads", "weights", "writes", "format") if any(what in change.differs for change in diff.changes)
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
        for change in diff.changes
        if not change.unchanged
    ]
    if diff.unchanged:
        rows.append(({}, ("", f"{_kernels(len(diff.unchanged))} unchanged")))
    return notebook_table(diff.headline, dict.fromkeys(("", "before", "after", *kinds), f"{LEFT};vertical-align:top"), rows)


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
