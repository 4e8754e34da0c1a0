"""Wrong answers to the exercises of lecture 11."""

from __future__ import annotations

import numpy as np


def _measured(result=np.median, cold=None, recorded=False, unit=1e3, more=0):
    def median_ms(call, clock, warmup, calls):
        found = []
        for number in range((warmup if cold is None else cold) + calls):
            started = clock()
            call()
            if recorded or number >= (warmup if cold is None else cold):
                found.append(unit * (clock() - started))
        for _ in range(more):
            call()
        return float(result(found))

    return median_ms


def _rounds(result):
    def interleaved_speedup(time_a, time_b, rounds):
        pairs = np.array([(time_a(), time_b()) for _ in range(rounds)])
        return float(result(pairs[:, 0], pairs[:, 1]))

    return interleaved_speedup


def _one_by_one(time_a, time_b, rounds):
    a = [time_a() for _ in range(rounds)]
    b = [time_b() for _ in range(rounds)]
    return float(np.median(np.divide(a, b)))


def _interval(center=np.median, ends=(2.5, 97.5), cut=True, wrap=True, neighbors=1):
    def block_interval(ratios, starts, block):
        size = len(ratios)
        picked = starts[:, :, None] + neighbors * np.arange(block)
        picked = picked % size if wrap else np.minimum(picked, size - 1)
        picked = picked.reshape(len(starts), -1)
        return tuple(np.percentile(center(ratios[picked[:, :size] if cut else picked], axis=1), ends))

    return block_interval


def _single(ratios, starts, block):
    return tuple(np.percentile(np.median(ratios[starts], axis=1), [2.5, 97.5]))


def _wait(added=True, least=0.0, own=False, queue=True, absolute=False):
    def response_times(gaps, calls):
        found, wait, now, before = [], 0, 0, 0
        for number, (gap, call) in enumerate(zip(gaps, calls, strict=True)):
            now += gap
            busy = call if own else before
            wait = max(least, wait + busy - gap) if number and queue else 0
            found.append(wait + call * added + now * absolute)
            before = call
        return found

    return response_times


MISTAKES = {
    "11.1": {
        "cold": _measured(cold=0),
        "warm-up recorded": _measured(recorded=True),
        "mean": _measured(result=np.mean),
        "seconds": _measured(unit=1),
        "minimum": _measured(result=np.min),
        "one call more": _measured(more=1),
    },
    "11.2": {
        "one after the other": _one_by_one,
        "ratio of the medians": _rounds(lambda a, b: np.median(a) / np.median(b)),
        "mean": _rounds(lambda a, b: np.mean(a / b)),
        "inverse": _rounds(lambda a, b: np.median(b / a)),
        "sums": _rounds(lambda a, b: a.sum() / b.sum()),
        "one round": lambda a, b, rounds: a() / b(),
    },
    "11.3": {
        "single rounds": _single,
        "not cut": _interval(cut=False),
        "mean": _interval(center=np.mean),
        "90 %": _interval(ends=(5, 95)),
        "all": _interval(ends=(0, 100)),
        "no wrap": _interval(wrap=False),
        "shares": _interval(ends=(0.025, 0.975)),
    },
    "11.4": {
        "middle": lambda low, high, threshold: "reached" if (low + high) / 2 >= threshold else "missed",
        "always undecided": lambda low, high, threshold: "undecided",
        "against 1": lambda low, high, threshold: "undecided" if low <= 1 <= high or low < threshold < high else "reached",
        "lower end": lambda low, high, threshold: "reached" if low >= threshold else "missed",
        "greater": lambda low, high, threshold: "reached" if low > threshold else "missed" if high < threshold else "undecided",
    },
    "11.5": {
        "below 0": _wait(least=-99),
        "waiting times": _wait(added=False),
        "no queue": _wait(queue=False),
        "absolute": _wait(absolute=True),
        "its own call": _wait(own=True),
    },
}
