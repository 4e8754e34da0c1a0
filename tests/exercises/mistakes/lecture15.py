"""Wrong answers to the exercises of lecture 15."""

from __future__ import annotations

import numpy as np


def _top(chance, p, kept_if, rescale=True):
    order = np.argsort(chance)[::-1]
    ordered = chance[order]
    kept = np.zeros_like(chance)
    chosen = order[kept_if(ordered, p)]
    kept[chosen] = chance[chosen]
    return kept / kept.sum() if rescale else kept


def _batches(answers, slots):
    return sum(max(answers[start : start + slots]) for start in range(0, len(answers), slots))


def _in_turn(answers, slots):
    return max(sum(answers[slot::slots]) for slot in range(slots))


def _longest_first(answers, slots):
    free = [0] * slots
    for answer in sorted(answers, reverse=True):
        free[free.index(min(free))] += answer
    return max(free)


def _draft(p, cost, candidates, first=0):
    return max(candidates, key=lambda k: sum(p**i for i in range(first, k + 1)) / (1 + cost * k))


MISTAKES = {
    "15.1": {
        "query heads": lambda size, tokens, each=2: 2 * size.layers * size.heads * size.head_size * tokens * each,
        "keys only": lambda size, tokens, each=2: size.layers * size.kv_heads * size.head_size * tokens * each,
        "always FP16": lambda size, tokens, each=2: 4 * size.layers * size.kv_heads * size.head_size * tokens,
        "one layer": lambda size, tokens, each=2: 2 * size.kv_heads * size.head_size * tokens * each,
        "an attribute that does not exist": lambda size, tokens, each=2: 2 * size.n_layers * tokens * each,
    },
    "15.2": {
        "static": _batches,
        "ideal": lambda answers, slots: -(-sum(answers) // slots),
        "in turn": _in_turn,
        "longest first": _longest_first,
    },
    "15.3": {
        "not rescaled": lambda chance, p: _top(chance, p, lambda c, p: np.cumsum(c) - c < p, rescale=False),
        "drops the one that reaches p": lambda chance, p: _top(chance, p, lambda c, p: np.cumsum(c) < p),
        "one too many at exactly p": lambda chance, p: _top(chance, p, lambda c, p: np.cumsum(c) - c <= p),
        "in place": lambda chance, p: chance.sort() or chance,
    },
    "15.4": {
        "no cost": lambda p, cost, longest: _draft(p, 0, range(longest + 1)),
        "no token of the large model": lambda p, cost, longest: _draft(p, cost, range(1, longest + 1), first=1),
        "always drafts": lambda p, cost, longest: _draft(p, cost, range(1, longest + 1)),
        "one too short": lambda p, cost, longest: _draft(p, cost, range(longest)),
    },
}
