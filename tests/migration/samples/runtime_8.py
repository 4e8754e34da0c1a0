"""How an engine was run with TensorRT 7 and 8. Each comment is what the scan must say of the line for TensorRT 11.4."""

import tensorrt as trt
from tensorrt import ICudaEngine, Runtime


class Runner:
    def __init__(self, path: str) -> None:
        runtime = Runtime(trt.Logger())
        with open(path, "rb") as file:
            self.engine = runtime.deserialize_cuda_engine(file.read())
        self.context = self.engine.create_execution_context()
        self.scratch = self.engine.device_memory_size  # removed ICudaEngine.device_memory_size
        self.context.active_optimization_profile = 0  # removed IExecutionContext.active_optimization_profile (assignment)
        self.bindings = []
        for binding in self.engine:
            shape = self.engine.get_binding_shape(binding)  # removed ICudaEngine.get_binding_shape
            size = trt.volume(shape) * self.engine.max_batch_size  # removed ICudaEngine.max_batch_size
            dtype = trt.nptype(self.engine.get_binding_dtype(binding))  # removed ICudaEngine.get_binding_dtype
            index = self.engine[binding]  # removed ICudaEngine.__getitem__(str)
            if self.engine.binding_is_input(binding):  # removed ICudaEngine.binding_is_input
                self.bindings.append((index, size, dtype))
        assert len(self.engine) == self.engine.num_bindings  # removed ICudaEngine.__len__, ICudaEngine.num_bindings

    def run(self, stream: int) -> None:
        self.context.set_binding_shape(0, (1, 3, 224, 224))  # removed IExecutionContext.set_binding_shape
        self.context.execute_async_v2(bindings=self.bindings, stream_handle=stream)  # removed IExecutionContext.execute_async_v2
        self.context.execute_v2(self.bindings)
        self.context.execute(1, self.bindings)  # removed IExecutionContext.execute
        self.context.execute_async(1, self.bindings, stream)  # removed IExecutionContext.execute_async
        if not self.context.all_shape_inputs_specified:  # removed IExecutionContext.all_shape_inputs_specified
            raise RuntimeError


def by_number(engine: ICudaEngine, i: int) -> str:
    engine.get_location(i)  # removed ICudaEngine.get_location
    engine.get_profile_shape(0, i)  # removed ICudaEngine.get_profile_shape
    engine.get_device_memory_size()  # unknown ICudaEngine.get_device_memory_size
    engine.get_binding_size(i)  # unknown ICudaEngine.get_binding_size
    engine.create_execution_context_without_device_memory()  # removed ICudaEngine.create_execution_context_without_device_memory
    return engine.get_binding_name(i)  # removed ICudaEngine.get_binding_name


def of_unknown_type(thing, contexts):
    contexts[0].set_shape_input(0, [1])  # removed IExecutionContext.set_shape_input
    for context in contexts:
        context.get_binding_shape(0)  # removed IExecutionContext.get_binding_shape
    contexts[0].execute_async_v2([], 0)  # removed IExecutionContext.execute_async_v2
    return thing.get_binding_index("x")  # removed ICudaEngine.get_binding_index


def refit(engine, logger):
    with trt.Refitter(engine, logger) as refitter:  # removed Refitter.__enter__
        refitter.set_dynamic_range("x", (0, 1))  # removed Refitter.set_dynamic_range


def timing(context):
    profiler = trt.Profiler()
    context.profiler = profiler
    print(profiler.get_layer_timing(0))  # unknown Profiler.get_layer_timing


class Swish(trt.IPluginV2DynamicExt):  # deprecated IPluginV2DynamicExt
    pass


def plugins(network, x):
    registry = trt.get_plugin_registry()
    creator = registry.get_plugin_creator("Swish", "1", "")  # removed IPluginRegistry.get_plugin_creator
    plugin = creator.create_plugin("swish", trt.PluginFieldCollection([]))
    network.add_plugin_v2([x], plugin)  # deprecated INetworkDefinition.add_plugin_v2
