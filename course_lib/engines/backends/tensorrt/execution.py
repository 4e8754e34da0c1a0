"""One execution context on one stream: shapes, addresses, profiles, CUDA graphs, numpy arrays or torch tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from course_lib.engines.backends.tensorrt.loaded import Loaded, Scratch, dimensions
from course_lib.engines.backends.tensorrt.memory import Buffer, cuda, output_allocator
from course_lib.engines.cuda import two_clocks
from course_lib.engines.cuda.graph import CALLS, REPLAYS, Replay
from course_lib.engines.plan import Feeds, check_feeds, check_profiles
from course_lib.errors import EngineError

if TYPE_CHECKING:
    import torch


class Execution:
    """Execution contexts, one per profile in use, on a stream with buffers. Any number may run at a time, each used by one thread.

    A context that switches to another profile prepares it again. For a small encoder with runs of 2 ms, TensorRT 8.6 needed 30 to
    50 ms for a switch (on an H200). Each profile therefore has its own context, and one of these runs at a time.

    Args:
        loaded: the engine.
        graph: replay a CUDA graph instead of enqueueing kernel by kernel. It is captured after the first run with given shapes
            and addresses, and captured again when one of them changes.
        scratch: memory for intermediate results that several executions share. Only one of them may run at a time.

    Attributes:
        clock: how `time_ms` measures, `REPLAYS` or `CALLS` of `cuda.graph`. Set it to `CALLS` for a comparison with an engine that cannot
            be captured.

    Raises:
        EngineError: TensorRT cannot create a context; the message is from its log.
    """

    def __init__(self, loaded: Loaded, *, graph: bool = False, scratch: Scratch | None = None) -> None:
        self.inputs, self.outputs = loaded.inputs, loaded.outputs
        self._loaded, self._log = loaded, loaded.log
        self._context, self._scratch = loaded.create_context(scratch), scratch
        self.stream = cuda().Stream()
        self._profile = self._context.active_optimization_profile
        self._contexts = {self._profile: self._context}
        self._buffers = {info.name: Buffer() for info in (*self.inputs, *self.outputs)}
        self._allocators: dict[str, Any] = {}
        self._replay = Replay() if graph else None
        self._timing, self.clock = Replay(), REPLAYS
        self._kept: dict[str, torch.Tensor] = {}  # outputs that the graph writes to
        self._under_way = False

    # ---- numpy arrays

    def infer(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """See `Engine.infer`."""
        self.start(feeds)
        return self.finish()

    def start(self, feeds: Feeds) -> None:
        """Enqueue the copies in, the run and the copies out, and return while the GPU works.

        Raises:
            EngineError: the feeds do not fit, or the results of an earlier start were not fetched.
        """
        if self._under_way:
            raise EngineError("this execution is still running: call finish() before the next start()")
        self._upload(feeds)
        self._enqueue(self.stream.handle, self._own_addresses())
        for info in self.outputs:
            if info.name not in self._allocators:  # of the others nobody knows the size yet
                self._buffers[info.name].download(_size(self._shape(info.name), info.dtype), self.stream)
        self._under_way = True

    def finish(self) -> dict[str, np.ndarray]:
        """Wait for the work of `start`, and return the outputs by name.

        Raises:
            EngineError: nothing was started.
        """
        if not self._under_way:
            raise EngineError("nothing was started: call start() first")
        self._under_way = False
        self._synchronize()
        for name, allocator in self._allocators.items():
            self._buffers[name].download(_size(allocator.shape, self._dtype(name)), self.stream)
        if self._allocators:
            self._synchronize()
        return {info.name: self._buffers[info.name].array(self._shape(info.name), info.dtype) for info in self.outputs}

    def time_ms(self, feeds: Feeds) -> float:
        """See `Engine.time_ms`. Device time of one run: enough replays of a CUDA graph between two events to take 2 ms, divided by them.

        A single call between two events also measures the host: small engines run faster than the host launches their kernels. An
        engine that cannot be captured is timed by calls in a row, and `clock` says so. Copies and captures are not counted.

        Raises:
            EngineError: the feeds do not fit, the engine fails, or something in it, such as a plugin, runs on another stream.
        """
        self._upload(feeds)
        addresses = self._own_addresses()
        for name, address in addresses.items():
            self._context.set_tensor_address(name, address)
        self._run(self.stream.handle)  # a first run loads kernels
        self._synchronize()
        single_ms = self._timed(lambda: self._run(self.stream.handle), 1)  # work on another stream is noticed here
        run = self._replayed(addresses) if self.clock == REPLAYS else None
        if run is None:
            self.clock = CALLS
            return self._timed(lambda: self._run(self.stream.handle), two_clocks.runs_in_a_reading(single_ms))
        return self._timed(run, two_clocks.runs_in_a_reading(self._timed(run, 1)))

    def _replayed(self, addresses: Mapping[str, int]) -> Callable[[], None] | None:
        """A replay of the run at these addresses, captured before; None for an engine that cannot be captured."""
        if self._allocators:  # memory cannot be asked for during a capture
            return None
        state = self._state(addresses)

        def run() -> None:
            self._timing.run(self.stream.handle, state, lambda: self._run(self.stream.handle))

        try:
            while self._timing.captured != state:
                run()
        except EngineError:
            self._synchronize()
            return None
        self._synchronize()
        return run

    def _timed(self, run: Callable[[], None], runs: int) -> float:
        return two_clocks.event_ms(lambda: self._between_events(run, runs), lambda: self._synchronize(cuda().Context)) / runs

    def _between_events(self, run: Callable[[], None], runs: int) -> float:
        begin, end = cuda().Event(), cuda().Event()
        begin.record(self.stream)  # the stream is idle: what the host does from here to the launch would count as device time
        for _ in range(runs):
            run()
        end.record(self.stream)
        self._synchronize()
        return float(begin.time_till(end))

    def layer_times(self, feeds: Feeds, *, runs: int = 10) -> list[tuple[str, float]]:
        """Time of each layer in milliseconds: one row per layer and run, in order of execution. This run is slower than a normal one."""
        profiler = _profiler(self._loaded.trt)
        self.infer(feeds)  # a first run loads kernels
        self._context.profiler = profiler
        self._context.enqueue_emits_profile = False
        try:
            for _ in range(runs):
                self._run(self.stream.handle)
                self._synchronize()
                self._context.report_to_profiler()
        finally:
            self._context.enqueue_emits_profile = True
            self._context.profiler = None
        return list(profiler.rows)

    # ---- memory of the caller's

    def run_at(self, addresses: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]], stream: int) -> None:
        """Run on the caller's device memory and stream, and return while the GPU works.

        A CUDA graph is bound to addresses: with ``graph=True``, pass the same addresses again and change their contents.

        Args:
            addresses: address of every input and output; `output_shapes` gives the sizes of the outputs.
            shapes: shape of every input.
            stream: handle of the stream.

        Raises:
            EngineError: a tensor is missing, a shape does not fit, or an output's shape depends on data.
        """
        if missing := sorted({info.name for info in (*self.inputs, *self.outputs)} - addresses.keys()):
            raise EngineError(f"no address for {', '.join(missing)}")
        self.output_shapes(shapes)
        self._enqueue(stream, addresses)

    def output_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Shapes of the outputs for shapes of the inputs.

        Raises:
            EngineError: a shape does not fit, or an output's shape depends on data.
        """
        self._set_shapes({name: _Shape(shape) for name, shape in shapes.items()})
        if self._allocators:
            raise EngineError(f"the shape of output {next(iter(self._allocators))!r} depends on data: use infer()")
        return {info.name: self._shape(info.name) for info in self.outputs}

    def run_tensors(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """`run_at` for torch tensors, on torch's current stream, without copies.

        With ``graph=True`` the outputs are the same tensors in every call with these shapes.

        Args:
            tensors: contiguous tensors on the GPU with the dtypes of the inputs.

        Raises:
            EngineError: a tensor is on another device, not contiguous, or does not fit the engine's inputs.
        """
        import torch

        check_feeds(self.inputs, {name: _Described(tensor) for name, tensor in tensors.items()})  # type: ignore[misc]
        for name, tensor in tensors.items():
            if not tensor.is_cuda or not tensor.is_contiguous():
                found = f"on {tensor.device}" if not tensor.is_cuda else "that is not contiguous"
                raise EngineError(f"input {name!r} needs a contiguous tensor on the GPU, found one {found}")
        shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
        wanted = self.output_shapes(shapes)
        outputs = self._kept
        if not self._replay or {name: tuple(tensor.shape) for name, tensor in outputs.items()} != wanted:
            dtypes = {info.name: getattr(torch, info.dtype) for info in self.outputs}
            outputs = {name: torch.empty(shape, dtype=dtypes[name], device="cuda") for name, shape in wanted.items()}
            self._kept = outputs if self._replay else {}
        addresses = {name: tensor.data_ptr() for name, tensor in {**tensors, **outputs}.items()}
        self.run_at(addresses, shapes, torch.cuda.current_stream().cuda_stream)
        return outputs

    # ---- what both share

    def _upload(self, feeds: Feeds) -> None:
        check_feeds(self.inputs, feeds)
        self._set_shapes(feeds)
        for name, array in feeds.items():
            self._buffers[name].upload(array, self.stream)

    def _set_shapes(self, feeds: Mapping[str, Any]) -> None:
        """Choose the profile and set the shapes of the context's inputs."""
        profile = check_profiles(self._loaded.recipe, feeds) or 0
        if profile != self._profile:
            if profile not in self._contexts:
                self._contexts[profile] = self._made_for(profile)
            self._profile, self._context = profile, self._contexts[profile]
        for name in (
            info.name for info in self.inputs if -1 in info.shape
        ):  # fixed ones need no telling, and 8.6 may fail on it
            if not self._context.set_input_shape(name, feeds[name].shape):
                raise EngineError(f"input {name!r} rejects shape {feeds[name].shape}: {self._log.take()}")
        for info in self.outputs:
            if min((0, *dimensions(self._context.get_tensor_shape(info.name)))) < 0:
                allocator = self._allocators.setdefault(info.name, output_allocator(self._loaded.trt, self._buffers[info.name]))
                self._context.set_output_allocator(info.name, allocator)

    def _made_for(self, profile: int) -> Any:
        context = self._loaded.create_context(self._scratch)
        try:
            done = context.set_optimization_profile_async(profile, self.stream.handle)
        except RuntimeError:  # since 10; 8.6 returns False
            done = False
        if not done:
            raise EngineError(f"profile {profile} cannot be used: {self._log.take()}")
        self._synchronize()
        return context

    def _own_addresses(self) -> dict[str, int]:
        """Addresses of the buffers, enlarged for the current shapes, without outputs that have an allocator."""
        for info in self.outputs:
            if info.name not in self._allocators:
                self._buffers[info.name].grow(_size(self._shape(info.name), info.dtype))
        return {name: buffer.address for name, buffer in self._buffers.items() if name not in self._allocators}

    def _enqueue(self, stream: int, addresses: Mapping[str, int]) -> None:
        self._ready(stream, addresses)()

    def _ready(self, stream: int, addresses: Mapping[str, int]) -> Callable[[], None]:
        """A run with nothing left to set: kernel by kernel, or as a graph."""
        for name, address in addresses.items():
            self._context.set_tensor_address(name, address)
        if self._replay is None or self._allocators:  # memory cannot be asked for during a capture
            return lambda: self._run(stream)
        replay, state = self._replay, self._state(addresses)
        return lambda: replay.run(stream, state, lambda: self._run(stream))

    def _state(self, addresses: Mapping[str, int]) -> tuple[object, ...]:
        """The state at which a graph must have been captured to be valid now."""
        shapes = tuple(tuple(self._context.get_tensor_shape(info.name)) for info in self.inputs)
        return self._profile, shapes, tuple(sorted(addresses.items()))

    def _run(self, stream: int) -> None:
        if not self._context.execute_async_v3(stream):
            raise EngineError(f"the engine failed to run: {self._log.take()}")

    def _synchronize(self, what: Any = None) -> None:
        """Wait for the stream, or for the whole context if it is passed."""
        try:
            (what or self.stream).synchronize()
        except cuda().Error as error:  # such as an illegal address: the device is lost for this process
            raise EngineError(f"the GPU failed while it ran: {error}; start a new process") from None

    def _shape(self, name: str) -> tuple[int, ...]:
        """Shape of an output for the current inputs."""
        allocator = self._allocators.get(name)
        return allocator.shape if allocator else tuple(self._context.get_tensor_shape(name))

    def _dtype(self, name: str) -> str:
        return next(info.dtype for info in self.outputs if info.name == name)


def _profiler(trt: Any) -> Any:
    """An `IProfiler` whose `rows` are the layers of every run in order of execution: name and milliseconds."""

    class Profiler(trt.IProfiler):
        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.rows: list[tuple[str, float]] = []

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.rows.append((layer_name, ms))

    return Profiler()


class _Shape:
    """A stand-in for an array of which only the shape is used."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape


class _Described(_Shape):
    """A torch tensor with the attributes that `check_feeds` reads."""

    def __init__(self, tensor: Any) -> None:
        super().__init__(tuple(tensor.shape))
        self.dtype = str(tensor.dtype).removeprefix("torch.")


def _size(shape: tuple[int, ...], dtype: str) -> int:
    try:
        return int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    except TypeError:
        raise EngineError(f"an output is {dtype}, a type that numpy does not have: use run_tensors()") from None
