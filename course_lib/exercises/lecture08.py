"""Exercises of lecture 8: a profile with TensorRT's own calls, padding, prices of padded sizes, and limits."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.exercises.comparing import same, shown
from course_lib.exercises.exercise import Answer, NotYet

_TOKENS = ((1, 1, 32), (4, 24, 32), (16, 128, 32))
_MASK = ((1, 1), (4, 24), (16, 128))


class _Watched:
    """TensorRT's builder, which remembers the profiles that it creates."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder
        self.profiles: list[Any] = []

    def create_optimization_profile(self) -> Any:
        self.profiles.append(self._builder.create_optimization_profile())
        return self.profiles[-1]


def _profile_is_added(add_profile: Answer) -> None:
    """Calls the answer with TensorRT for RTX, which builds nothing here and does not need a GPU."""
    import tensorrt_rtx as trt

    builder = trt.Builder(trt.Logger(trt.Logger.INTERNAL_ERROR))
    config = builder.create_builder_config()
    for index in range(2):
        watched = _Watched(builder)
        found = add_profile(watched, config, {"tokens": _TOKENS, "mask": _MASK})
        call = "add_profile(builder, config, {'tokens': ..., 'mask': ...})"
        if len(watched.profiles) != 1:
            raise NotYet(
                f"`{call}` created {len(watched.profiles)} profiles, expected 1. One profile holds the ranges of all inputs."
            )
        _ranges_are(watched.profiles[0], {"tokens": _TOKENS, "mask": _MASK}, call)
        if config.num_optimization_profiles != index + 1:
            raise NotYet(
                f"After `{call}` the config has {config.num_optimization_profiles} profiles, expected {index + 1}. "
                "A profile has no effect until `config.add_optimization_profile` receives it."
            )
        if not same(found, index):
            raise NotYet(
                f"`{call}` returned {shown(found)}, expected {index}. "
                "Return what `add_optimization_profile` returns: the index with which a context selects the profile."
            )
    _rejection_is_raised(add_profile, builder, config)


def _ranges_are(profile: Any, ranges: dict[str, tuple[tuple[int, ...], ...]], call: str) -> None:
    for name, expected in ranges.items():
        found = [tuple(shape) for shape in profile.get_shape(name)]
        if found == list(expected):
            continue
        if not found:
            advice = f"`{name}` has no range, and the build would fail: repeat `set_shape` for each input."
        elif sorted(found) == sorted(expected):
            advice = "The order of `set_shape(name, min, opt, max)` is wrong."
        else:
            advice = "Pass the three shapes of `ranges[name]` unchanged."
        raise NotYet(f"After `{call}` the range of `{name}` is {found}, expected {list(expected)}. {advice}")


def _rejection_is_raised(add_profile: Answer, builder: Any, config: Any) -> None:
    """TensorRT rejects a profile with a number, so a program has to ask for it."""
    call = "add_profile(builder, config, {'tokens': (max, opt, min)})"
    try:
        found = add_profile(_Watched(builder), config, {"tokens": _TOKENS[::-1]})
    except NotYet as problem:
        if isinstance(problem.__cause__, ValueError):
            return
        raise
    raise NotYet(
        f"`{call}` returned {shown(found)}, expected a ValueError. TensorRT rejects this profile and returns -1, not an error: check it."
    )


_CALLS = [(0, 8), (300, 8), (310, 4), (600, 4), (900, 8)]
_COUNTS = np.array([0, 5, 19, 8, 8, 17, 16, 2, 1])
_MS = np.array([0, 1.0, 1.1, 1.2, 1.3, 4.0, 4.2, 4.4, 8.0])

EXAMINATIONS = {"8.1": _profile_is_added}
ARGUMENTS = {
    "8.4": (
        (_COUNTS, _MS, 2),
        (_COUNTS, _MS, 3),
        (_COUNTS, _MS, 1),
    ),
    "8.5": (
        (_CALLS, "lazy", 200, 5, 3),
        (_CALLS[:2], "lazy", 300, 5, 3),
        ([(0, 8), (100, 8)], "lazy", 200, 5, 3),
        (_CALLS, "eager", 200, 5, 3),
        (_CALLS, "none", 200, 5, 3),
    ),
}
