"""Building and deserializing: what is rejected, and the reasons in the log."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import ModelProto

from course_lib.standin import gpu, tensorrt_module
from tests.doubles import rig

# ---- the parser


def test_a_model_becomes_a_network(trt: Any, log: Any, tmp_path: Path) -> None:
    onnx.save(rig.linear(), tmp_path / "linear.onnx")
    network = trt.Builder(log).create_network(0)
    parser = trt.OnnxParser(network, log)
    assert parser.parse_from_file(str(tmp_path / "linear.onnx")) and parser.num_errors == 0
    layers = [network.get_layer(i) for i in range(network.num_layers)]
    assert [(layer.name, layer.type) for layer in layers] == [
        ("multiply", trt.LayerType.MATRIX_MULTIPLY),
        ("relu", trt.LayerType.ACTIVATION),
    ]
    given, made = network.get_input(0), network.get_output(0)
    assert (given.name, given.shape, given.dtype) == ("x", (-1, 4), trt.float32)
    assert (made.name, made.shape) == ("y", (-1, 3)) and layers[1].get_output(0).name == "y"
    assert network.get_input(1) is None and "getInput" in log.last
    assert not parser.parse(rig.linear().SerializeToString()) and "non-empty network" in log.last


@pytest.mark.parametrize(
    ("data", "code", "text", "operator"),
    [
        (b"garbage", "MODEL_DESERIALIZE_FAILED", "Failed to parse", ""),
        (rig.linear().SerializeToString()[:40], "MODEL_DESERIALIZE_FAILED", "Failed to parse", ""),
        (rig.unknown_operator().SerializeToString(), "INVALID_NODE", "Plugin not found", "Whirl"),
        (None, "INVALID_VALUE", "", ""),
    ],
)
def test_the_parser_says_what_is_wrong(trt: Any, log: Any, data: Any, code: str, text: str, operator: str) -> None:
    parser = trt.OnnxParser(trt.Builder(log).create_network(0), log)
    assert not (parser.parse(data) if data else parser.parse_from_file("/no/such.onnx"))
    error = parser.get_error(parser.num_errors - 1)
    assert error.code().name == code and text in error.desc() and (not data or error.node_operator() == operator)


# ---- profiles


def _build(trt: Any, log: Any, *ranges: tuple[str, Any, Any, Any], model: ModelProto | None = None) -> Any:
    builder, network = rig.parsed(trt, log, model or rig.linear())
    config = builder.create_builder_config()
    for name, low, best, high in ranges:
        profile = builder.create_optimization_profile()
        profile.set_shape(name, low, best, high)
        config.add_optimization_profile(profile)
    return builder.build_serialized_network(network, config)


@pytest.mark.parametrize(
    ("ranges", "reason"),
    [
        ([], "no optimization profile has been defined"),
        ([("z", (1, 4), (2, 4), (3, 4))], "Dynamic input tensor x is missing dimensions in profile 0"),
        ([("x", (1, 5), (2, 5), (3, 5))], "At dimension axis 1, profile has min=5, opt=5, max=5 but tensor has 4"),
    ],
)
def test_profiles_that_do_not_fit_give_none(trt: Any, log: Any, ranges: Any, reason: str) -> None:
    assert _build(trt, log, *ranges) is None
    assert reason in log.last


def test_a_contradictory_profile_is_not_added(trt: Any, log: Any) -> None:
    builder = trt.Builder(log)
    config, profile = builder.create_builder_config(), builder.create_optimization_profile()
    assert profile.get_shape("x") == []
    profile.set_shape("x", (4, 4), (2, 4), (8, 4))
    assert [tuple(shape) for shape in profile.get_shape("x")] == [(4, 4), (2, 4), (8, 4)]
    assert not profile and config.add_optimization_profile(profile) == -1
    assert "MIN<=OPT<=MAX" in "".join(log.rows)
    assert config.add_optimization_profile(builder.create_optimization_profile()) == 0
    with pytest.raises(RuntimeError, match="Shape provided for min is inconsistent"):
        profile.set_shape("x", (-1, 4), (2, 4), (8, 4))


# ---- configuration, progress, timings


def test_the_configuration_has_the_real_defaults(trt: Any, log: Any) -> None:
    config = trt.Builder(log).create_builder_config()
    assert config.flags == 1 << int(trt.BuilderFlag.TF32)
    assert config.builder_optimization_level == 3 and config.profiling_verbosity == trt.ProfilingVerbosity.LAYER_NAMES_ONLY
    config.builder_optimization_level = 9
    config.set_flag(trt.BuilderFlag.REFIT)
    config.clear_flag(trt.BuilderFlag.TF32)
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 20)
    assert config.builder_optimization_level == 5 and config.flags == 1 << int(trt.BuilderFlag.REFIT)
    config.reset()
    assert config.flags == 1 << int(trt.BuilderFlag.TF32)


def _monitor(trt: Any, stop_after: int | None = None) -> Any:
    class Monitor(trt.IProgressMonitor):
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.open: list[str] = []
            self.steps = self.finished = 0

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            assert parent_phase == (self.open[-1] if self.open else None)
            self.open.append(phase_name)

        def step_complete(self, phase_name: str, step: int) -> bool:
            self.steps += 1
            return self.steps != stop_after

        def phase_finish(self, phase_name: str) -> None:
            assert self.open.pop() == phase_name
            self.finished += 1

    return Monitor()


@pytest.mark.parametrize(("stop", "steps", "finished"), [(1, 1, 2), (4, 4, 2), (5, 5, 3), (None, 15, 4)])
def test_a_build_reports_its_progress_and_a_monitor_can_cancel_it(
    trt: Any, log: Any, stop: Any, steps: int, finished: int
) -> None:
    builder, network = rig.parsed(trt, log, rig.linear(2))
    config = builder.create_builder_config()
    config.progress_monitor = monitor = _monitor(trt, stop)
    built = builder.build_serialized_network(network, config)
    assert (built is None and "Build canceled by user" in log.last) == (stop is not None)
    assert (monitor.steps, monitor.finished, monitor.open) == (steps, finished, [])


def test_a_timing_cache_belongs_to_a_version_and_a_device(trt: Any, log: Any) -> None:
    builder, network = rig.parsed(trt, log, rig.linear(2))
    config = builder.create_builder_config()
    cache = config.create_timing_cache(b"")
    assert config.set_timing_cache(cache, ignore_mismatch=False)
    assert builder.build_serialized_network(network, config) is not None
    kept = bytes(cache.serialize())
    assert config.set_timing_cache(config.create_timing_cache(kept), ignore_mismatch=False)
    assert b"MatMul" in kept and config.create_timing_cache(b"").combine(config.create_timing_cache(kept), False)
    gpu.reset(capability=(8, 9))
    stale = config.create_timing_cache(kept)
    assert not config.set_timing_cache(stale, ignore_mismatch=False)
    assert not config.create_timing_cache(b"").combine(stale, ignore_mismatch=False)
    assert config.create_timing_cache(b"nonsense") is not None and "Failed to deserialize" in log.last


# ---- plans


def _load(version: str, plan: Any, host_code: bool = False) -> tuple[Any, str]:
    trt = tensorrt_module.make(version)
    log = rig.logger(trt)
    runtime = trt.Runtime(log)
    runtime.engine_host_code_allowed = host_code
    return runtime.deserialize_cuda_engine(bytes(plan)), log.last


def test_another_version_rejects_a_plan() -> None:
    old, new = (rig.plan(tensorrt_module.make(version)) for version in ("10.16", "11.4"))
    for version, plan in (("11.4", old), ("10.16", new)):
        engine, reason = _load(version, plan)
        assert engine is None and "Version tag does not match" in reason


def test_a_version_compatible_plan_runs_later_and_never_earlier() -> None:
    old, new = (rig.plan(tensorrt_module.make(version), flags=["VERSION_COMPATIBLE"]) for version in ("10.16", "11.4"))
    engine, reason = _load("11.4", old)
    assert engine is None and "engine_host_code_allowed" in reason
    assert _load("11.4", old, host_code=True)[0] is not None
    assert _load("10.16", new, host_code=True)[0] is None
    lean = rig.plan(tensorrt_module.make("10.16"), flags=["VERSION_COMPATIBLE", "EXCLUDE_LEAN_RUNTIME"])
    assert _load("11.4", lean)[0] is not None


@pytest.mark.parametrize(
    ("level", "built_on", "run_on", "fits"),
    [
        ("NONE", (9, 0), (9, 0), True),
        ("NONE", (8, 6), (8, 9), False),
        ("SAME_COMPUTE_CAPABILITY", (8, 6), (8, 9), False),
        ("AMPERE_PLUS", (8, 6), (9, 0), True),
        ("AMPERE_PLUS", (8, 6), (7, 5), False),
    ],
)
def test_a_plan_belongs_to_devices(trt: Any, log: Any, level: str, built_on: Any, run_on: Any, fits: bool) -> None:
    gpu.reset(capability=built_on)
    plan = rig.plan(trt, hardware_compatibility_level=getattr(trt.HardwareCompatibilityLevel, level))
    gpu.reset(capability=run_on)
    engine = trt.Runtime(log).deserialize_cuda_engine(plan)
    assert (engine is not None) == fits
    if not fits:
        found = f"expecting compute {run_on[0]}.{run_on[1]} got compute {built_on[0]}.{built_on[1]}, please rebuild"
        assert found in log.last


def test_an_engine_tells_its_tensors_and_profiles(trt: Any, log: Any) -> None:
    engine = rig.engine(trt, batches=((1, 2, 8), (9, 10, 16)), log=log)
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    assert names == ["x", "y"] and engine[0] == "x"
    modes = [engine.get_tensor_mode(name) for name in (*names, "z")]
    assert modes == [trt.TensorIOMode.INPUT, trt.TensorIOMode.OUTPUT, trt.TensorIOMode.NONE]
    assert engine.get_tensor_shape("x") == (-1, 4) and trt.nptype(engine.get_tensor_dtype("y")).__name__ == "float32"
    assert engine.num_optimization_profiles == 2
    assert [tuple(s) for s in engine.get_tensor_profile_shape("x", 1)] == [(9, 4), (10, 4), (16, 4)]
    assert engine.get_tensor_location("x") == trt.TensorLocation.DEVICE and engine.num_layers == 2
    assert engine.get_tensor_name(2) is None and "ERROR" in log.last
    again = trt.Runtime(log).deserialize_cuda_engine(engine.serialize())
    assert again.num_optimization_profiles == 2


def test_the_inspector_tells_what_the_verbosity_allows(trt: Any) -> None:
    def layers(verbosity: str) -> Any:
        engine = rig.engine(trt, profiling_verbosity=getattr(trt.ProfilingVerbosity, verbosity))
        text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
        return json.loads(text)["Layers"]

    assert layers("LAYER_NAMES_ONLY") == ["multiply", "relu"]
    first = layers("DETAILED")[0]
    assert (first["Name"], first["LayerType"], first["Metadata"]) == ("multiply", "MatrixMultiply", "[ONNX Layer: multiply]")
    assert first["Inputs"] == [
        {"Name": "x", "Dimensions": [-1, 4], "Format": "(Linear) Row major linear format", "Datatype": "Float"}
    ]
    assert first["Weights"] == {"Type": "Float", "Count": 12}
