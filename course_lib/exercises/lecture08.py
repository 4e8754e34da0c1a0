"""Exercises of lecture 8: a profile with TensorRT's own calls, padding, prices of padded sizes, and limits."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.exercises.comparing import same, shown
from course_lib.exercises.exercise import Answer, Case, Exercise, NotYet

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
_TWO = [(4, 128), (16, 16)]
_REQUESTS = [(2, 100), (8, 10), (3, 15)]
_COUNTS = np.array([0, 5, 19, 8, 8, 17, 16, 2, 1])
_MS = np.array([0, 1.0, 1.1, 1.2, 1.3, 4.0, 4.2, 4.4, 8.0])

EXERCISES = (
    Exercise(
        id="8.1",
        title="A profile with TensorRT's own calls",
        minutes=10,
        difficulty=1,
        importance=3,
        call="add_profile(builder, config, ranges)",
        hint="Follow the function `attempt` in the cells above, up to `add_optimization_profile`.",
        examine=_profile_is_added,
    ),
    Exercise(
        id="8.2",
        title="The share of padding",
        minutes=12,
        difficulty=2,
        importance=3,
        call="padding_share(profiles, requests)",
        hint="Write down for each request which profile serves it, how many tokens were sent, and how many are computed.",
        cases=(
            Case(
                (_TWO, _REQUESTS),
                955 / 1280,
                {
                    "You took the smallest profile that holds the request. The rule takes the first one.": 699 / 1024,
                    "You averaged the shares. A request that computes more tokens must count more: divide the sums.": 0.736328125,
                    "You divided by the tokens that were sent. The share is of those that are computed.": 955 / 325,
                    "That is the share without padding. Subtract it from 1.": 325 / 1280,
                    "You counted rows only. A padded sequence is computed in each row, too.": 11 / 24,
                    "The request (8, 10) does not fit into (4, 128): both numbers must fit.": 1211 / 1536,
                },
            ),
            Case(
                (_TWO, [(2, 100), (8, 100)]),
                312 / 512,
                {
                    "No profile holds (8, 100). A rejected request is not sent to the engine: do not count it.": -488 / 512,
                    "No profile holds (8, 100), not even the last one. Leave this request out.": -232 / 768,
                },
            ),
            Case((_TWO, [(4, 128)]), 0.0, {"A request of exactly the profile's max fits: compare with `<=`.": -1.0}),
        ),
    ),
    Exercise(
        id="8.3",
        title="What a padded size costs at most",
        minutes=8,
        difficulty=1,
        importance=1,
        call="padded_price(latency_ms)",
        hint="For each size, list the latencies of this size and of all larger sizes. Which of them counts?",
        cases=(
            Case(
                ({1: 2.0, 2: 4.0, 4: 3.0, 8: 2.5},),
                {1: 2.0, 2: 2.5, 4: 2.5, 8: 2.5},
                {
                    "You looked at the next size only. A request can be padded to any larger size.": {
                        1: 2.0,
                        2: 3.0,
                        4: 2.5,
                        8: 2.5,
                    },
                    "You took the minimum over smaller sizes. A request of 8 does not fit into a batch of 1.": {
                        1: 2.0,
                        2: 2.0,
                        4: 2.0,
                        8: 2.0,
                    },
                    "You raised later prices. A disturbance only makes a call slower, so the smaller number is the better estimate.": {
                        1: 2.0,
                        2: 4.0,
                        4: 4.0,
                        8: 4.0,
                    },
                    "You took the minimum over larger sizes. The size itself also counts.": {1: 2.5, 2: 2.5, 4: 2.5, 8: 2.5},
                    "Nothing changed. Size 2 was measured slower than size 8, although it can be padded to 8.": {
                        1: 2.0,
                        2: 4.0,
                        4: 3.0,
                        8: 2.5,
                    },
                },
            ),
            Case(
                ({8: 2.5, 2: 4.0, 1: 2.0, 4: 3.0},),
                {1: 2.0, 2: 2.5, 4: 2.5, 8: 2.5},
                {
                    "The sizes of this dictionary are not in order: compare sizes, not positions.": {
                        1: 2.0,
                        2: 2.0,
                        4: 3.0,
                        8: 2.0,
                    },
                },
            ),
        ),
    ),
    Exercise(
        id="8.4",
        title="The best limits for any number of profiles",
        minutes=20,
        difficulty=3,
        importance=2,
        call="best_limits(counts, ms, profiles)",
        hint="Evaluate the cost of one choice by hand: each size is multiplied by the price of the first limit that is not below it.",
        cases=(
            Case(
                (_COUNTS, _MS, 2),
                [6, 8],
                {
                    "That is the most frequent size. What counts is how often a limit saves time, multiplied by the time.": [
                        2,
                        8,
                    ],
                    "The last limit is missing. The service has to accept the largest size.": [6],
                    "You priced each request at its own size, so every choice costs the same. It costs what its limit costs.": [
                        1,
                        8,
                    ],
                    "You counted padded rows. Their times are in `ms`, and they do not grow evenly.": [5, 8],
                    "You halved the number of requests. The limit depends on the time that it saves.": [4, 8],
                },
                shown="best_limits(counts, ms, 2)",
            ),
            Case(
                (_COUNTS, _MS, 3),
                [4, 7, 8],
                {
                    "You kept the best limit of two profiles and added one. The best three need not contain it.": [4, 6, 8],
                    "You returned two limits for three profiles.": [6, 8],
                    "Those are the most frequent sizes. Compare the cost of all choices.": [2, 5, 8],
                },
                shown="best_limits(counts, ms, 3)",
            ),
            Case(
                (_COUNTS, _MS, 1),
                [8],
                {"One profile has one limit, the largest size.": [6, 8]},
                shown="best_limits(counts, ms, 1)",
            ),
        ),
    ),
    Exercise(
        id="8.5",
        title="Calls while a kernel is compiled",
        minutes=12,
        difficulty=2,
        importance=2,
        call="call_times(calls, strategy, compile_ms, fallback_ms, special_ms)",
        hint="Write down for each call whether its shape was seen before, and when its kernel is ready.",
        cases=(
            Case(
                (_CALLS, "lazy", 200, 5, 3),
                [5, 3, 5, 3, 3],
                {
                    "You started the compilation again at each call. It starts once for each shape.": [5, 5, 5, 5, 5],
                    "The kernel for 8 does not run 4. Keep a time for each shape.": [5, 3, 3, 3, 3],
                    "You used the kernel for every repeated shape, and that is right only once it is ready.": [5, 3, 5, 3, 5],
                    "You let the first call wait. With `lazy`, it runs the fallback.": [203, 3, 203, 3, 3],
                },
                shown="call_times(calls, 'lazy', 200, 5, 3)",
            ),
            Case(
                (_CALLS[:2], "lazy", 300, 5, 3),
                [5, 3],
                {
                    "The kernel is ready at 300, when the second call starts: compare with `>=`.": [5, 5],
                },
                shown="call_times([(0, 8), (300, 8)], 'lazy', 300, 5, 3)",
            ),
            Case(
                ([(0, 8), (100, 8)], "lazy", 200, 5, 3),
                [5, 5],
                {"At 100 the kernel is still compiled until 200, so the call runs the fallback.": [5, 3]},
                shown="call_times([(0, 8), (100, 8)], 'lazy', 200, 5, 3)",
            ),
            Case(
                (_CALLS, "eager", 200, 5, 3),
                [203, 3, 203, 3, 3],
                {
                    "The first call of each shape waits, not only the first call of all.": [203, 3, 3, 3, 3],
                    "After the compilation, the call still runs its kernel: add `special_ms`.": [200, 3, 200, 3, 3],
                    "An eager call does not run the fallback.": [205, 3, 205, 3, 3],
                },
                shown="call_times(calls, 'eager', 200, 5, 3)",
            ),
            Case(
                (_CALLS, "none", 200, 5, 3),
                [5, 5, 5, 5, 5],
                {"`none` never compiles, so every call runs the fallback.": [5, 3, 5, 3, 3]},
                shown="call_times(calls, 'none', 200, 5, 3)",
            ),
        ),
    ),
)
