"""Exercises of lecture 13: blocks of a chain, the raw call, wrong outputs, and keywords that are not read."""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.exercises.comparing import shown
from course_lib.exercises.exercise import Answer, NotYet


class _Input:
    """A stand-in for `torch_tensorrt.Input`: it only remembers."""

    def __init__(
        self, shape: Any = None, *, min_shape: Any = None, opt_shape: Any = None, max_shape: Any = None, **_: Any
    ) -> None:
        self.shape, self.range = shape, (min_shape, opt_shape, max_shape)

    def __repr__(self) -> str:
        return "Input(...)"


class _TorchTensorRT:
    """A stand-in for the module `torch_tensorrt`: its `compile` accepts every keyword, as the real one does."""

    Input = _Input

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def compile(self, module: Any, ir: str = "default", inputs: Any = None, arg_inputs: Any = None, **kwargs: Any) -> str:
        self.calls.append({"module": module, "ir": ir, "inputs": arg_inputs if inputs is None else inputs, **kwargs})
        return "the compiled module"


_RANGE = ((1, 1, 32, 32), (8, 1, 32, 32), (32, 1, 32, 32))


def _whole_and_dynamic(compile_whole: Answer) -> None:
    library = _TorchTensorRT()
    call = "compile_whole(torch_tensorrt, module, smallest, best, largest)"
    found = compile_whole(library, "the module", *_RANGE)
    if len(library.calls) != 1:
        raise NotYet(f"`{call}` compiled {len(library.calls)} times, expected once. Call `torch_tensorrt.compile`.")
    made = library.calls[0]
    if made["module"] != "the module":
        raise NotYet(f"`{call}` compiled {shown(made['module'])}, expected `module`. It is the first argument.")
    if made["ir"] != "dynamo":
        raise NotYet(f"`{call}` used the frontend {made['ir']!r}, expected 'dynamo'. Only this result can be saved: pass `ir`.")
    _the_range(made["inputs"], call)
    if made.get("require_full_compilation") is not True:
        raise NotYet(
            f"`{call}` allowed parts in PyTorch, expected an error instead. "
            "An operator without a converter would stay there silently: pass `require_full_compilation=True`."
        )
    if "enabled_precisions" in made:
        raise NotYet(
            f"`{call}` passed `enabled_precisions`, expected no keyword for the type. "
            "The keyword is ignored since 2.13, and the module determines the type."
        )
    if found != "the compiled module":
        raise NotYet(f"`{call}` returned {shown(found)}, expected the compiled module. Return what `compile` returns.")


def _the_range(inputs: Any, call: str) -> None:
    if not isinstance(inputs, (list, tuple)) or len(inputs) != 1:
        raise NotYet(f"`{call}` passed the inputs {shown(inputs)}, expected a list with one `Input`. `arg_inputs` is a list.")
    only = inputs[0]
    if not isinstance(only, _Input):
        raise NotYet(f"`{call}` passed {shown(only)}, expected a `torch_tensorrt.Input`. A tensor or a shape fixes the batch.")
    if only.range == _RANGE:
        return
    if only.shape is not None:
        advice = "One shape fixes the batch. Use `min_shape`, `opt_shape` and `max_shape`."
    elif sorted(map(str, only.range)) == sorted(map(str, _RANGE)):
        advice = "The three shapes are in the wrong places: `min_shape` is the smallest, `opt_shape` the best."
    else:
        advice = "Pass all three shapes by their names."
    raise NotYet(f"`{call}` made an input with the range {only.range}, expected {_RANGE}. {advice}")


def _arrays(**values: list[float]) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in values.items()}


_EXACT = _arrays(logits=[10.0, -20.0], boxes=[100.0, 200.0], score=[0.5, 0.25], mask=[1.0, 0.0])
_EAGER = _arrays(logits=[10.01, -20.02], boxes=[100.0, 200.1], score=[0.5001, 0.25], mask=[1.001, 0.0])
_ENGINE = _arrays(logits=[10.03, -20.0], boxes=[100.0, 199.75], score=[np.nan, 0.25], mask=[0.9985, 0.0])


def _compile_like(module: object, *, min_block_size: int = 5, truncate_double: bool = False, **kwargs: object) -> None:
    """Reads three names, and accepts every other one."""


def _save_like(module: object, path: str = "", **settings: object) -> None:
    """Its catch-all has another name."""


EXAMINATIONS = {"13.2": _whole_and_dynamic}
ARGUMENTS = {
    "13.3": (
        (_EXACT, _EAGER, _ENGINE, 2),
        (_EXACT, _EAGER, _EAGER, 1),
    ),
    "13.4": (
        (_compile_like, ("min_blok_size", "truncate_double", "calibrator")),
        (_compile_like, ("kwargs",)),
        (_save_like, ("settings", "filepath", "module")),
    ),
}
