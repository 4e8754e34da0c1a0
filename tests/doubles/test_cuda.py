"""The stand-in for pycuda and for the driver: bounds, queues, capture."""

import ctypes
import inspect
import threading
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

from course_lib.standin import cuda_driver as cuda
from course_lib.standin import gpu, libcuda
from tests.doubles import rig

ONES = np.ones(4, np.float32)

# What pycuda's `wrap_cudadrv.cpp` and `driver.py` define, with the names of parameters that may be given by name (2026.1).
NAMES = {
    "Context": "attach detach push pop get_device synchronize get_current set_limit get_limit get_api_version",
    "Device": "count name pci_bus_id compute_capability total_memory get_attribute make_context can_access_peer retain_primary_context",
    "DeviceAllocation": "as_buffer free",
    "Event": "record synchronize query time_since time_till ipc_handle from_ipc_handle",
    "Stream": "synchronize is_done wait_for_event handle",
}
BY_NAME = {
    "Device.__init__": "",
    "Event.__init__": "flags",
    "Event.record": "stream",
    "Event.time_since": "",
    "Event.time_till": "",
    "Stream.__init__": "flags",
    "Stream.wait_for_event": "",
    "init": "flags",
    "mem_alloc": "",
    "mem_get_info": "",
    "memcpy_dtod_async": "dest src size stream",
    "memcpy_dtoh": "dest src",
    "memcpy_dtoh_async": "dest src stream",
    "memcpy_htod": "dest src",
    "memcpy_htod_async": "dest src stream",
    "pagelocked_empty": "shape dtype order mem_flags",
    "pagelocked_zeros": "shape dtype order mem_flags",
}


def test_an_object_has_no_public_name_that_pycudas_lacks() -> None:
    for name, known in NAMES.items():
        made = {"Device": lambda: cuda.Device(0), "DeviceAllocation": lambda: cuda.mem_alloc(1)}
        found = {key for key in dir(made.get(name, getattr(cuda, name))()) if not key.startswith("_")}
        assert found and found <= set(known.split()), name


def test_a_call_takes_pycudas_parameters() -> None:
    for name, known in BY_NAME.items():
        parameters = inspect.signature(attrgetter(name)(cuda)).parameters.values()
        named = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD and one.name != "self"]
        assert named == known.split(), name
    functions = {name for name in cuda.__all__ if inspect.isfunction(getattr(cuda, name))}
    assert functions <= set(BY_NAME) and set(cuda.__all__) == functions | {"Error", "LogicError", "MemoryError"} | set(NAMES)


# ---- memory


def test_memory_is_counted_and_freed_with_its_object_and_ends() -> None:
    free, total = cuda.mem_get_info()
    memory = cuda.mem_alloc(1000)
    assert cuda.mem_get_info() == (free - 1000, total)
    del memory
    assert cuda.mem_get_info() == (free, total)
    memory = cuda.mem_alloc(1000)
    memory.free()
    for call in (memory.free, lambda: int(memory)):
        with pytest.raises(cuda.LogicError):
            call()
    gpu.reset(total_memory=1000)
    with pytest.raises(cuda.MemoryError, match="out of memory"):
        cuda.mem_alloc(1001)
    with pytest.raises(cuda.LogicError, match="invalid argument"):
        cuda.mem_alloc(0)


@pytest.mark.parametrize("shift", [4, -4, 1 << 40])
def test_a_copy_beyond_its_memory_is_rejected(shift: int) -> None:
    memory = cuda.mem_alloc(16)
    cuda.memcpy_htod_async(int(memory), ONES)
    with pytest.raises(cuda.LogicError, match="invalid argument"):
        cuda.memcpy_htod_async(int(memory) + shift, ONES)
    with pytest.raises(cuda.LogicError, match="invalid argument"):
        cuda.memcpy_dtoh_async(np.empty(5, np.float32), memory)


# ---- streams


@pytest.mark.parametrize("whole_context", [False, True])
def test_copies_happen_when_the_stream_or_the_context_is_synchronized(whole_context: bool) -> None:
    stream, first, second = cuda.Stream(), cuda.mem_alloc(16), cuda.mem_alloc(16)
    found = np.zeros(4, np.float32)
    cuda.memcpy_htod_async(first, ONES, stream)
    cuda.memcpy_dtod_async(second, first, 16, stream)
    cuda.memcpy_dtoh_async(found, second, stream)
    assert not found.any()
    (cuda.Context if whole_context else stream).synchronize()
    assert found.tolist() == [1, 1, 1, 1]


def test_pinned_memory_is_read_late_and_ordinary_memory_at_once() -> None:
    stream, memory = cuda.Stream(), [cuda.mem_alloc(16), cuda.mem_alloc(16)]
    pinned, ordinary = cuda.pagelocked_empty((4,), np.float32), ONES.copy()
    pinned[:] = 1
    cuda.memcpy_htod_async(memory[0], pinned[:4], stream)
    cuda.memcpy_htod_async(memory[1], ordinary, stream)
    pinned[:] = ordinary[:] = 7
    stream.synchronize()
    found = [np.empty(4, np.float32), np.empty(4, np.float32)]
    for array, device in zip(found, memory, strict=True):
        cuda.memcpy_dtoh(array, device)
    assert (found[0][0], found[1][0]) == (7, 1)


def test_an_event_is_waited_for_and_not_what_comes_after_it() -> None:
    stream, memory, event = cuda.Stream(), cuda.mem_alloc(16), cuda.Event()
    cuda.memcpy_htod_async(memory, ONES, stream)
    early, late = np.zeros(4, np.float32), np.zeros(4, np.float32)
    cuda.memcpy_dtoh_async(early, memory, stream)
    event.record(stream)
    cuda.memcpy_dtoh_async(late, memory, stream)
    assert not event.query()
    event.synchronize()
    assert early.any() and not late.any()


def test_the_time_between_events_is_known_when_both_happened() -> None:
    stream = cuda.Stream()
    begin, end = cuda.Event().record(stream), cuda.Event().record(stream)
    with pytest.raises(cuda.LogicError, match="not ready"):
        begin.time_till(end)
    end.synchronize()
    assert begin.time_till(end) > 0 and end.time_since(begin) == begin.time_till(end)


def test_streams_do_not_wait_for_each_other_unless_told() -> None:
    writer, reader, memory, done = cuda.Stream(), cuda.Stream(), cuda.mem_alloc(16), cuda.Event()
    found = np.zeros(4, np.float32)
    cuda.memcpy_htod_async(memory, ONES, writer)
    done.record(writer)
    cuda.memcpy_dtoh_async(found, memory, reader)
    reader.synchronize()
    assert np.isnan(found).all()
    reader.wait_for_event(done)
    cuda.memcpy_dtoh_async(found, memory, reader)
    reader.synchronize()
    assert found.tolist() == [1, 1, 1, 1]


# ---- graphs


def _captured(bench: Any) -> Any:
    gpu.current().begin_capture(bench.stream.handle, gpu.GLOBAL)
    assert bench.context.execute_async_v3(bench.stream.handle)
    return gpu.current().end_capture(bench.stream.handle)


def _launch(graph: Any, stream: int) -> None:
    for work in graph:
        gpu.current().enqueue(stream, work, "cuGraphLaunch")


def test_a_graph_replays_the_addresses_and_shapes_of_its_capture(trt: Any) -> None:
    bench = rig.Bench(rig.engine(trt), rows=2)
    first = bench.run().copy()
    bench.y[:] = 0
    graph = _captured(bench)
    elsewhere = cuda.mem_alloc(bench.y.nbytes)
    bench.context.set_tensor_address("y", int(elsewhere))
    bench.context.set_input_shape("x", (1, 4))
    cuda.memcpy_htod(bench.memory["x"], 2 * bench.x)
    _launch(graph, bench.stream.handle)
    cuda.memcpy_dtoh_async(bench.y, bench.memory["y"], bench.stream)
    assert not bench.y.any()
    bench.stream.synchronize()
    np.testing.assert_allclose(bench.y, 2 * first, rtol=1e-6)


def test_a_graph_with_freed_memory_loses_the_device(trt: Any) -> None:
    bench = rig.Bench(rig.engine(trt))
    bench.run()
    graph = _captured(bench)
    bench.memory["x"].free()
    _launch(graph, bench.stream.handle)
    with pytest.raises(cuda.LogicError, match="illegal memory access"):
        bench.stream.synchronize()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda stream: stream.synchronize(),
        lambda stream: cuda.mem_alloc(16),
        lambda stream: cuda.Context.synchronize(),
        lambda stream: cuda.memcpy_htod(0x7E00_0000_0000, ONES),
        lambda stream: cuda.Event().record(stream).synchronize(),
        lambda stream: stream.wait_for_event(cuda.Event()),
    ],
)
def test_what_cannot_be_captured_spoils_the_capture(spoil: Any) -> None:
    stream, _memory = cuda.Stream(), cuda.mem_alloc(16)
    gpu.current().begin_capture(stream.handle, gpu.GLOBAL)
    with pytest.raises(cuda.LogicError):
        spoil(stream)
    with pytest.raises(cuda.LogicError, match="due to a previous error during capture"):
        gpu.current().end_capture(stream.handle)
    stream.synchronize()


# ---- libcuda and installation


def test_the_driver_library_tells_the_capability() -> None:
    gpu.reset(capability=(8, 9))
    driver, device, value = libcuda.LibCuda(), ctypes.c_int(), ctypes.c_int()
    assert driver.cuInit(0) == driver.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert [driver.cuDeviceGetAttribute(ctypes.byref(value), which, device) or value.value for which in (75, 76)] == [8, 9]


def test_the_driver_library_captures_and_launches() -> None:
    driver, stream, memory, found = libcuda.LibCuda(), cuda.Stream(), cuda.mem_alloc(16), np.zeros(4, np.float32)
    handle, graph, executable = ctypes.c_void_p(stream.handle), ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuStreamBeginCapture_v2(handle, gpu.THREAD_LOCAL) == 0
    cuda.memcpy_htod_async(memory, ONES, stream)
    cuda.memcpy_dtoh_async(found, memory, stream)
    assert driver.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
    assert driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_ulonglong(0)) == 0
    assert driver.cuGraphDestroy(graph) == 0 and driver.cuGraphDestroy(graph) == libcuda.INVALID_HANDLE
    assert driver.cuGraphLaunch(executable, handle) == 0 and not found.any()
    stream.synchronize()
    assert found.any()
    assert driver.cuGraphExecDestroy(executable) == 0 and driver.cuGraphLaunch(executable, handle) == libcuda.INVALID_HANDLE


def test_every_thread_needs_a_context() -> None:
    stream, memory, rejected = cuda.Stream(), cuda.mem_alloc(16), []

    def try_all() -> None:
        for call in (
            lambda: cuda.mem_alloc(16),
            lambda: cuda.memcpy_htod(memory, ONES),
            lambda: cuda.Stream(),
            lambda: stream.synchronize(),
            lambda: cuda.Event().record(stream),
            lambda: cuda.Context.pop(),
        ):
            with pytest.raises(cuda.LogicError, match="invalid device context") as rejection:
                call()
            rejected.append(rejection)

    thread = threading.Thread(target=try_all)
    thread.start()
    thread.join()
    assert len(rejected) == 6
