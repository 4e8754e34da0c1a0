"""Submissions for lab 09: a loop that is right in another way, and loops with the mistakes that learners make."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from course_lib.labs.lab09_runtime.reference import SERVING_LOOP
from course_lib.labs.lab09_runtime.sandboxed.run_loop import FILE


def changed(changes: Mapping[str, str], text: str = SERVING_LOOP) -> str:
    """The source of a loop with parts of it replaced."""
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def write(folder: Path, source: str) -> None:
    """The submission with this source."""
    (folder / FILE).write_text(source, encoding="utf-8")


ONE_SET = {
    "sets = [BufferSet(engine), BufferSet(engine)]": "sets = [BufferSet(engine)]",
    "turn = 1 - turn": "one.finish(answers)",
    "(sets[turn], sets[1 - turn])": "sets",
}

# Another right answer: a stream for each kind of work, ordered by events, and a context for each profile.
THREE_STREAMS = """\
import numpy as np
import pycuda.driver as cuda
import tensorrt as trt

PROFILES = (8, 64)
DEPTH = 3


class Pipeline:
    def __init__(self, plan):
        engine = trt.Runtime(trt.Logger(trt.Logger.ERROR)).deserialize_cuda_engine(plan)
        self.up, self.run, self.down = cuda.Stream(), cuda.Stream(), cuda.Stream()
        self.contexts = [engine.create_execution_context() for _ in PROFILES]
        for index, context in enumerate(self.contexts):
            context.set_optimization_profile_async(index, self.run.handle)
        self.host_in = [cuda.pagelocked_empty((64, 128), np.float32) for _ in range(DEPTH)]
        self.host_out = [cuda.pagelocked_empty((64, 32), np.float32) for _ in range(DEPTH)]
        self.features = [cuda.mem_alloc(64 * 128 * 4) for _ in range(DEPTH)]
        self.scores = [cuda.mem_alloc(64 * 32 * 4) for _ in range(DEPTH)]
        self.copied, self.ran, self.home = ([cuda.Event() for _ in range(DEPTH)] for _ in range(3))
        self.pending = {}

    def begin(self, place, number, request):
        rows = len(request)
        context = self.contexts[rows > PROFILES[0]]
        if not context.set_input_shape("features", request.shape):
            return False
        context.set_tensor_address("features", int(self.features[place]))
        context.set_tensor_address("scores", int(self.scores[place]))
        np.copyto(self.host_in[place][:rows], request)
        cuda.memcpy_htod_async(self.features[place], self.host_in[place][:rows], self.up)
        self.copied[place].record(self.up)
        self.run.wait_for_event(self.copied[place])
        context.execute_async_v3(self.run.handle)
        self.ran[place].record(self.run)
        self.down.wait_for_event(self.ran[place])
        cuda.memcpy_dtoh_async(self.host_out[place][:rows], self.scores[place], self.down)
        self.home[place].record(self.down)
        self.pending[place] = number, rows
        return True

    def end(self, place, answers):
        if place in self.pending:
            number, rows = self.pending.pop(place)
            self.home[place].synchronize()
            answers[number] = np.array(self.host_out[place][:rows])

    def close(self):
        for stream in (self.up, self.run, self.down):
            stream.synchronize()
        for memory in (*self.features, *self.scores):
            memory.free()
        self.__dict__.clear()


def serve(plan, requests):
    pipeline, answers, place = Pipeline(plan), [], 0
    try:
        for number, request in enumerate(requests):
            answers.append(None)
            pipeline.end(place, answers)
            if pipeline.begin(place, number, request):
                place = (place + 1) % DEPTH
        for place in range(DEPTH):
            pipeline.end(place, answers)
        return answers
    finally:
        pipeline.close()
"""


# Another right answer: cuda-python, whose calls return an error code, and which gives nothing back by itself.
_CUDART = """\
import ctypes

import numpy as np
from cuda.bindings import runtime as cudart


def call(result):
    error, *values = result
    if error != cudart.cudaError_t.cudaSuccess:
        raise RuntimeError(error.name)
    return values[0] if values else None


def pinned(columns):
    address = call(cudart.cudaMallocHost(LARGEST[-1] * columns * 4))
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_float)), (LARGEST[-1], columns))


def copy(target, source, size, kind, stream):
    call(cudart.cudaMemcpyAsync(target, source, size, getattr(cudart.cudaMemcpyKind, f"cudaMemcpy{kind}"), stream))


"""
CUDA_PYTHON = changed(
    {
        "import numpy as np\nimport pycuda.driver as cuda\n": _CUDART,
        "cuda.Stream()": "call(cudart.cudaStreamCreate())",
        "cuda.pagelocked_empty((LARGEST[-1], COLUMNS), np.float32)": "pinned(COLUMNS)",
        "cuda.pagelocked_empty((LARGEST[-1], SCORES), np.float32)": "pinned(SCORES)",
        "cuda.mem_alloc(self.host_in.nbytes)": "call(cudart.cudaMalloc(self.host_in.nbytes))",
        "cuda.mem_alloc(self.host_out.nbytes)": "call(cudart.cudaMalloc(self.host_out.nbytes))",
        "self.stream.handle": "self.stream",
        "cuda.memcpy_htod_async(self.device_in, self.host_in[:rows], self.stream)": (
            'copy(self.device_in, self.host_in, 512 * rows, "HostToDevice", self.stream)'
        ),
        "cuda.memcpy_dtoh_async(self.host_out[:rows], self.device_out, self.stream)": (
            'copy(self.host_out, self.device_out, 128 * rows, "DeviceToHost", self.stream)'
        ),
        "self.stream.synchronize()": "call(cudart.cudaStreamSynchronize(self.stream))",
        "        self.device_in.free()\n        self.device_out.free()\n": """\
        for memory in (self.device_in, self.device_out):
            call(cudart.cudaFree(memory))
        for array in (self.host_in, self.host_out):
            call(cudart.cudaFreeHost(array.ctypes.data))
        call(cudart.cudaStreamDestroy(self.stream))
""",
    }
)


def three_streams(folder: Path) -> None:
    """Another right answer."""
    write(folder, THREE_STREAMS)


# Both sets use one array of pinned memory for features.
_SHARED_PINNED = {
    "        self.host_in = cuda.pagelocked_empty((LARGEST[-1], COLUMNS), np.float32)\n": "        self.host_in = shared\n",
    "def __init__(self, engine):": "def __init__(self, engine, shared):",
    "sets = [BufferSet(engine), BufferSet(engine)]": """shared = cuda.pagelocked_empty((LARGEST[-1], COLUMNS), np.float32)
    sets = [BufferSet(engine, shared), BufferSet(engine, shared)]""",
    "        del engine\n": "        del engine, shared\n",
}
_ALL_FIRST = {"    engine = trt.Runtime(LOGGER)": "    requests = list(requests)\n    engine = trt.Runtime(LOGGER)"}

# Changes of the reference, and by task the tier that they cost, and words of the message or of the hint.
MISTAKES: dict[str, tuple[Mapping[str, str], dict[str, tuple[str, str]]]] = {
    "it waits after each request": (
        ONE_SET,
        {
            "order": ("partial", "No copy or run is in flight when the connection breaks off"),
            "leaks": ("partial", "when does it take the next request"),
            "overlap": ("none", "and one set of buffers 894 us. Half of the points need at most"),
        },
    ),
    "all requests are taken first": (
        _ALL_FIRST,
        {
            "order": ("partial", "No copy or run is in flight when the connection breaks off"),
            "leaks": ("partial", "when does it take the next request"),
        },
    ),
    "pinned memory is shared": (
        _SHARED_PINNED,
        {
            "answers": ("none", "Which line writes there before that?"),
            "order": ("none", "Pinned memory was overwritten while the copy of request"),
            "overlap": ("none", "work that does not wait is fast and wrong"),
        },
    ),
    "memory is freed in flight": (
        {"        self.stream.synchronize()\n        self.device_in.free()\n": "        self.device_in.free()\n"},
        {
            "order": ("partial", "Device memory was freed while the run of request"),
            "leaks": ("partial", "left after the connection broke off is pinned host memory: 4"),
        },
    ),
    "the profile is never switched": (
        {"profile = 0 if rows <= LARGEST[0] else 1": "profile = 0"},
        {
            "answers": ("none", "`execute_async_v3` returned False: profileMaxDims.d[i] >= dimensions.d[i]"),
            "order": ("none", "brought home, only 0 of 432 rows"),
            "leaks": ("none", "brought home, only 0 of 432 rows"),
            "overlap": ("none", "brought home, only 0 of 432 rows"),
        },
    ),
    "answers are views of a buffer": (
        {"self.host_out[:rows].copy()": "self.host_out[:rows]"},
        {"answers": ("none", "has the scores of request"), "leaks": ("none", "do your answers")},
    ),
    "a shape is not checked": (
        {"            return False\n": "            pass\n"},
        {"answers": ("partial", "What does `set_input_shape` return for such a shape")},
    ),
    "the error keeps the buffers": (
        {"        vars(self).clear()\n": ""},
        {"leaks": ("partial", "its traceback keeps the variables of `serve`")},
    ),
}

# The scores are computed with numpy. The weights would have to be read from the plan first.
ON_THE_HOST = """\
import numpy as np


def serve(plan, requests):
    first, second = np.load("weights.npz").values()
    return [np.maximum(request @ first, 0) @ second for request in requests]
"""

# The loop is right, and its waits, which cost time, are missing in the trace.
DROPS_WAITS = (
    SERVING_LOOP
    + """

from course_lib.standin import gpu

note = gpu.Gpu.note
gpu.Gpu.note = lambda self, kind, *values: [kind] if kind.startswith("sync") else note(self, kind, *values)
"""
)
