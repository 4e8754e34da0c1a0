#!/bin/sh
# trtexec --fp16 in a comment is not a command
trtexec --onnx=model.onnx --explicitBatch --workspace=1024 \
    --fp16 --saveEngine=model.plan && echo done
/usr/src/tensorrt/bin/trtexec --onnx model.onnx --int8 --calib=cache.bin --buildOnly
trtexec --onnx=model.onnx --streams=2 --tacticSources=-CUDNN,+CUBLAS
trtexec --onnx=model.onnx --memPoolSize=workspace:1024 --skipInference
polygraphy run model.onnx --trt --fp16 --workspace=1G --validate
polygraphy convert model.onnx --save-tactics replay.json -o model.engine
nsys stats --report gpukernsum report.qdrep
pip install nvidia-pyindex tensorrt==8.6.1 pytorch-quantization
pip install "tensorrt==11.4.*"
