"""Run by test_rope.py in the interpreter that holds a TensorRT: the C++ plugin inside an engine built from ONNX.

    python rope_in_engine.py LIBRARY PLUGIN.so FOLDER NAME...

For each NAME the folder holds NAME.onnx and the inputs NAME.0.npy, NAME.1.npy, ... of different batches and lengths; the outputs are
written as NAME.0.out.npy and so on, once without and once with a CUDA graph (NAME.0.graph.npy).
"""

import faulthandler
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])

import numpy as np
import tensorrt as trt

from course_lib.engines.backends.tensorrt.config import configure, network_flags
from course_lib.engines.backends.tensorrt.layer_sources import parse_inspector
from course_lib.engines.backends.tensorrt.memory import cuda
from course_lib.engines.backends.tensorrt.runtime import TensorRTEngine
from course_lib.engines.plan import Plan

_, _, plugin, folder, *names = sys.argv
BOUNDS, BATCHES, LENGTHS = ("min", "opt", "max"), (1, 2, 5), (1, 64, 300)
RECIPE = {"workspace_mib": 64, "optimization_level": 3, "flags": [], "targets": [], "hardware_compatibility": "none"}
faulthandler.enable()  # a plugin that fails takes the process along
cuda()
log = trt.Logger(trt.Logger.WARNING)
assert trt.get_plugin_registry().load_library(plugin), "the registry rejects the library"

for name in names:
    builder = trt.Builder(log)
    network = builder.create_network(network_flags(trt))
    parser = trt.OnnxParser(network, log)
    parsed = parser.parse_from_file(f"{folder}/{name}.onnx")
    assert parsed, [str(parser.get_error(i).desc()) for i in range(parser.num_errors)]
    heads, head_size = network.get_input(0).shape[2:]
    shapes = [[batch, length, heads, head_size] for batch, length in zip(BATCHES, LENGTHS, strict=True)]
    recipe = {
        **RECIPE,
        "precision": name.split("-")[0].replace("float", "fp"),
        "profiles": [{"x": dict(zip(BOUNDS, shapes, strict=True))}],
    }
    config, _ = configure(trt, builder, network, recipe, "tensorrt")
    data = bytes(builder.build_serialized_network(network, config))
    engine = trt.Runtime(log).deserialize_cuda_engine(data)
    text = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
    table = parse_inspector(text)
    print(json.dumps({name: [kernel.name for kernel in table.kernels], "bytes": len(data)}))
    runner = TensorRTEngine(trt, Plan("tensorrt", trt.__version__, data, "", recipe, (), table, 0.0))
    captured = runner.execution(graph=True)
    for file in sorted(Path(folder).glob(f"{name}.[0-9]*.npy")):
        if file.name.count(".") == 2:
            x = np.load(file)
            np.save(file.with_suffix(".out.npy"), runner.infer({"x": x})["y"])
            for _ in range(3):  # plain, captured, replayed
                y = captured.infer({"x": x})["y"]
            np.save(file.with_suffix(".graph.npy"), y)

sys.stdout.flush()
os._exit(0)  # two libraries each keep a CUDA context on the stack and disagree on who leaves first
