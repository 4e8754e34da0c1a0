"""PyTorch's operators on a timeline, recorded without a profiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.profiling.recorder import Recorder
from course_lib.profiling.timeline import Timeline


def record_operators(call: Callable[[], object]) -> Timeline:
    """Every operator that `call` asks PyTorch for, as work of the device; on a CPU an operator is done when it returns.

    Between two of them stand Python, PyTorch's dispatcher and this recording, which takes some microseconds an operator.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    recorder = Recorder("operators")

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with recorder.work(str(func).removeprefix("aten.").partition(".")[0]):
                return func(*args, **(kwargs or {}))

    with Watched():
        call()
    return recorder.timeline()
