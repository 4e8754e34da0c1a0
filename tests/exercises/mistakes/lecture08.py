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


def _borders(counts, ms, profiles, price=None):
    def cost(borders):
        ends = np.array(borders)[np.searchsorted(borders, np.arange(len(counts)))]
        return (counts * (ms if price is None else price)[ends]).sum()

    largest = len(counts) - 1
    return min(([*chosen, largest] for chosen in combinations(range(1, largest), profiles - 1)), key=cost)


def _one_more(counts, ms, profiles):
    borders = [len(counts) - 1]
    while len(borders) < profiles:
        options = [sorted({*borders, size}) for size in range(1, len(counts) - 1) if size not in borders]

        def cost(borders):
            return (counts * ms[np.array(borders)[np.searchsorted(borders, np.arange(len(counts)))]]).sum()

        borders = min(options, key=cost)
    return borders


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
        "rows": lambda counts, ms, profiles: _borders(counts, ms, profiles, np.arange(len(counts))),
        "own size": lambda counts, ms, profiles: _borders(counts, ms, profiles, np.ones(len(counts))),
        "without the last": lambda counts, ms, profiles: _borders(counts, ms, profiles)[:-1],
        "one more": _one_more,
    },
}
