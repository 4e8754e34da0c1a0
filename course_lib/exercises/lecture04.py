"""Exercises of lecture 4: tiles and waves, a choice from noisy timings, the key of a timing cache, and builds on a busy host."""

from __future__ import annotations

from typing import Any

from course_lib.exercises.comparing import shown
from course_lib.exercises.exercise import Answer, NotYet

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

EXAMINATIONS = {"4.3": _examine_key}
ARGUMENTS = {
    "4.5": (
        (_SWEEP, 0.01),
        (_SWEEP, 0.02),
        ([("a", 1.6, [0.02, 0.0])], 0.001),
        ([("d", None, []), ("default", 2.0, [0.0, 0.0])], 0.001),
    )
}
