"""CUDA graphs, which pycuda lacks: a graph is the recorded work of a stream."""

from __future__ import annotations

from collections.abc import Callable

from course_lib.standin import gpu

Work = list[Callable[[], None]]


def begin_capture(stream_handle: int, mode: int = gpu.GLOBAL) -> None:
    """From now on, record what is enqueued on the stream."""
    gpu.current().begin_capture(stream_handle, mode)


def end_capture(stream_handle: int) -> Work:
    """What was recorded."""
    return gpu.current().end_capture(stream_handle)


def instantiate(graph: Work) -> Work:
    """A copy that can be launched."""
    return list(graph)


def launch(graph: Work, stream_handle: int) -> None:
    """Enqueue everything that was recorded."""
    for work in graph:
        gpu.current().enqueue(stream_handle, work, "cuGraphLaunch")
