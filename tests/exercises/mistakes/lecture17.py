"""Wrong answers to the exercises of lecture 17."""

from __future__ import annotations

import math

import numpy as np


def _workers(weights="once", scratch=None, buffers=True, rounded=math.floor, least=0, of_all=False):
    def workers_that_fit(free, models, shared):
        parts = np.array(models)
        total = {"once": parts[:, 0].sum(), "each": 0, "never": 0}[weights]
        memory = (scratch or (lambda sizes, shared: sizes.max() if shared else sizes.sum()))(parts[:, 1], shared)
        each = memory + (parts[:, 2].sum() if buffers else 0) + (parts[:, 0].sum() if weights == "each" else 0)
        if of_all and shared:
            return (free - total - memory) // parts[:, 2].sum()
        return max(least, rounded((free - total) / each))

    return workers_that_fit


def _tensor(error, beyond=lambda error, limit: error > limit or np.isnan(error), largest=False, missing=""):
    def first_wrong(reference, tested, limit):
        found = {}
        for name, right in reference.items():
            if name not in tested:
                found[name] = np.inf if missing else 0.0
            else:
                with np.errstate(all="ignore"):
                    found[name] = error(tested[name], right)
        wrong = [name for name, value in found.items() if beyond(value, limit)]
        return "" if not wrong else max(wrong, key=found.get) if largest else wrong[0]

    return first_wrong


def _relative(found, right):
    return np.abs(found - right).max() / np.abs(right).max()


def _search(middle=lambda low, high: (low + high) // 2, right=1, wrong=0, none="", twice=False):
    def halved(names, is_wrong):
        low, high = 0, len(names)
        while low < high:
            place = middle(low, high)
            if twice:
                is_wrong(names[place])
            if is_wrong(names[place]):
                high = place + wrong
            else:
                low = place + right
        return names[min(low, len(names) - 1)] if low < len(names) or none == "last" else none

    return halved


def _after(names, is_wrong):
    found = _search()(names, is_wrong)
    return names[min(names.index(found) + 1, len(names) - 1)] if found else ""


def _before(names, is_wrong):
    found = _search()(names, is_wrong)
    return names[max(names.index(found) - 1, 0)] if found else ""


MISTAKES = {
    "17.1": {
        "weights of each": _workers(weights="each"),
        "without buffers": _workers(buffers=False),
        "never shared": _workers(scratch=lambda sizes, shared: sizes.sum()),
        "always shared": _workers(scratch=lambda sizes, shared: sizes.max()),
        "the smallest": _workers(scratch=lambda sizes, shared: sizes.min() if shared else sizes.sum()),
        "without weights": _workers(weights="never"),
        "negative": _workers(least=-99),
        "one for all": _workers(of_all=True),
    },
    "17.2": {
        "absolute": _tensor(lambda found, right: np.abs(found - right).max()),
        "each value": _tensor(lambda found, right: (np.abs(found - right) / np.abs(right)).max()),
        "largest": _tensor(_relative, largest=True),
        "NaN": _tensor(_relative, beyond=lambda error, limit: error > limit),
        "fused": _tensor(_relative, missing="wrong"),
    },
    "17.3": {
        "linear": _search(middle=lambda low, high: low),
        "twice": _search(twice=True),
        "the one after": _after,
        "the one before": _before,
        "the last": _search(none="last"),
        "a position": lambda names, is_wrong: 0,
    },
}
