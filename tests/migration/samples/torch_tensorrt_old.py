"""Torch-TensorRT as it was used up to 2.12. Each comment is what the scan must say of the line for TensorRT 11.4."""

import torch
import torch_tensorrt
from pytorch_quantization import nn as quant_nn  # deprecated import pytorch_quantization

settings = {"enabled_precisions": {torch.half}, "workspace_size": 1 << 20, "truncate_long_and_double": True}
model = torch.nn.Linear(2, 2).eval()
trt_model = torch_tensorrt.compile(  # ignored torch_tensorrt.compile(enabled_precisions=), torch_tensorrt.compile(calibrator=)
    model,
    inputs=[torch_tensorrt.Input((1, 2))],
    enabled_precisions={torch.half},
    calibrator=None,
)
torch.jit.save(trt_model, "model.ts")  # changed torch.jit.save
other = torch_tensorrt.compile(model, inputs=[], **settings)  # ignored torch_tensorrt.compile(enabled_precisions=) # deprecated torch_tensorrt.compile(truncate_long_and_double=)
third = torch_tensorrt.compile(model, inputs=[], torch_executed_ops={"aten::mul"})  # ignored torch_tensorrt.compile(torch_executed_ops=)
fourth = torch_tensorrt.compile(model, inputs=[], cache_built_engines=True)  # ignored torch_tensorrt.compile(cache_built_engines=)
calibrator = torch_tensorrt.ptq.DataLoaderCalibrator([])  # removed torch_tensorrt.ptq.DataLoaderCalibrator
compiled = torch.compile(model, backend="tensorrt", options={"enabled_precisions": {torch.half}, "min_block_size": 1})  # ignored torch.compile(options={"enabled_precisions"})
