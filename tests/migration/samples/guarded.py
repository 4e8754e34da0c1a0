"""Code that runs on TensorRT 8 and on 11: no line of it is removed where it is reached."""

import tensorrt as trt
from packaging.version import Version

IS_TRT10 = int(trt.__version__.split(".")[0]) >= 10
MAJOR = int(trt.__version__.split(".")[0])


def workspace(config, size):
    if hasattr(config, "set_memory_pool_limit"):
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, size)
    else:
        config.max_workspace_size = size


def names(engine):
    if IS_TRT10:
        return [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    return [engine.get_binding_name(i) for i in range(engine.num_bindings)]


def flags():
    if "EXPLICIT_BATCH" in trt.NetworkDefinitionCreationFlag.__members__:
        return 1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
    return 0


def half(builder, config):
    if Version(trt.__version__) < Version("11.0") and builder.platform_has_fast_fp16:
        config.set_flag(trt.BuilderFlag.FP16)


def run(context, bindings, stream):
    try:
        context.execute_async_v2(bindings, stream)
    except AttributeError:
        context.execute_async_v3(stream)


def built(builder, network, config):
    return _old(builder, network, config) if MAJOR < 8 else builder.build_serialized_network(network, config)


def _old(builder, network, config):
    return builder.build_engine(network, config)


def memory(engine):
    return engine.device_memory_size_v2 if hasattr(engine, "device_memory_size_v2") else engine.device_memory_size


def calibrator():
    base = getattr(trt, "IInt8EntropyCalibrator2", None)
    return base() if base else None
