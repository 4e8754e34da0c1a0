"""An optimization profile over real traffic: covered requests, rejected requests, and the time of the answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from course_lib.teaching.widgets.view import View


class ProfileExplorer(View):
    """min, opt and max of one dimension, moved over measured latency curves and a trace of requests.

    Each selectable value of opt has its own curve, measured on an engine that was built for it. Between two measured sizes, the
    latency is interpolated linearly.

    Args:
        curves: for each opt, size to median latency in milliseconds at two sizes or more.
        requests: the size of each request, in any order.
        dimension: name of the dimension, such as "batch".

    Raises:
        ValueError: sizes or latencies that are not positive, fewer than two measured sizes, no curve, or no requests.
    """

    def __init__(self, curves: Mapping[int, Mapping[int, float]], requests: Sequence[int], dimension: str = "batch") -> None:
        asked = np.asarray(list(requests))
        _check(curves, asked)
        sizes, counts = np.unique(asked, return_counts=True)
        nearest = min(sorted(curves), key=lambda opt: abs(opt - int(sizes[counts.argmax()])))
        data = {
            "curves": {str(opt): sorted(map(list, curve.items())) for opt, curve in sorted(curves.items())},
            "requests": np.stack([sizes, counts], axis=1).tolist(),
            "dimension": dimension,
            "largest": int(max(sizes[-1], *(size for curve in curves.values() for size in curve))),
        }
        super().__init__("profile", data, {"low": 1, "opt": nearest, "high": max(int(sizes[-1]), nearest)})


def _check(curves: Mapping[int, Mapping[int, float]], requests: np.ndarray) -> None:
    if not curves:
        raise ValueError("curves must hold a latency curve for each opt, and found none: measure at least one engine")
    for opt, curve in curves.items():
        if len(curve) < 2 or min(curve) < 1 or not all(0 < ms < math.inf for ms in curve.values()):
            raise ValueError(
                f"the curve of opt {opt} must map at least two sizes from 1 on to positive milliseconds, found {curve}"
            )
    if not requests.size or requests.dtype.kind not in "iu" or requests.min() < 1:
        raise ValueError("requests must hold the size of each request, whole numbers from 1 on, and at least one of them")
