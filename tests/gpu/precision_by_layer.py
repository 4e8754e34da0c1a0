"""Run by test_features.py in the interpreter that holds a weakly typed TensorRT: FP16, but FP32 where a layer is told so.

    python precision_by_layer.py LIBRARY MODEL.onnx IMAGES.npy LOGITS.npy

The first and the last convolution are bound to FP32, all others to FP16. The last line printed is JSON: for each convolution, in the
network's order, the type of its weights as the engine inspector tells it.
"""

import json
import os
import sys

sys.path.insert(0, sys.argv[1])

import numpy as np
import tensorrt as trt

from course_lib.engines.backends.tensorrt.layer_sources import parse_inspector
from course_lib.engines.backends.tensorrt.memory import cuda
from course_lib.engines.backends.tensorrt.runtime import TensorRTEngine
from course_lib.engines.plan import Plan

_, _, model, images, logits = sys.argv
x = np.load(images)
cuda()
log = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(log)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
assert trt.OnnxParser(network, log).parse_from_file(model)
config = builder.create_builder_config()
config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
config.set_flag(trt.BuilderFlag.FP16)
config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
if sources := os.environ.get("COURSE_TACTIC_SOURCES"):
    config.set_tactic_sources(sum(1 << int(trt.TacticSource.__members__[name]) for name in sources.split(",")))
profile = builder.create_optimization_profile()
profile.set_shape("image", *[x.shape] * 3)
config.add_optimization_profile(profile)
layers = [network.get_layer(i) for i in range(network.num_layers)]
convolutions = [layer for layer in layers if layer.type == trt.LayerType.CONVOLUTION]
for layer in convolutions:
    wide = layer.name in (convolutions[0].name, convolutions[-1].name)
    layer.precision = trt.float32 if wide else trt.float16
names = [layer.name for layer in convolutions]
data = bytes(builder.build_serialized_network(network, config))
engine = trt.Runtime(log).deserialize_cuda_engine(data)
inspector = engine.create_engine_inspector()
table = parse_inspector(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
one = inspector.get_layer_information(0, trt.LayerInformationFormat.JSON)
recipe = {"profiles": [{"image": {"min": list(x.shape), "max": list(x.shape)}}]}
runner = TensorRTEngine(trt, Plan("tensorrt", trt.__version__, data, "", recipe, (), table, 0.0))
np.save(logits, runner.infer({"image": x})["logits"])
types = {name: [w.dtype for kernel in table.kernels if name in kernel.onnx_nodes for w in kernel.weights] for name in names}
print([(kernel.name, kernel.onnx_nodes) for kernel in table.kernels])
print(json.dumps({"types": types, "first layer": one, "layers": engine.num_layers, "rows": len(table)}))

sys.stdout.flush()
os._exit(0)  # two libraries each keep a CUDA context on the stack and disagree on who leaves first
