"""Run by test_int8.py in the interpreter that holds a TensorRT with calibrators: ONNX to an INT8 engine, then its logits.

    python int8_with_calibrator.py LIBRARY MODEL.onnx KIND CALIBRATION.npy IMAGES.npy CACHE LOGITS.npy

An existing CACHE is used as it is, so the ranges in it are the engine's; otherwise TensorRT calibrates and writes it.
"""

import os
import sys

sys.path.insert(0, sys.argv[1])

import numpy as np
import tensorrt as trt

from course_lib.engines.backends.tensorrt.layer_sources import parse_inspector
from course_lib.engines.backends.tensorrt.memory import cuda
from course_lib.engines.backends.tensorrt.runtime import TensorRTEngine
from course_lib.engines.plan import Plan
from course_lib.precision.calibration.trt_calibrators import trt_calibrator

_, _, model, kind, calibration, images, cache, logits = sys.argv
BATCH = 50
cuda()  # one context for the calibrator and the engine
log = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(log)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
assert trt.OnnxParser(network, log).parse_from_file(model)
config = builder.create_builder_config()
config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
config.set_flag(trt.BuilderFlag.INT8)
if sources := os.environ.get("COURSE_TACTIC_SOURCES"):
    config.set_tactic_sources(sum(1 << int(trt.TacticSource.__members__[name]) for name in sources.split(",")))
profile = builder.create_optimization_profile()
profile.set_shape("image", *[(BATCH, 1, 32, 32)] * 3)
config.add_optimization_profile(profile)
config.set_calibration_profile(profile)
samples = np.load(calibration)
batches = ({"image": samples[i : i + BATCH]} for i in range(0, len(samples) - BATCH + 1, BATCH))
config.int8_calibrator = calibrator = trt_calibrator(trt, kind, batches, cache)
data = bytes(builder.build_serialized_network(network, config))
engine = trt.Runtime(log).deserialize_cuda_engine(data)
text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
table = parse_inspector(text)
print("kernels by datatype:", dict(table.dtype_counts()))
assert table.dtype_counts()["Int8"] > 5, table.rows()
recipe = {"profiles": [{"image": {"min": (BATCH, 1, 32, 32), "max": (BATCH, 1, 32, 32)}}]}
runner = TensorRTEngine(trt, Plan("tensorrt", trt.__version__, data, "", recipe, (), table, 0.0))
test = np.load(images)
np.save(logits, np.concatenate([runner.infer({"image": test[i : i + BATCH]})["logits"] for i in range(0, len(test), BATCH)]))

sys.stdout.flush()
os._exit(0)  # two libraries each keep a CUDA context on the stack and disagree on who leaves first
