"""The trace of a device: every row that a program causes, in the order of its calls."""

import gc
from typing import Any

import numpy as np
import pytest

from course_lib.standin import cuda_driver as cuda
from course_lib.standin import gpu
from course_lib.standin.trace import FIELDS, named
from tests.doubles import rig

ONES = np.ones(4, np.float32)


@pytest.fixture
def rows() -> list[gpu.Row]:
    found: list[gpu.Row] = []
    gpu.reset(trace=found)
    return found


def kinds(rows: list[gpu.Row]) -> list[str]:
    return [row[0] for row in rows]


def test_one_run_is_a_trace_of_named_rows(trt: Any, rows: list[gpu.Row]) -> None:
    plan = rig.plan(trt)
    bench = rig.Bench(trt.Runtime(rig.logger(trt)).deserialize_cuda_engine(plan))
    bench.run()
    x, y = (int(memory) for memory in bench.memory.values())
    assert kinds(rows) == ["engine", "stream", "context", "allocate", "allocate", "in", "run", "out", "sync_stream"]
    run = named(rows[6])
    assert run["shapes"] == {"x": (2, 4)} and run["reads"] == {"x": (x, 32)} and run["profile"] == 0
    assert run["writes"] == {"y": (y, int(np.prod(bench.context.get_tensor_shape("y"))) * 4)}
    assert run["stream"] == bench.stream.handle and run["context"] == named(rows[2])["context"]
    assert named(rows[5])["data"] == bench.x.tobytes() and named(rows[5])["block"] == 0
    del bench
    gc.collect()
    assert sorted(kinds(rows)[9:]) == ["context_gone", "engine_gone", "free", "free", "stream_gone"]


def test_every_kind_has_its_fields(trt: Any, rows: list[gpu.Row]) -> None:
    bench = rig.Bench(rig.engine(trt, batches=[(1, 2, 4), (5, 6, 8)]))
    done = cuda.Event()
    assert not bench.context.set_input_shape("x", (9, 4))
    bench.context.set_optimization_profile_async(1, bench.stream.handle)
    assert not bench.context.execute_async_v3(bench.stream.handle)
    done.record(bench.stream)
    cuda.Stream().wait_for_event(done)
    done.synchronize()
    bench.stream.synchronize()
    cuda.memcpy_dtod_async(bench.memory["x"], bench.memory["x"], 4, bench.stream)
    cuda.memcpy_dtoh(cuda.pagelocked_empty(6, np.float32), bench.memory["y"])
    bench.context.set_input_shape("x", (5, 4))
    bench.context.set_tensor_address("y", 8)
    bench.context.execute_async_v3(bench.stream.handle)
    with pytest.raises(cuda.LogicError):
        bench.stream.synchronize()
    with pytest.raises(cuda.LogicError):
        bench.stream.synchronize()
    bench.memory.clear()
    gc.collect()
    assert all(len(row) == 1 + len(FIELDS[row[0]]) for row in rows)
    del bench, done
    gc.collect()
    assert set(kinds(rows)) | {"in", "asked"} == set(FIELDS)


def test_a_copy_from_pinned_memory_tells_whether_it_found_other_bytes(rows: list[gpu.Row]) -> None:
    stream, memory, host = cuda.Stream(), cuda.mem_alloc(16), cuda.pagelocked_empty(8, np.float32)
    host[:] = 1
    cuda.memcpy_htod_async(memory, host[4:], stream)
    row = named(rows[-1])
    assert (row["offset"], row["changed"], row["data"]) == (16, False, ONES.tobytes()) and row["block"] == named(rows[2])[
        "block"
    ]
    host[:] = 7
    stream.synchronize()
    row = named(rows[-2])
    assert row["changed"] and row["data"] == ONES.tobytes()


def test_an_event_that_is_recorded_again_is_waited_for_again() -> None:
    """A wait is for the last recording before it, as in CUDA."""
    gpu.reset()
    writer, reader, memory, done = cuda.Stream(), cuda.Stream(), cuda.mem_alloc(16), cuda.Event()
    found = [np.zeros(4, np.float32), np.zeros(4, np.float32)]
    for turn, array in enumerate(found):
        cuda.memcpy_htod_async(memory, (turn + 1) * ONES, writer)
        done.record(writer)
        reader.wait_for_event(done)
        cuda.memcpy_dtoh_async(array, memory, reader)
        done.record(reader)
        writer.wait_for_event(done)
    reader.synchronize()
    assert [array[0] for array in found] == [1, 2]
