"""Exercises of lecture 4: tiles and waves, a choice from noisy timings, the key of a timing cache, and builds on a busy host."""

from __future__ import annotations

from typing import Any

from course_lib.exercises.comparing import shown
from course_lib.exercises.exercise import Answer, Case, Exercise, NotYet

_TIMES = {  # in ms: the best one was disturbed once, and each of the others is best by a worse rule
    "tile128": [1.01, 1.00, 9.00, 0.99, 1.01],
    "tile256": [1.10, 1.10, 1.10, 1.10, 1.10],
    "tile32": [1.30, 0.50, 1.30, 1.30, 1.30],
    "tile64": [0.80, 1.40, 1.40, 1.40, 1.40],
}
_CLOSE = {"b": [1.00, 1.01, 1.00], "c": [1.50, 1.52, 1.51], "a": [1.01, 1.01, 1.02]}

_QUIET_US = [74.0, 73.8, 75.2, 73.7, 73.3]  # the five builds alone of the record
_ENGINES_US = {  # the limit is 76.7; each engine is judged wrongly by another rule
    "ci": [83.7, 83.5, 83.9],
    "close": [75.9, 76.0, 75.9],
    "laptop": [144.3, 144.1, 144.5],
    "night": [74.6, 140.0, 74.4],
    "shared": [75.0, 90.3, 90.1],
    "typical": [75.0, 75.1, 75.0],
}

_LAYER = {
    "name": "/block1/conv1/Conv",
    "operator": "Conv",
    "shapes": [[8, 64, 32, 32], [64, 64, 3, 3]],
    "types": ["float16", "float16"],
    "attributes": {"pads": [1, 1, 1, 1], "strides": [1, 1]},
}
_MACHINE = {"gpu": "NVIDIA L4", "tensorrt": "11.4", "cuda": "13.1", "host": "build-server-7"}


def _examine_key(called: Answer) -> None:
    key = called(dict(_LAYER), dict(_MACHINE))
    if not isinstance(key, str):
        raise NotYet(
            f"`timing_key` returned {shown(key)}, expected a text. A cache is a file, and its keys are written into it."
        )
    if not key:
        raise NotYet(
            "`timing_key` returned an empty text, so all layers share one entry. Put what the time depends on into the key."
        )
    if "0x" in key and " at " in key:
        raise NotYet("the key contains the address of an object, which changes with each run. Write its content.")
    for same, words in _EQUAL:
        if called(*same) != key:
            raise NotYet(f"{words[0]}, and `timing_key` returned another key, expected the same. {words[1]}")
    for other, words in _DIFFERENT:
        if called(*other) == key:
            raise NotYet(f"{words[0]}, and `timing_key` returned the same key, expected another. {words[1]}")


def _layer(**changes: Any) -> tuple[dict[str, Any], dict[str, str]]:
    return {**_LAYER, **changes}, dict(_MACHINE)


def _machine(**changes: str) -> tuple[dict[str, Any], dict[str, str]]:
    return dict(_LAYER), {**_MACHINE, **changes}


_EQUAL = (
    (
        _layer(name="/block2/conv1/Conv"),
        ("Another layer does the same work", "Leave out the name: networks repeat layers, and each should be timed once."),
    ),
    (
        _machine(host="build-server-8"),
        (
            "Another server has the same GPU and versions",
            "Leave out the host: a colleague with the same GPU can use your cache.",
        ),
    ),
    (
        ({key: _LAYER[key] for key in reversed(_LAYER)}, {key: _MACHINE[key] for key in reversed(_MACHINE)}),
        (
            "The fields of the dictionaries came in another order",
            "Sort them: `json.dumps(..., sort_keys=True)`.",
        ),
    ),
    (
        _layer(attributes={"strides": [1, 1], "pads": [1, 1, 1, 1]}),
        (
            "The attributes of the layer came in another order",
            "Sort them too: `json.dumps(..., sort_keys=True)` sorts at every depth.",
        ),
    ),
)
_DIFFERENT = (
    (_layer(operator="ConvTranspose"), ("The operator differs", "Another operator has other kernels.")),
    (
        _layer(shapes=[[32, 64, 32, 32], [64, 64, 3, 3]]),
        ("The batch differs", "The best tile depends on every size, and the batch is one of them."),
    ),
    (_layer(types=["float32", "float32"]), ("The types differ", "A kernel for FP32 has another time than one for FP16.")),
    (
        _layer(attributes={"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ("The strides differ", "The attributes change the amount of work."),
    ),
    (_machine(gpu="NVIDIA A100"), ("The GPU differs", "A time that was measured on another GPU is of no use here.")),
    (_machine(tensorrt="11.5"), ("The TensorRT version differs", "A new version brings new kernels, which were not timed.")),
    (
        _machine(cuda="13.2"),
        ("The CUDA version differs", "Kernels are compiled by CUDA: TensorRT's own cache depends on its version."),
    ),
)

_SWEEP = [
    ("default", 2.0, [0.0, 0.001]),
    ("a", 1.6, [0.02, 0.0]),
    ("b", 1.8, [0.004, 0.009]),
    ("c", 1.5, [0.0, float("nan")]),
    ("e", 1.4, [0.5, 0.5]),
]

EXERCISES = (
    Exercise(
        id="4.1",
        title="Waves of tiles",
        minutes=8,
        difficulty=1,
        importance=2,
        call="waves(rows, columns, tile, multiprocessors)",
        hint="Count the tiles in each direction, rounded up. Then count the rounds, rounded up.",
        cases=(
            Case(
                (1000, 300, (128, 64), 16),
                3,
                {
                    "A partial wave takes as long as a full one: round up.": 2.5,
                    "You rounded down. The last tiles and the last wave take time too.": 1,
                    "You rounded the tiles down. The tiles at the edges take time too.": 2,
                    "That is the number of tiles. Divide it among the multiprocessors.": 40,
                },
            ),
            Case(
                (256, 256, (128, 128), 4),
                1,
                {
                    "The sizes are multiples of the tile here, and nothing has to be rounded up: `n // tile + 1` is one too many.": 3
                },
            ),
            Case(
                (129, 65, (128, 64), 3),
                2,
                {
                    "Each direction needs two tiles here, which is four together. You rounded the area, which fills two tiles.": 1
                },
            ),
        ),
    ),
    Exercise(
        id="4.2",
        title="A choice that can be reproduced",
        minutes=12,
        difficulty=2,
        importance=2,
        call="choose(times_ms, tolerance=0.02)",
        hint="Compute the median of each tactic. Then collect the tactics that are close to the best one.",
        cases=(
            Case(
                (_TIMES,),
                "tile128",
                {
                    "`tile256` has the smallest mean, because the best tactic was disturbed once. Compare the medians.": "tile256",
                    "`tile32` was lucky once. The smallest of several times is not what a user sees; compare the medians.": "tile32",
                    "`tile64` was fast in the first round only. Use all rounds, and compare the medians.": "tile64",
                },
                shown="choose(four tactics with five times each)",
            ),
            Case(
                (_CLOSE,),
                "a",
                {
                    "`a` and `b` differ by 1 %, within the tolerance. Of close tactics, take the first by name.": "b",
                    "`c` is 50 % slower. Only tactics within the tolerance of the best one may be chosen.": "c",
                },
                shown="choose({'b': about 1.00, 'c': about 1.51, 'a': about 1.01})",
            ),
            Case(
                ({"b": [1.0, 1.0, 1.0], "a": [1.1, 1.1, 1.1]}, 0.05),
                "b",
                {
                    "`a` is 10 % slower, and the tolerance is 5 %. Multiply the best median by `1 + tolerance` for the limit.": "a"
                },
            ),
            Case(
                ({"b": [100.0, 100.0, 100.0], "a": [101.0, 101.0, 101.0]},),
                "a",
                {"1 ms of 100 ms is within 2 %. The tolerance is relative, not in milliseconds.": "b"},
            ),
        ),
    ),
    Exercise(
        id="4.3",
        title="The key of a timing cache",
        minutes=15,
        difficulty=2,
        importance=2,
        call="timing_key(layer, machine)",
        hint="Ask of each field: can the best tactic change if this field changes?",
        examine=_examine_key,
    ),
    Exercise(
        id="4.4",
        title="Engines to build again",
        minutes=10,
        difficulty=2,
        importance=3,
        call="build_again(quiet_us, engines_us, tolerance=0.02)",
        hint="Quiet builds differ, too. An engine is slow only if it is slower than all of them.",
        cases=(
            Case(
                (_QUIET_US, _ENGINES_US),
                ["laptop", "shared", "ci"],
                {
                    "`close` and `typical` are as fast as quiet builds. Compare with the slowest quiet build, not with the fastest.": [
                        "laptop",
                        "shared",
                        "ci",
                        "close",
                        "typical",
                    ],
                    "`close` is within 2 % of the slowest quiet build. Multiply its time by `1 + tolerance` for the limit.": [
                        "laptop",
                        "shared",
                        "ci",
                        "close",
                    ],
                    "`night` was disturbed in one reading, and its engine is fast. Compare medians.": [
                        "laptop",
                        "night",
                        "shared",
                        "ci",
                    ],
                    "`shared` was fast in one reading only. Use its median, not its smallest time.": ["laptop", "ci"],
                    "These are the right engines in another order. Return the slowest one first.": ["ci", "laptop", "shared"],
                    "You sorted from fast to slow. Use `reverse=True`.": ["ci", "shared", "laptop"],
                    "These are the engines to keep. Return the ones that are slower than the limit.": [
                        "close",
                        "night",
                        "typical",
                    ],
                },
                shown="build_again(five quiet builds, six engines with three times each)",
            ),
            Case(
                ([74.0, 75.0], {"a": [76.0, 76.0, 76.0], "b": [75.0, 75.0, 75.0]}, 0.0),
                ["a"],
                {
                    "The tolerance is 0 here, and `a` is slower than both quiet builds. Use the argument `tolerance`.": [],
                    "`b` is exactly as fast as the slowest quiet build. Only an engine above the limit is built again.": [
                        "a",
                        "b",
                    ],
                },
            ),
            Case(
                ([700.0, 702.0], {"large": [710.0, 711.0, 710.0]}),
                [],
                {"710 µs is within 2 % of 702 µs. The tolerance is relative, not in microseconds.": ["large"]},
            ),
        ),
    ),
    Exercise(
        id="4.5",
        title="The winner of a sweep",
        minutes=8,
        difficulty=2,
        importance=2,
        call="winner(sweep, threshold)",
        hint="List the engines whose losses are all within the threshold. Which of them is the fastest?",
        cases=(
            Case(
                (_SWEEP, 0.01),
                "b",
                {
                    "`a` is faster, and its first loss is 0.02. Every loss must be within the threshold, not the last one alone.": "a",
                    "A loss of `c` is NaN, and `loss > threshold` is false for it. Ask whether the loss is within.": "c",
                    "`default` is accepted and slower than `b`.": "default",
                    "You ignored the losses, or took the slowest. Among the accepted engines, take the smallest `ms`.": "e",
                },
                shown="winner(sweep, 0.01)",
            ),
            Case(
                (_SWEEP, 0.02),
                "a",
                {"`a` has a loss of exactly 0.02, which is at most 0.02.": "b"},
                shown="winner(sweep, 0.02)",
            ),
            Case(
                ([("a", 1.6, [0.02, 0.0])], 0.001),
                "",
                {"No engine is accepted, so there is no winner.": "a"},
                shown="winner([('a', 1.6, [0.02, 0.0])], 0.001)",
            ),
            Case(
                ([("d", None, []), ("default", 2.0, [0.0, 0.0])], 0.001),
                "default",
                {"The build of `d` failed: `ms` is `None`, and there are no losses.": "d"},
                shown="winner([('d', None, []), ('default', 2.0, [0.0, 0.0])], 0.001)",
            ),
        ),
    ),
)
