"""Kernels of two plans brought together by the ONNX nodes that they hold: names differ from build to build, nodes do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence

Nodes = frozenset[str]
Group = tuple[tuple[int, ...], tuple[int, ...]]  # indices of kernels before and after


def matched_groups(before: Sequence[Nodes], after: Sequence[Nodes]) -> list[Group]:
    """The smallest groups of kernels that hold the same nodes before and after. Every kernel is in exactly one of them.

    Kernels with the same nodes are paired, in order of execution. The others are grouped with all kernels that share a node with
    them, directly or through a third. Kernels without any node are paired if they are between the same groups. The others stay
    single.

    Args:
        before, after: the nodes of each kernel, in order of execution. A node may be in several kernels.
    """
    common = frozenset().union(*before) & frozenset().union(*after)
    old, new = [nodes & common for nodes in before], [nodes & common for nodes in after]
    equal = _pairs_by(*({index: nodes for index, nodes in enumerate(side) if nodes} for side in (old, new)))
    pairs = _without_orphans([(i, j) for (i,), (j,) in equal], old, new)
    groups: list[Group] = [((i,), (j,)) for i, j in pairs]
    groups += _connected(set(range(len(old))) - {i for i, _ in pairs}, set(range(len(new))) - {j for _, j in pairs}, old, new)
    groups += _pairs_by(*(_neighbors(kernels, groups, side) for side, kernels in enumerate((before, after))))
    grouped = [{index for group in groups for index in group[side]} for side in (0, 1)]
    groups += [((i,), ()) for i in range(len(old)) if i not in grouped[0]]
    groups += [((), (j,)) for j in range(len(new)) if j not in grouped[1]]
    return sorted(groups, key=lambda group: _place(group, groups))


def _neighbors(kernels: Sequence[Nodes], groups: Sequence[Group], side: int) -> dict[int, tuple[int, int]]:
    """For each kernel without any node the groups of the nearest grouped kernels before and after it, -1 if there is none."""
    group_of = {index: number for number, group in enumerate(groups) for index in group[side]}
    numbers = [group_of.get(index) for index in range(len(kernels))]
    forwards, backwards = _latest(numbers), _latest(numbers[::-1])[::-1]
    between = {index: (forwards[index], backwards[index]) for index, nodes in enumerate(kernels) if not nodes}
    return {index: pair for index, pair in between.items() if pair != (-1, -1)}


def _latest(numbers: Sequence[int | None]) -> list[int]:
    """At each position the last number up to it, and -1 before the first number."""
    latest, last = [], -1
    for number in numbers:
        last = last if number is None else number
        latest.append(last)
    return latest


def _pairs_by(old: Mapping[int, Hashable], new: Mapping[int, Hashable]) -> list[Group]:
    """Indices with equal values, in order, if both sides have the same number of them."""
    places: dict[Hashable, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, values in enumerate((old, new)):
        for index, value in values.items():
            places[value][side].append(index)
    same = (both for both in places.values() if len(both[0]) == len(both[1]))
    return [((i,), (j,)) for both in same for i, j in zip(*both, strict=True)]


def _without_orphans(pairs: list[tuple[int, int]], old: Sequence[Nodes], new: Sequence[Nodes]) -> list[tuple[int, int]]:
    """The pairs without those that would separate a third kernel from its group.

    Example: ``{Conv, Relu}`` before, ``{Conv}`` and ``{Conv, Relu}`` after. Pairing the equal ones would leave a convolution without
    an origin, although one kernel was split in two.
    """
    while True:
        left_old = set(range(len(old))) - {i for i, _ in pairs}
        left_new = set(range(len(new))) - {j for _, j in pairs}
        free_old = frozenset().union(*(old[i] for i in left_old))
        free_new = frozenset().union(*(new[j] for j in left_new))
        orphans = [old[i] for i in left_old if not old[i] & free_new] + [new[j] for j in left_new if not new[j] & free_old]
        claimed = frozenset().union(*orphans)
        kept = [(i, j) for i, j in pairs if not old[i] & claimed]
        if len(kept) == len(pairs):
            return pairs
        pairs = kept


def _connected(rest_old: Iterable[int], rest_new: Iterable[int], old: Sequence[Nodes], new: Sequence[Nodes]) -> list[Group]:
    """The kernels that are left, grouped by the nodes that they share."""
    members: dict[str, set[tuple[int, int]]] = {}  # by node: side and index of every kernel in its group
    for side, index in [*((0, i) for i in sorted(rest_old)), *((1, j) for j in sorted(rest_new))]:
        nodes = (old, new)[side][index]
        group = {(side, index)}.union(*(members.get(node, ()) for node in nodes))
        touched = nodes.union(*((old, new)[s][i] for s, i in group))
        members.update(dict.fromkeys(touched, group))
    groups = {id(group): group for group in members.values()}.values()
    return [(_side(group, 0), _side(group, 1)) for group in groups]


def _side(group: Iterable[tuple[int, int]], side: int) -> tuple[int, ...]:
    return tuple(sorted(index for s, index in group if s == side))


def _place(group: Group, groups: Sequence[Group]) -> tuple[float, int]:
    """In order of execution before; kernels of only the other side come after the kernels that they follow there."""
    old, new = group
    if old:
        return min(old), 0
    _, previous = max(((min(j), min(i)) for i, j in groups if i and j and min(j) < min(new)), default=(-1, -1))
    return previous + 0.5, min(new)
