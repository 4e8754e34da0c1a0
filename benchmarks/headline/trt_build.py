"""ONNX to a plan in the interpreter that holds TensorRT, where the course's own `build` has no room for a calibrator.

    python trt_build.py REQUEST.json

REQUEST has ``model``, ``plan`` (the file to write), ``recipe`` (plain JSON values), ``plugins`` (libraries that the registry loads
first), and ``calibration``: null, or ``data`` (an .npy file), ``batch``, ``cache`` and ``kind`` of `trt_calibrator`. The last line of
the output is JSON: ``build_s``, ``plan_mb``, ``kernels``, ``kernel_dtypes``; or ``failed``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from course_lib.engines.backends.tensorrt import timing_cache
from course_lib.engines.backends.tensorrt.config import configure, network_flags
from course_lib.engines.backends.tensorrt.layer_sources import parse_inspector
from course_lib.engines.backends.tensorrt.log import keep_log
from course_lib.engines.backends.tensorrt.memory import cuda
from course_lib.engines.layers import LayerTable
from course_lib.engines.plan import Plan
from course_lib.errors import BuildError, CourseError


def main() -> None:
    import tensorrt as trt

    try:
        found = build(trt, json.loads(Path(sys.argv[1]).read_text()))
    except Exception as error:
        found = {"failed": " ".join(f"{type(error).__name__}: {error}".split())[:400]}
    print(json.dumps(found), flush=True)
    os._exit(0)  # TensorRT and pycuda disagree on who leaves first


def build(trt: Any, request: dict[str, Any]) -> dict[str, Any]:
    cuda()  # one context for the builder and the calibrator
    log = keep_log(trt)
    load_plugins(trt, request.get("plugins", []))
    builder = trt.Builder(log)
    network = builder.create_network(network_flags(trt))
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(request["model"]):
        raise BuildError(" ".join(str(parser.get_error(index).desc()) for index in range(parser.num_errors)))
    recipe = request["recipe"]
    config, targets = configure(trt, builder, network, recipe, "tensorrt")
    timing_file = timing_cache.file_for(trt, "tensorrt")
    timings = timing_cache.use(config, timing_file) if timing_file else None
    calibrator = _calibrate(trt, builder, network, config, request["calibration"]) if request["calibration"] else None
    started = time.perf_counter()
    serialized = builder.build_serialized_network(network, config)
    seconds = time.perf_counter() - started
    if serialized is None:
        raise BuildError(log.take())
    del calibrator  # the config knew only its address
    if timing_file and timings is not None:
        timing_cache.keep(config, timings, timing_file)
    data = bytes(serialized)
    engine = trt.Runtime(log).deserialize_cuda_engine(data)
    if engine is None:
        raise BuildError(f"the plan that was just built cannot be loaded: {log.take()}")
    layers = _layers(trt, engine)
    Plan("tensorrt", trt.__version__, data, "", recipe, targets, layers, seconds).save(request["plan"])
    kernels = {"kernels": len(layers.kernels), "kernel_dtypes": dict(layers.dtype_counts())}
    return {
        "build_s": round(seconds, 1),
        "plan_mb": round(len(data) / 1e6, 1),
        "timings_kept": timing_file is not None,
        **kernels,
    }


def load_plugins(trt: Any, libraries: list[str]) -> None:
    """Register libraries of plugins, before a file that names one is parsed and before an engine that has one is loaded."""
    for library in libraries:
        if not trt.get_plugin_registry().load_library(library):
            raise BuildError(f"TensorRT's plugin registry rejects {library}: was it compiled for this version?")


def _layers(trt: Any, engine: Any) -> LayerTable:
    """The engine's layers; an inspector's answer that cannot be read costs no engine that took minutes."""
    try:
        return parse_inspector(engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON))
    except (CourseError, ValueError, KeyError, TypeError):
        return LayerTable((), {})


def _calibrate(trt: Any, builder: Any, network: Any, config: Any, wanted: dict[str, Any]) -> Any:
    """TensorRT's own calibration of every tensor, on batches of one shape; the caller keeps what this returns."""
    from course_lib.precision.calibration.trt_calibrators import trt_calibrator

    samples, size = np.load(wanted["data"]), int(wanted["batch"])
    name = network.get_input(0).name
    batches = ({name: samples[start : start + size]} for start in range(0, len(samples) - size + 1, size))
    profile = builder.create_optimization_profile()
    profile.set_shape(name, *[(size, *samples.shape[1:])] * 3)
    config.set_calibration_profile(profile)
    config.int8_calibrator = calibrator = trt_calibrator(trt, wanted["kind"], batches, wanted["cache"])
    return calibrator, profile


if __name__ == "__main__":
    main()
