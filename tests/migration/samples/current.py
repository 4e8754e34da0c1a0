"""Code for TensorRT 11: nothing is removed, although many names here look like old ones."""

import argparse
import asyncio

import numpy as np
import tensorrt as trt


class Options:
    def __init__(self, args):
        self.max_batch_size = args.max_batch_size
        self.max_workspace_size = args.max_workspace_size
        self.precision = "fp16"
        self.num_bindings = 2


class Engine:
    """A class of the program's own, with members that TensorRT's had once."""

    def __init__(self, path):
        self.runtime = trt.Runtime(trt.Logger())
        self.engine = self.runtime.deserialize_cuda_engine(path)
        self.context = self.engine.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)
        self.max_batch_size = 4

    def get_binding_shape(self, name):
        return self.engine.get_tensor_shape(name)

    async def execute_async(self, stream):
        await asyncio.sleep(0)
        return self.context.execute_async_v3(stream)

    def execute(self):
        return [self.get_binding_shape(name) for name in ("x", "y")]


def build(max_workspace_size, build_engine, precision):
    parser = argparse.ArgumentParser()
    parser.register_input = None
    builder = trt.Builder(trt.Logger())
    network = builder.create_network(0)
    x = network.add_input("x", trt.float16, (-1, 3, 224, 224))
    conv = network.add_convolution_nd(x, 8, (3, 3), trt.Weights(np.zeros((8, 3, 3, 3), np.float16)))
    conv.stride_nd = (2, 2)
    cast = network.add_cast(conv.get_output(0), trt.float32)
    network.mark_output(cast.get_output(0))
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, max_workspace_size)
    config.set_flag(trt.BuilderFlag.REFIT)
    config.builder_optimization_level = 3
    engine = Engine(builder.build_serialized_network(network, config))
    engine.execute()
    options = Options(parser.parse_args())
    print(engine.get_binding_shape("x"), engine.max_batch_size, options.num_bindings, options.precision)
    return build_engine(engine.execute_async(0))
