"""CUDA graphs: work recorded on a stream once, then launched as a whole. pycuda does not have them, so this module calls the driver.

A graph holds the addresses and shapes from its capture. If either changes, capture again.

Source: CUDA Driver API, sections "Stream Management" and "Graph Management".
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any

from course_lib.engines.cuda import driver

REPLAYS, CALLS = "replays of a CUDA graph", "calls in a row"  # how the device's clock times an engine
_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: what other threads do meanwhile does not spoil the capture


class CudaGraph:
    """A CUDA graph of the work that `record` enqueues on a stream.

    Args:
        stream: handle of the stream. It must not be the default stream, which cannot be captured.
        record: enqueues the work. It must have run once before, because libraries allocate and load kernels in the first run.

    Raises:
        BackendUnavailable: no driver.
        EngineError: something in the work cannot be captured, such as a synchronization or an allocation.
    """

    def __init__(self, stream: int, record: Callable[[], None]) -> None:
        self._library = driver.library()
        graph, self._executable = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), _THREAD_LOCAL)
        try:
            record()
        except BaseException:
            self._library.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph))
            if graph:
                self._library.cuGraphDestroy(graph)
            raise
        self._call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
        try:
            self._call("cuGraphInstantiateWithFlags", ctypes.byref(self._executable), graph, ctypes.c_ulonglong(0))
        finally:
            self._call("cuGraphDestroy", graph)
        finalizer = weakref.finalize(self, self._library.cuGraphExecDestroy, self._executable)
        finalizer.atexit = False  # at exit the context goes first

    def launch(self, stream: int) -> None:
        """Enqueue all of it on a stream."""
        self._call("cuGraphLaunch", self._executable, ctypes.c_void_p(stream))

    def _call(self, name: str, *arguments: Any) -> None:
        driver.call(self._library, name, *arguments, advice=": this work cannot be captured as a CUDA graph")


class Replay:
    """A CUDA graph of work whose shapes and addresses can change between calls.

    Attributes:
        captured: the state that the graph holds; None before the first capture.
    """

    def __init__(self) -> None:
        self.captured: Any = None
        self._warm: Any = None
        self._graph: CudaGraph | None = None

    def run(self, stream: int, state: Any, enqueue: Callable[[], None]) -> None:
        """Enqueue the work: plainly the first time in a new state, captured the second time, replayed from then on.

        Args:
            state: everything that a graph holds; two equal states need no new capture.
        """
        if self.captured != state:
            if self._warm != state:
                enqueue()
                self._warm = state
                return
            self._graph, self.captured = CudaGraph(stream, enqueue), state
        assert self._graph is not None
        self._graph.launch(stream)
