"""What the processes that hold candidates share. They run in interpreters that may have numpy and one backend only."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from course_lib.engines.worker import wire

_LONGEST = 600  # characters of a failure's message


def serve_held(make: Callable[..., Any]) -> None:
    """Answer requests until standard input closes; every failure is an answer. The process ends here.

    Args:
        make: from the arguments of the request ``open``, the object whose methods answer the others. Of these, ``infer`` returns
            arrays by name and ``time`` milliseconds.
    """
    reader, writer = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what libraries print must not end up between messages
    held: Any = None
    for request, _ in wire.requests(reader):
        try:
            what = request.pop("do")
            if what == "open":
                held, answer = make(**request), None
            else:
                answer = getattr(held, what)(**request)
            wire.send(writer, {"ms": answer} if what == "time" else {}, answer if what == "infer" else {})
        except Exception as error:
            wire.send(writer, {"error": type(error).__name__, "message": " ".join(str(error).split())[:_LONGEST]})
    os._exit(0)  # TensorRT and pycuda disagree on who leaves first


def compile_for_each_shape() -> None:
    """Let `torch.compile` make kernels for each shape of its own, which is the best that compiling can do."""
    import torch
    import torch._dynamo  # takes seconds

    config: Any = torch._dynamo.config
    config.automatic_dynamic_shapes = False
    config.cache_size_limit = 64  # torch's older name, which the newer ones keep
