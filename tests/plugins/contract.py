"""What must hold of the Python plugins on TensorRT's real bindings, as far as no engine is needed.

Run by test_rope_contract.py in a process that imports one version's bindings over empty libraries: a JSON line for each check, null
where it passed. Device memory and streams are the stand-in of `course_lib.standin`, and the kernel on them is rope.cu, compiled for the
host: so `enqueue` runs from the bindings' tensor descriptions down to the numbers.
"""

from __future__ import annotations

import gc
import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorrt_bindings as trt

sys.modules["tensorrt"] = trt  # the name under which the bindings' own Python code looks for them

from course_lib.errors import EngineError  # noqa: E402
from course_lib.plugins import host_launcher, quick_rope, register_rope, rope_plugin  # noqa: E402
from course_lib.standin import cuda_driver, gpu  # noqa: E402
from tests.plugins.rope_cases import DTYPES, Case, excess, make_case  # noqa: E402

TYPES = {"float32": trt.DataType.FLOAT, "float16": trt.DataType.HALF, "bfloat16": trt.DataType.BF16}
LINEAR = trt.TensorFormat.LINEAR


def launch_on_double(
    dtype: str, x: int, cos: int, sin: int, y: int, shape: Any, *, interleaved: bool = False, stream: int = 0
) -> None:
    """The kernel on the stand-in's memory, when the stream comes to it."""
    numbers, device = int(np.prod(shape)), gpu.current()
    width, table = np.dtype(DTYPES[dtype]).itemsize, 4 * shape[1] * shape[3] // 2

    def work() -> None:
        sizes = ((x, numbers * width), (cos, table), (sin, table), (y, numbers * width))
        host_launcher()(dtype, *(device.view(*one).ctypes.data for one in sizes), shape, interleaved=interleaved)

    device.enqueue(stream, work, "cuLaunchKernel")


def make(interleaved: bool = False) -> Any:
    return rope_plugin(trt, launch_on_double).plugin(interleaved)


def creator() -> Any:
    return rope_plugin(trt).creator()


def described(shape: tuple[int, ...], dtype: Any, form: Any = LINEAR) -> Any:
    tensor = trt.PluginTensorDesc()
    tensor.dims, tensor.type, tensor.format = trt.Dims(shape), dtype, form
    return tensor


def dynamic(dtype: Any, form: Any = LINEAR) -> Any:
    tensor = trt.DynamicPluginTensorDesc()
    tensor.desc = described((1,), dtype, form)
    return tensor


def rejected(call: Callable[[], Any], error: type[BaseException], *words: str) -> None:
    try:
        call()
    except error as raised:
        assert all(word in str(raised) for word in words), raised
        return
    raise AssertionError(f"not rejected, expected {error.__name__} with {words}")


# ---- what TensorRT finds it by


def check_names() -> None:
    for one in (make(), creator()):
        name = one.plugin_name if hasattr(one, "plugin_name") else one.name
        assert (name, one.plugin_version, one.plugin_namespace) == ("CourseRope", "1", "course")
    assert make().num_outputs == 1


def check_capabilities() -> None:
    plugin = make()
    kinds = {"CORE": trt.IPluginV3OneCore, "BUILD": trt.IPluginV3OneBuild, "RUNTIME": trt.IPluginV3OneRuntime}
    assert set(trt.PluginCapabilityType.__members__) == set(kinds)
    for name, kind in kinds.items():
        found = plugin.get_capability_interface(trt.PluginCapabilityType.__members__[name])
        assert found is plugin and isinstance(found, kind)


def check_clones_are_plugins_of_their_own() -> None:
    for interleaved in (False, True):
        plugin = make(interleaved)
        for clone in (plugin.clone(), plugin.attach_to_context(None)):
            assert clone is not plugin and type(clone) is type(plugin) and clone.interleaved is interleaved
            assert (clone.plugin_name, clone.plugin_namespace, clone.num_outputs) == ("CourseRope", "course", 1)
            plugin.interleaved = not interleaved
            assert clone.interleaved is interleaved
            plugin.interleaved = interleaved


# ---- fields


def check_fields_go_through_an_engine_file() -> None:
    for interleaved in (False, True):
        fields = make(interleaved).get_fields_to_serialize()
        as_tensorrt_sees_it = trt.PluginFieldCollection_(fields)
        for phase in (trt.TensorRTPhase.BUILD, trt.TensorRTPhase.RUNTIME):
            for collection in (fields, as_tensorrt_sees_it):
                assert creator().create_plugin("rope", collection, phase).interleaved is interleaved


def check_the_creator_declares_its_field() -> None:
    (field,) = creator().field_names
    assert (field.name, field.type) == ("interleaved", trt.PluginFieldType.INT32)


def check_fields_that_are_absent_or_unknown() -> None:
    build = trt.TensorRTPhase.BUILD
    assert creator().create_plugin("rope", trt.PluginFieldCollection([]), build).interleaved is False
    base = np.array([10000.0], np.float32)
    fields = trt.PluginFieldCollection([trt.PluginField("base", base, trt.PluginFieldType.FLOAT32)])
    rejected(lambda: creator().create_plugin("rope", fields, build), ValueError, "found base")


def _churn() -> list[np.ndarray]:
    """Free memory is given to somebody else."""
    gc.collect()
    return [np.full(1000, -1, np.int32) for _ in range(200)]


def check_the_plugin_does_not_fall_into_it() -> None:
    plugin = make(True)
    fields = plugin.get_fields_to_serialize()
    others = [_churn(), *(np.zeros(1, np.int32) for _ in range(1000))]
    assert others and list(fields[0].data) == [1]
    made = creator()
    others = [_churn(), *(np.zeros(1, np.int32) for _ in range(1000))]
    assert made.field_names[0].name == "interleaved"


# ---- building


def check_types_and_shapes_of_the_output() -> None:
    plugin = make()
    for dtype in TYPES.values():
        assert plugin.get_output_data_types([dtype, trt.DataType.FLOAT, trt.DataType.FLOAT]) == [dtype]
    # Expressions have no constructor outside a builder: what is seen here is that x's rank comes out
    (shape,) = plugin.get_output_shapes([trt.DimsExprs(4), trt.DimsExprs(2), trt.DimsExprs(2)], [], None)
    assert isinstance(shape, trt.DimsExprs) and len(shape) == 4


def check_format_combinations() -> None:
    plugin, checked = make(), 0
    for position in range(4):
        for x in TYPES.values():
            for name, dtype in trt.DataType.__members__.items():
                for form in trt.TensorFormat.__members__.values():
                    tensors = [dynamic(t) for t in (x, trt.DataType.FLOAT, trt.DataType.FLOAT, x)]
                    tensors[position] = dynamic(dtype, form)
                    allowed = {0: ("FLOAT", "HALF", "BF16"), 3: (x.name,)}.get(position, ("FLOAT",))
                    want = form == LINEAR and name in allowed
                    found = plugin.supports_format_combination(position, tensors, 3)
                    assert found is want, (position, x, name, form)
                    checked += 1
    assert checked > 1000


def check_configuration() -> None:
    plugin, tensor = make(), dynamic(trt.DataType.FLOAT)
    plugin.configure_plugin([tensor] * 3, [tensor])
    rejected(lambda: plugin.configure_plugin([tensor] * 2, [tensor]), ValueError, "found 2 and 1")
    assert plugin.get_valid_tactics() == [] and plugin.get_workspace_size([tensor] * 3, [tensor]) == 0
    plugin.set_tactic(0)


def check_shapes_at_run_time() -> None:
    plugin = make()

    def change(x: tuple[int, ...], table: tuple[int, ...]) -> None:
        tables = [described(table, trt.DataType.FLOAT)] * 2
        plugin.on_shape_change([described(x, trt.DataType.HALF), *tables], [described(x, trt.DataType.HALF)])

    change((2, 5, 3, 8), (9, 4))
    rejected(lambda: change((2, 5, 3, 8), (4, 4)), ValueError, "at least 5 rows")
    rejected(lambda: change((2, 5, 8), (5, 4)), ValueError, "batch, sequence, heads")


# ---- running


def _rotate(case: Case, enqueue: Callable[..., Any]) -> np.ndarray:
    """Through device memory on a stream, by a function of descriptions, addresses and the stream."""
    gpu.reset()
    cuda_driver.Context().push()
    stream, y = cuda_driver.Stream(), np.zeros_like(case.x)
    arrays = (case.x, case.cos, case.sin)
    memory = [cuda_driver.mem_alloc(array.nbytes) for array in (*arrays, y)]
    for device, array in zip(memory, arrays, strict=False):
        cuda_driver.memcpy_htod_async(device, array, stream)
    types = (TYPES[case.x.dtype.name], trt.DataType.FLOAT, trt.DataType.FLOAT)
    inputs = [described(array.shape, dtype) for array, dtype in zip(arrays, types, strict=True)]
    *addresses, output = map(int, memory)
    enqueue(inputs, [inputs[0]], addresses, [output], stream.handle)
    cuda_driver.memcpy_dtoh_async(y, memory[3], stream)
    assert not y.any(), "it ran when it was enqueued, not when the stream came to it"
    stream.synchronize()
    cuda_driver.Context.pop()
    return y


def check_enqueue_runs_on_the_stream() -> None:
    for dtype in TYPES:
        for interleaved in (False, True):
            case = make_case((2, 7, 3, 64), dtype, interleaved=interleaved, seed=3, spare=2)
            plugin = make(interleaved).clone()
            y = _rotate(case, lambda i, o, a, b, stream, plugin=plugin: plugin.enqueue(i, o, a, b, 0, stream))
            assert excess(y, case) <= 1


# ---- the registry, which empty libraries lack


class Registry:
    """Takes one creator of a name, as TensorRT's does."""

    def __init__(self) -> None:
        self.creators: dict[tuple[str, ...], Any] = {}

    def register_creator(self, creator: Any, plugin_namespace: str = "") -> bool:
        assert isinstance(creator, trt.IPluginCreatorInterface)
        key = (creator.name, creator.plugin_version, plugin_namespace)
        return self.creators.setdefault(key, creator) is creator

    def get_creator(self, type: str, version: str, plugin_namespace: str = "") -> Any:
        return self.creators.get((type, version, plugin_namespace))


def check_registering_twice_is_registering_once() -> None:
    registry = Registry()
    trt.get_plugin_registry = lambda: registry
    register_rope.cache_clear()
    first = register_rope(trt)
    assert register_rope(trt) is first
    assert registry.creators == {("CourseRope", "1", "course"): first}
    rejected(lambda: register_rope(trt, launch_on_double), EngineError, "has one already")


def check_the_quick_plugin() -> None:
    """TensorRT's own Python code reads our annotations, makes the plugin, and calls our function."""
    registry = Registry()
    trt.get_plugin_registry = lambda: registry
    definition = quick_rope(trt, launch_on_double)
    assert definition.plugin_id == "course::QuickRope" and definition.num_outputs == 1
    assert definition.input_tensor_names == ["x", "cos", "sin"] and definition.impl_attr_names == ["interleaved"]
    quick = registry.get_creator("QuickRope", "1", "course")
    for interleaved in (False, True):
        attribute = np.array([interleaved], np.int8)  # as TensorRT stores a bool
        fields = trt.PluginFieldCollection([trt.PluginField("interleaved", attribute, trt.PluginFieldType.INT8)])
        plugin = quick.create_plugin("QuickRope", "course", fields, trt.TensorRTPhase.BUILD)
        for dtype, kind in TYPES.items():
            assert plugin.get_output_data_types([kind, trt.DataType.FLOAT, trt.DataType.FLOAT], [4, 2, 2]) == [kind]
            case = make_case((2, 5, 3, 66), dtype, interleaved=interleaved, seed=6)
            y = _rotate(case, lambda i, o, a, b, stream, p=plugin: p.enqueue(i, o, a, b, [()] * 3, [()], stream))
            assert excess(y, case) <= 1


def report(names: dict[str, Any]) -> None:
    """Run the checks among a script's names, and print the outcome of each."""
    for name, check in list(names.items()):
        if not name.startswith("check_"):
            continue
        outcome = None
        try:
            check()
        except Exception:
            outcome = traceback.format_exc()[-1500:]
        print(json.dumps({name.removeprefix("check_"): outcome}), flush=True)


if __name__ == "__main__":
    report(globals())
