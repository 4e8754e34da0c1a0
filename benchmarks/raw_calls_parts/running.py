"""What the sections of `child` share: the folder, TensorRT with a context, learners' code by name, and rows of what became of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorrt as trt  # before pycuda: in the other order, 8.6.0 crashes

from benchmarks.recording import Row, one_line
from course_lib.engines.backends.tensorrt.builder import compile_plan
from course_lib.engines.backends.tensorrt.memory import cuda
from course_lib.engines.plan import Plan

FOLDER, SECTION = Path(sys.argv[1]), sys.argv[2]
DRIVER = cuda()  # a context is active from here on
LOGGER = trt.Logger()
RUNTIME = trt.Runtime(LOGGER)  # TensorRT keeps the first logger of a process, and learners' loggers go with their code
CODE: dict[str, str] = json.loads((FOLDER / "code.json").read_text())
SETTINGS: dict[str, int] = json.loads((FOLDER / "settings.json").read_text())


def defined(code: str, **given: Any) -> dict[str, Any]:
    """What a learner's code defines when it runs as it is, with these names of earlier cells."""
    found = {"__name__": "learner", "trt": trt, "cuda": DRIVER, "np": np, **given}
    exec(compile(CODE[code], code, "exec", dont_inherit=True), found)
    return found


def built(name: str, **changes: Any) -> Plan:
    """The engine of a file from `material`, with some values of its recipe changed."""
    recipe = json.loads((FOLDER / f"{name}.json").read_text()) | changes
    return compile_plan(trt, "tensorrt", FOLDER / f"{name}.onnx", recipe, {})


def attempt(code: str, examine: Callable[..., Row], *arguments: Any) -> Row:
    """The row of a piece of code, whatever happens in it."""
    try:
        return {"section": SECTION, "code": code, "ran": True, **examine(code, *arguments)}
    except Exception as error:
        return {"section": SECTION, "code": code, "ran": False, "right": False, "error": one_line(error)}
