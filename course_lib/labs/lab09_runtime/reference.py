"""The reference of lab 09: two sets of a stream, a context and buffers that take turns."""

from __future__ import annotations

from pathlib import Path

SERVING_LOOP = '''\
import numpy as np
import pycuda.driver as cuda
import tensorrt as trt

LOGGER = trt.Logger(trt.Logger.ERROR)
COLUMNS, SCORES = 128, 32
LARGEST = (8, 64)  # rows, by profile


class BufferSet:
    """For one request in flight: a stream, a context, and buffers for the largest batch."""

    def __init__(self, engine):
        self.stream = cuda.Stream()
        self.context = engine.create_execution_context()
        self.host_in = cuda.pagelocked_empty((LARGEST[-1], COLUMNS), np.float32)
        self.host_out = cuda.pagelocked_empty((LARGEST[-1], SCORES), np.float32)
        self.device_in = cuda.mem_alloc(self.host_in.nbytes)
        self.device_out = cuda.mem_alloc(self.host_out.nbytes)
        self.context.set_tensor_address("features", int(self.device_in))
        self.context.set_tensor_address("scores", int(self.device_out))
        self.profile = 0
        self.pending = None  # the number of the request in flight, and its rows

    def start(self, number, request):
        """Enqueue a request; False if no profile contains it. Nothing may be in flight."""
        rows = len(request)
        profile = 0 if rows <= LARGEST[0] else 1
        if profile != self.profile:
            self.context.set_optimization_profile_async(profile, self.stream.handle)
            self.profile = profile
        if not self.context.set_input_shape("features", request.shape):
            return False
        self.host_in[:rows] = request
        cuda.memcpy_htod_async(self.device_in, self.host_in[:rows], self.stream)
        if not self.context.execute_async_v3(self.stream.handle):
            raise RuntimeError("TensorRT rejected the run: its log says why")
        cuda.memcpy_dtoh_async(self.host_out[:rows], self.device_out, self.stream)
        self.pending = number, rows
        return True

    def finish(self, answers):
        """Wait, and keep the answer of the request in flight."""
        self.stream.synchronize()
        if self.pending:
            number, rows = self.pending
            answers[number] = self.host_out[:rows].copy()
            self.pending = None

    def close(self):
        """Give everything back. An error's traceback may keep this object."""
        self.stream.synchronize()
        self.device_in.free()
        self.device_out.free()
        vars(self).clear()


def serve(plan, requests):
    engine = trt.Runtime(LOGGER).deserialize_cuda_engine(plan)
    if engine is None:
        raise RuntimeError("TensorRT rejected the plan: its log says why")
    answers, turn = {}, 0
    sets = [BufferSet(engine), BufferSet(engine)]
    try:
        for number, request in enumerate(requests):
            one = sets[turn]
            one.finish(answers)
            answers[number] = None
            if one.start(number, request):
                turn = 1 - turn
        for one in (sets[turn], sets[1 - turn]):
            one.finish(answers)
    finally:
        for one in sets:
            one.close()
        del engine
    return [answers[number] for number in range(len(answers))]
'''


def write(folder: Path) -> None:
    """The serving loop."""
    (folder / "serving_loop.py").write_text(SERVING_LOOP, encoding="utf-8")
