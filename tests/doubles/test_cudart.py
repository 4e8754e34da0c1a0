"""cuda-python's calls on the stand-in's device: error codes first, and nothing is given back by itself."""

import ctypes

import numpy as np
import pytest

from course_lib import standin
from course_lib.standin import cuda_driver, cudart, gpu

UP, DOWN = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice, cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
OK = (cudart.cudaError_t.cudaSuccess,)


def call(result):
    assert result[0] is cudart.cudaError_t.cudaSuccess, result
    return result[1] if len(result) > 1 else None


@pytest.fixture
def rows():
    trace: list[gpu.Row] = []
    gpu.reset(trace=trace)
    cuda_driver.Context().push()
    yield trace
    cuda_driver.Context.pop()


def test_copies_run_when_the_stream_is_waited_for_and_everything_is_given_back(rows):
    stream, device, host = call(cudart.cudaStreamCreate()), call(cudart.cudaMalloc(16)), call(cudart.cudaMallocHost(16))
    array = np.ctypeslib.as_array(ctypes.cast(host, ctypes.POINTER(ctypes.c_float)), (4,))
    array[:] = 7
    assert cudart.cudaMemcpyAsync(device, host, 16, UP, stream) == OK
    assert cudart.cudaStreamSynchronize(stream) == OK
    array[:] = 0
    assert cudart.cudaMemcpyAsync(array, device, 16, DOWN, stream) == OK
    assert np.isnan(array).all()
    assert cudart.cudaStreamSynchronize(stream) == OK
    assert array.tolist() == [7] * 4
    ordinary = np.zeros(4, np.float32)
    assert cudart.cudaMemcpyAsync(ordinary, device, 16, DOWN, stream) == cudart.cudaDeviceSynchronize() == OK
    assert ordinary.tolist() == [7] * 4
    kinds = [row[0] for row in rows]
    assert kinds[:5] == ["stream", "allocate", "pin", "in", "sync_stream"]
    assert [row[4] for row in rows if row[0] == "out"] == [rows[2][1], 0]
    assert cudart.cudaFreeHost(host) == cudart.cudaFree(device) == cudart.cudaStreamDestroy(stream) == OK
    assert [row[0] for row in rows][-3:] == ["unpin", "free", "stream_gone"]


def test_an_event_orders_two_streams(rows):
    with standin.installed():
        from cuda.bindings import runtime

        assert runtime is cudart
    first, second = call(cudart.cudaStreamCreate()), call(cudart.cudaStreamCreate())
    event = call(cudart.cudaEventCreate())
    assert cudart.cudaEventRecord(event, first) == cudart.cudaStreamWaitEvent(second, event, 0) == OK
    assert cudart.cudaEventSynchronize(event) == cudart.cudaEventDestroy(event) == OK
    assert [row[0] for row in rows][3:] == ["record", "wait", "sync_event", "event_gone"]


def test_errors_are_codes(rows):
    stream = call(cudart.cudaStreamCreate())
    assert cudart.cudaMalloc(1 << 40)[0] is cudart.cudaError_t.cudaErrorMemoryAllocation
    assert cudart.cudaFree(5)[0] is cudart.cudaError_t.cudaErrorInvalidValue
    assert cudart.cudaStreamSynchronize(77)[0] is cudart.cudaError_t.cudaErrorInvalidResourceHandle
    device = call(cudart.cudaMalloc(16))
    assert cudart.cudaMemcpyAsync(device, np.ones(4, np.float32), 16, UP, stream) == cudart.cudaFree(device) == OK
    assert cudart.cudaStreamSynchronize(stream)[0] is cudart.cudaError_t.cudaErrorIllegalAddress
    assert cudart.cudaGetErrorString(cudart.cudaError_t.cudaErrorIllegalAddress)[1] == b"cudaErrorIllegalAddress"
