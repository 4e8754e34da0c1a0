"""Running: results equal onnxruntime's, and every step that is left out or wrong fails as it does on a GPU."""

from typing import Any

import numpy as np
import pytest

from course_lib.standin import cuda_driver as cuda
from tests.doubles import rig


def test_shapes_come_from_the_inputs(trt: Any) -> None:
    context = rig.engine(trt).create_execution_context()
    assert (
        context.infer_shapes() == ["x"] and context.get_tensor_shape("y") == (-1, 3) and context.get_max_output_size("y") == -1
    )
    assert context.set_input_shape("x", [5, 4])
    assert context.infer_shapes() == [] and context.get_tensor_shape("y") == (5, 3) and context.get_max_output_size("y") == 60


@pytest.mark.parametrize("shape", [(9, 4), (0, 4), (2, 5), (2,), (2, 4, 1)])
def test_a_shape_outside_the_profile_is_rejected(trt: Any, log: Any, shape: tuple[int, ...]) -> None:
    context = rig.engine(trt, log=log).create_execution_context()
    assert context.set_input_shape("x", shape) is False
    assert "Valid range for profile 0: [1,4]..[8,4]" in log.last
    assert context.infer_shapes() == ["x"]


def test_an_unset_shape_or_address_stops_the_run(trt: Any, log: Any) -> None:
    context = rig.engine(trt, log=log).create_execution_context()
    memory = cuda.mem_alloc(256)
    for name in "xy":
        assert context.set_tensor_address(name, int(memory))
    assert context.execute_async_v3(cuda.Stream().handle) is False
    assert "allInputDimensionsSpecified" in log.last
    for name, reason in (("x", "Address is not set for input tensor x"), ("y", "allocator is set for output tensor y")):
        bench = rig.Bench(rig.engine(trt, log=log))
        bench.context.set_tensor_address(name, 0)
        assert bench.enqueue() is False and reason in log.last


@pytest.mark.parametrize("name", ["x", "y", "host"])
def test_a_buffer_that_is_too_small_and_a_host_pointer_lose_the_device(trt: Any, name: str) -> None:
    bench, small = rig.Bench(rig.engine(trt)), cuda.mem_alloc(8)
    bench.context.set_tensor_address("y" if name == "host" else name, bench.y.ctypes.data if name == "host" else int(small))
    assert bench.enqueue()  # TensorRT cannot see it; the device does
    for call in (bench.stream.synchronize, lambda: cuda.mem_alloc(1)):
        with pytest.raises(cuda.LogicError, match="an illegal memory access was encountered"):
            call()


# ---- profiles


def test_shapes_belong_to_the_profile_that_is_set(trt: Any, log: Any) -> None:
    engine = rig.engine(trt, batches=((1, 2, 8), (9, 10, 16)), log=log)
    bench = rig.Bench(engine, rows=10)
    context = bench.context
    assert bench.shaped is True  # another profile contains the shape: TensorRT 8.6.0 rejects the run, not the shape
    assert bench.enqueue() is False and "exceeds the range of profile 0, [1,4]..[8,4]" in log.last
    assert (
        context.set_input_shape("x", (17, 4)) is False
        and "profile 0: [1,4]..[8,4]. Valid range for profile 1: [9,4]" in log.last
    )
    assert context.get_tensor_shape("x") == (10, 4) and context.set_input_shape("x", (2, 4))
    assert context.set_optimization_profile_async(1, bench.stream.handle) is True and context.active_optimization_profile == 1
    assert context.infer_shapes() == ["x"]  # shapes are forgotten with their profile
    assert bench.enqueue() is False and "allInputDimensionsSpecified" in log.last
    assert context.set_input_shape("x", (2, 4)) and bench.enqueue() is False and context.set_input_shape("x", (10, 4))
    np.testing.assert_array_equal(bench.run(), rig.expected(rig.linear(), bench.x))


def test_a_profile_set_on_another_stream_must_be_waited_for(trt: Any) -> None:
    bench = rig.Bench(rig.engine(trt, batches=((1, 2, 8), (9, 10, 16))), rows=10)
    other = cuda.Stream()
    bench.context.set_optimization_profile_async(1, other.handle)
    assert bench.context.set_input_shape("x", (10, 4))
    done = cuda.Event()
    done.record(other)
    bench.stream.wait_for_event(done)
    assert bench.run().any()
    bench.context.set_optimization_profile_async(0, other.handle)
    bench.context.set_input_shape("x", (2, 4))
    assert bench.enqueue()
    with pytest.raises(cuda.LogicError, match="profile 0 was set on another stream"):
        bench.stream.synchronize()


# ---- memory


def _own_memory(trt: Any, engine: Any) -> Any:
    return engine.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)


def test_a_context_without_memory_does_not_run(trt: Any, log: Any) -> None:
    engine = rig.engine(trt, log=log)
    bench = rig.Bench(engine, context=_own_memory(trt, engine))
    assert bench.enqueue() is False and "set_device_memory()" in log.last
    size = engine.device_memory_size_v2
    memory = cuda.mem_alloc(size + 256)
    bench.context.set_device_memory(int(memory), size - 1)
    assert "size >= engine.device_memory_size_v2" in log.last and bench.enqueue() is False
    bench.context.set_device_memory(int(memory) + 8, size)
    assert "aligned to 256 bytes" in log.last and bench.enqueue() is False
    bench.context.set_device_memory(int(memory), size)
    np.testing.assert_array_equal(bench.run(), rig.expected(rig.linear(), bench.x))


# ---- refitting


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("v", rig.WEIGHTS, "refittable weights of the name v"),
        ("w", rig.WEIGHTS[:2].copy(), "6 of FLOAT for 12 of FLOAT"),
        ("w", rig.WEIGHTS.astype(np.float16), "12 of HALF for 12 of FLOAT"),
    ],
)
def test_wrong_weights_are_rejected(trt: Any, log: Any, name: str, values: np.ndarray, reason: str) -> None:
    engine = rig.engine(trt, flags=["REFIT"], log=log)
    assert trt.Refitter(engine, log).set_named_weights(name, trt.Weights(values)) is False and reason in log.last


def test_a_stripped_plan_must_be_refitted(trt: Any, log: Any) -> None:
    engine = rig.engine(trt, flags=["STRIP_PLAN"], log=log)
    bench, refitter = rig.Bench(engine), trt.Refitter(engine, log)
    assert refitter.get_missing_weights() == ["w"] and refitter.refit_cuda_engine() is False
    assert bench.enqueue() is False and "weights were stripped" in log.last
    assert refitter.set_named_weights("w", trt.Weights(rig.WEIGHTS)) and refitter.refit_cuda_engine()
    np.testing.assert_array_equal(bench.run(), rig.expected(rig.linear(), bench.x))
