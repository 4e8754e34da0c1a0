"""Requests of a small service, for choosing profiles: how many digits come at once on one day, and what a padded call costs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

LARGEST = 64  # digits that one request may hold
_KINDS = {  # what is sent, in digits, and how often; what is left are trays of many letters
    "a house number": ((1, 2, 3), (0.3, 0.45, 0.25), 0.18),
    "a postcode": ((5,), (1.0,), 0.52),
    "a postcode with its route": ((9,), (1.0,), 0.22),
}
_LETTERS = (4, 12)  # in a tray, five digits each


def mail_day(seed: int | None, *, requests: int = 4000) -> np.ndarray:
    """Sizes of the requests that a letter-sorting machine sends on one day, int64 ``(requests,)``, each 1 to `LARGEST`.

    It asks for a house number, a postcode, a postcode with its delivery route, or for a whole tray of letters at once.

    Args:
        seed: the same seed gives the same day, None an unknown one.
    """
    rng = np.random.default_rng(seed)
    shares = [share for _, _, share in _KINDS.values()]
    kind = rng.choice(len(_KINDS) + 1, size=requests, p=[*shares, 1 - sum(shares)])
    sizes = 5 * rng.integers(_LETTERS[0], _LETTERS[1] + 1, requests)  # trays; what is something else is overwritten
    for index, (digits, chances, _) in enumerate(_KINDS.values()):
        sizes = np.where(kind == index, rng.choice(digits, size=requests, p=chances), sizes)
    return sizes.astype(np.int64)


def padded_latency(latency_ms: Mapping[int, float]) -> dict[int, float]:
    """What a request of each size costs in a service that may pad it: the least time of its own size and of all larger ones.

    A call is disturbed by the machine in one direction only, it becomes slower. So where a size was measured slower than a
    larger one, the larger one's time is the better estimate, and a hump in the curve does not become the border of a profile.

    Args:
        latency_ms: milliseconds of a call by size.
    """
    price: dict[int, float] = {}
    least = float("inf")
    for size in sorted(latency_ms, reverse=True):
        least = price[size] = min(least, latency_ms[size])
    return dict(sorted(price.items()))
