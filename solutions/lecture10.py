"""Solutions of the exercises in lecture 10."""

from __future__ import annotations

from typing import Any

import numpy as np


def run_request(context: Any, driver: Any, stream: Any, buffers: Any, images: np.ndarray) -> np.ndarray:
    """10.1: shape, copy in, execute, copy out, and one wait."""
    count = len(images)
    if not context.set_input_shape("image", images.shape):
        raise ValueError(f"no profile holds {images.shape}")
    buffers.host_in[:count] = images
    driver.memcpy_htod_async(buffers.device_in, buffers.host_in[:count], stream)
    context.execute_async_v3(stream.handle)
    driver.memcpy_dtoh_async(buffers.host_out[:count], buffers.device_out, stream)
    stream.synchronize()
    answer: np.ndarray = buffers.host_out[:count].copy()
    return answer


def finished_ms(copy_in: float, compute: float, copy_out: float, requests: int, sets: int) -> float:
    """10.2: a request waits for each unit, and for its set of buffers."""
    copied_in = computed = copied_out = 0.0
    set_is_free = [0.0] * sets
    for request in range(requests):
        copied_in = max(copied_in, set_is_free[request % sets]) + copy_in
        computed = max(computed, copied_in) + compute
        copied_out = max(copied_out, computed) + copy_out
        set_is_free[request % sets] = copied_out
    return copied_out


def queue_latencies(arrivals_ms: list[float], call_ms: float, room: int) -> list[float]:
    """10.3: the frames that wait are those whose call begins later."""
    latencies: list[float] = []
    starts: list[float] = []
    free = 0.0
    for arrival in arrivals_ms:
        waiting = sum(start > arrival for start in starts)
        if free > arrival and waiting >= room:
            latencies.append(-1)
            continue
        starts.append(max(arrival, free))
        free = starts[-1] + call_ms
        latencies.append(free - arrival)
    return latencies


def graph_steps(states: list[Any]) -> list[str]:
    """10.4: one plain run of a state, then its capture, then its graph."""
    steps, warm, captured = [], None, None
    for state in states:
        if state == captured:
            steps.append("replay")
        elif state == warm:
            steps.append("capture")
            captured = state
        else:
            steps.append("plain")
            warm = state
    return steps


def one_answer(trt: Any, cuda: Any, plan: bytes, x: np.ndarray) -> np.ndarray:
    """10.5: load, buffers, addresses, shape, copy in, execute, copy out, wait."""
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(plan)
    context, stream = engine.create_execution_context(), cuda.Stream()
    y = np.empty_like(x)
    device_x, device_y = cuda.mem_alloc(x.nbytes), cuda.mem_alloc(y.nbytes)
    context.set_input_shape("x", x.shape)
    context.set_tensor_address("x", int(device_x))
    context.set_tensor_address("y", int(device_y))
    cuda.memcpy_htod_async(device_x, x, stream)
    context.execute_async_v3(stream.handle)
    cuda.memcpy_dtoh_async(y, device_y, stream)
    stream.synchronize()
    return y
