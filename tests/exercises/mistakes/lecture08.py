"""Wrong answers to the exercises of lecture 8."""

from __future__ import annotations

from itertools import combinations

import numpy as np


def _profile(order=(0, 1, 2), names=None, added=True, result=lambda index, profile: index, each=False):
    def add_profile(builder, config, ranges):
        profile = builder.create_optimization_profile()
        for name, shapes in list(ranges.items())[:names]:
            if each:
                profile = builder.create_optimization_profile()
            profile.set_shape(name, *(shapes[place] for place in order))
        index = config.add_optimization_profile(profile) if added else 0
        if index < 0 and result(index, profile) != index:
            raise ValueError("rejected")
        return result(index, profile)

    return add_profile


def _sums(profiles, requests, holds, choose=lambda fitting: fitting[0]):
    """Pairs of sent and computed tokens."""
    pairs = []
    for batch, sequence in requests:
        fitting = [profile for profile in profiles if holds(batch, sequence, *profile)]
        if fitting:
            most, longest = choose(fitting)
            pairs.append((batch * sequence, most * longest))
    return np.array(pairs)


def _both(batch, sequence, most, longest):
    return batch <= most and sequence <= longest


def _share(pairs):
    return 1 - pairs[:, 0].sum() / pairs[:, 1].sum()


def _smallest(fitting):
    return min(fitting, key=lambda profile: profile[0] * profile[1])


def _last_for_rejected(profiles, requests):
    served = _sums(profiles, requests, _both)
    lost = [request for request in requests if not any(_both(*request, *profile) for profile in profiles)]
    rows = [*served.tolist(), *([batch * sequence, profiles[-1][0] * profiles[-1][1]] for batch, sequence in lost)]
    return _share(np.array(rows))


def _limits(counts, ms, profiles, price=None):
    def cost(limits):
        ends = np.array(limits)[np.searchsorted(limits, np.arange(len(counts)))]
        return (counts * (ms if price is None else price)[ends]).sum()

    largest = len(counts) - 1
    return min(([*chosen, largest] for chosen in combinations(range(1, largest), profiles - 1)), key=cost)


def _one_more(counts, ms, profiles):
    limits = [len(counts) - 1]
    while len(limits) < profiles:
        options = [sorted({*limits, size}) for size in range(1, len(counts) - 1) if size not in limits]

        def cost(limits):
            return (counts * ms[np.array(limits)[np.searchsorted(limits, np.arange(len(counts)))]]).sum()

        limits = min(options, key=cost)
    return limits


def _calls(again=False, one=False, waits=False, compiling=True, strictly=False, first=False, plain=False, none=False):
    def call_times(calls, strategy, compile_ms, fallback_ms, special_ms):
        ready, times = {}, []
        for start, shape in calls:
            key = 0 if one else shape
            new = key not in ready
            if new or again:
                ready[key] = start + compile_ms
            there = start > ready[key] if strictly else start >= ready[key] if compiling else not new
            if strategy == "eager" or waits:
                pays = not times if first else new
                times.append(pays * compile_ms + (0 if plain and pays else special_ms))
            else:
                times.append(special_ms if there and (none or strategy == "lazy") else fallback_ms)
        return times

    return call_times


MISTAKES = {
    "8.1": {
        "max before opt": _profile(order=(0, 2, 1)),
        "the first input only": _profile(names=1),
        "not added": _profile(added=False),
        "the profile": _profile(result=lambda index, profile: 99),
        "one profile for each input": _profile(each=True),
        "-1 is returned": _profile(),
    },
    "8.2": {
        "smallest": lambda profiles, requests: _share(_sums(profiles, requests, _both, _smallest)),
        "mean of shares": lambda profiles, requests: np.mean(
            [1 - sent / computed for sent, computed in _sums(profiles, requests, _both)]
        ),
        "of what was sent": lambda profiles, requests: (
            _sums(profiles, requests, _both)[:, 1].sum() / _sums(profiles, requests, _both)[:, 0].sum() - 1
        ),
        "either dimension": lambda profiles, requests: _share(_sums(profiles, requests, lambda b, s, m, n: b <= m or s <= n)),
        "rejected in the last": _last_for_rejected,
    },
    "8.3": {
        "next": lambda ms: {
            size: min(one, other) for (size, one), other in zip(ms.items(), [*list(ms.values())[1:], 99], strict=True)
        },
        "smaller sizes": lambda ms: {size: min(v for k, v in ms.items() if k <= size) for size in ms},
        "running maximum": lambda ms: {size: max(v for k, v in ms.items() if k <= size) for size in ms},
        "unchanged": dict,
        "by position": lambda ms: dict(zip(ms, np.minimum.accumulate(list(ms.values())[::-1])[::-1].tolist(), strict=True)),
    },
    "8.4": {
        "most frequent": lambda counts, ms, profiles: sorted(
            [*np.argsort(counts[:-1])[1 - profiles :].tolist(), len(counts) - 1]
        ),
        "rows": lambda counts, ms, profiles: _limits(counts, ms, profiles, np.arange(len(counts))),
        "own size": lambda counts, ms, profiles: _limits(counts, ms, profiles, np.ones(len(counts))),
        "without the last": lambda counts, ms, profiles: _limits(counts, ms, profiles)[:-1],
        "one more": _one_more,
    },
    "8.5": {
        "compiled again": _calls(again=True),
        "one kernel for all": _calls(one=True),
        "lazy waits": _calls(waits=True),
        "ready at once": _calls(compiling=False),
        "strictly later": _calls(strictly=True),
        "the first call only": _calls(first=True),
        "without the kernel": _calls(plain=True),
        "none compiles": _calls(none=True),
    },
}
