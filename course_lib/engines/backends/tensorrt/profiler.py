"""Times of layers, as TensorRT reports them.

Source: NVIDIA TensorRT API, `IProfiler.report_layer_time`.
"""

from __future__ import annotations

from typing import Any


def keep_times(trt: Any) -> Any:
    """An `IProfiler` whose `rows` are the layers of every run in order of execution: name and milliseconds."""

    class Profiler(trt.IProfiler):
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.rows: list[tuple[str, float]] = []

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.rows.append((layer_name, ms))

    return Profiler()
