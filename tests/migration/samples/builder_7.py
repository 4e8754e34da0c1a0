"""How an engine was built with TensorRT 5 to 7. Each comment is what the scan must say of the line for TensorRT 11.4."""

import tensorrt as trt
import pycuda.autoinit  # fine

LOGGER = trt.Logger(trt.Logger.WARNING)
BATCH = 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)  # removed NetworkDefinitionCreationFlag.EXPLICIT_BATCH


def oldest(path):
    with trt.Builder(LOGGER) as builder, builder.create_network(BATCH) as network, trt.OnnxParser(network, LOGGER) as parser:
        builder.max_batch_size = 8  # removed Builder.max_batch_size
        builder.max_workspace_size = 1 << 28  # removed Builder.max_workspace_size
        builder.fp16_mode = True  # removed Builder.fp16_mode
        builder.int8_mode = True  # removed Builder.int8_mode
        builder.strict_type_constraints = True  # removed Builder.strict_type_constraints
        with open(path, "rb") as file:
            parser.parse(file.read())
        return builder.build_cuda_engine(network)  # removed Builder.build_cuda_engine


def newer(builder, network, calibrator):
    config = builder.create_builder_config()
    config.max_workspace_size = 1 << 30  # removed IBuilderConfig.max_workspace_size
    config.min_timing_iterations = 2  # removed IBuilderConfig.min_timing_iterations
    if builder.platform_has_fast_fp16:  # removed Builder.platform_has_fast_fp16
        config.set_flag(trt.BuilderFlag.FP16)  # removed BuilderFlag.FP16
    config.flags |= 1 << int(trt.BuilderFlag.STRICT_TYPES)  # removed BuilderFlag.STRICT_TYPES
    config.set_flag(getattr(trt.BuilderFlag, "INT8"))  # removed BuilderFlag.INT8
    config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)  # removed BuilderFlag.OBEY_PRECISION_CONSTRAINTS
    config.int8_calibrator = calibrator  # removed IBuilderConfig.int8_calibrator
    config.set_tactic_sources(1 << int(trt.TacticSource.CUBLAS))  # removed TacticSource.CUBLAS
    config.set_preview_feature(trt.PreviewFeature.FASTER_DYNAMIC_SHAPES_0805, True)  # removed PreviewFeature.FASTER_DYNAMIC_SHAPES_0805
    config.profiling_verbosity = trt.ProfilingVerbosity.VERBOSE  # removed ProfilingVerbosity.VERBOSE
    for layer in (network.get_layer(i) for i in range(network.num_layers)):
        layer.precision = trt.float16  # removed ILayer.precision
        layer.set_output_type(0, trt.float16)  # removed ILayer.set_output_type
        layer.get_output(0).set_dynamic_range(-1, 1)  # removed ITensor.set_dynamic_range
    network.get_input(0).dtype = trt.float16  # removed ITensor.dtype (assignment)
    x = network.add_convolution(network.get_input(0), 8, (3, 3), trt.Weights())  # removed INetworkDefinition.add_convolution
    x.stride = (2, 2)  # removed IConvolutionLayer.stride
    network.add_fully_connected(x.get_output(0), 10, trt.Weights())  # removed INetworkDefinition.add_fully_connected
    if network.has_implicit_batch_dimension:  # deprecated INetworkDefinition.has_implicit_batch_dimension
        raise RuntimeError
    engine = builder.build_engine(network, config)  # removed Builder.build_engine
    assert trt.__version__ >= "8.0"  # changed __version__
    return engine


def folklore(config):
    # REFIT makes the builder reuse memory
    config.set_flag(trt.BuilderFlag.REFIT)  # changed BuilderFlag.REFIT
    config.set_flag(trt.BuilderFlag.DISABLE_TIMING_CACHE)  # faster builds; changed BuilderFlag.DISABLE_TIMING_CACHE
    config.clear_flag(trt.BuilderFlag.TF32)


class Selector(trt.IAlgorithmSelector):  # removed IAlgorithmSelector
    def __init__(self):
        trt.IAlgorithmSelector.__init__(self)  # removed IAlgorithmSelector


class Calibrator(trt.IInt8EntropyCalibrator2):  # removed IInt8EntropyCalibrator2
    def __init__(self):
        super().__init__()

    def get_batch(self, names):
        return None


class Caffe:
    def __init__(self):
        self.parser = trt.CaffeParser()  # removed CaffeParser

    def read(self, network):
        return self.parser.parse("deploy", "model", network, trt.float32)  # removed CaffeParser.parse


def uff(network):
    parser = trt.UffParser()  # removed UffParser
    parser.register_input("x", (1, 28, 28), trt.UffInputOrder.NCHW)  # removed UffParser.register_input, UffInputOrder.NCHW
    parser.register_output("y")  # removed UffParser.register_output
    parser.parse("model.uff", network)  # removed UffParser.parse
