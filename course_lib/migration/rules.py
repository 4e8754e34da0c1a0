"""What takes the place of an old name, written by hand: one sentence, the names it uses, and the lecture that teaches it.

Whether a name is gone is not decided here but by the tables of the bindings (`judge`). The tests check each rule against them: its
names are gone or deprecated in the newest version, and what it tells to use exists there.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """Advice for one or several old names.

    Attributes:
        names: as behind ``trt.``; ``*`` stands for any text.
        use: what to write instead, one sentence.
        lecture: where the course teaches it.
        new: names that the sentence uses, as behind ``trt.``; they exist in the newest version.
        deprecated: the version that deprecated the names, where no docstring says so.
        severity: ``"changed"`` for a name that stays and does something else than is often said; then `mention` is a regular
            expression that a comment beside the call must match.
    """

    names: tuple[str, ...]
    use: str
    lecture: int
    new: tuple[str, ...] = ()
    deprecated: str = ""
    severity: str = ""
    mention: str = ""

    def matches(self, name: str) -> bool:
        """Whether the rule is about a name."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.names)


def _rule(names: str, use: str, lecture: int, new: str = "", **more: str) -> Rule:
    return Rule(tuple(names.split()), use, lecture, tuple(new.split()), **more)


_NETWORK = (
    _rule(
        "NetworkDefinitionCreationFlag.EXPLICIT_BATCH NetworkDefinitionCreationFlag.EXPLICIT_PRECISION",
        "create_network(): the batch is always explicit (on TensorRT 10 pass 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))",
        2,
        "Builder.create_network NetworkDefinitionCreationFlag.STRONGLY_TYPED",
    ),
    _rule(
        "NetworkDefinitionCreationFlag.STRONGLY_TYPED",
        "create_network(): networks are always strongly typed since 11.0 and the flag is ignored; keep it for TensorRT 10",
        2,
        "Builder.create_network",
    ),
    _rule(
        "*.has_implicit_batch_dimension INetworkDefinition.has_explicit_precision ITensor.broadcast_across_batch",
        "delete the test: the batch is always a dimension of the tensors",
        2,
    ),
    _rule(
        "INetworkDefinition.add_convolution IConvolutionLayer.*",
        "add_convolution_nd(), and the properties kernel_size_nd, stride_nd, padding_nd, dilation_nd",
        2,
        "INetworkDefinition.add_convolution_nd IConvolutionLayer.stride_nd IConvolutionLayer.kernel_size_nd "
        "IConvolutionLayer.padding_nd IConvolutionLayer.dilation_nd",
    ),
    _rule(
        "INetworkDefinition.add_deconvolution IDeconvolutionLayer.*",
        "add_deconvolution_nd(), and the properties kernel_size_nd, stride_nd, padding_nd",
        2,
        "INetworkDefinition.add_deconvolution_nd IDeconvolutionLayer.stride_nd IDeconvolutionLayer.kernel_size_nd",
    ),
    _rule(
        "INetworkDefinition.add_pooling IPoolingLayer.* INetworkDefinition.*_output_dimensions_formula IOutputDimensionsFormula",
        "add_pooling_nd(), and the properties window_size_nd, stride_nd, padding_nd; padding_mode chooses how sizes are rounded",
        2,
        "INetworkDefinition.add_pooling_nd IPoolingLayer.stride_nd IPoolingLayer.window_size_nd IPoolingLayer.padding_mode",
    ),
    _rule(
        "INetworkDefinition.add_padding IPaddingLayer.*",
        "add_padding_nd(), or add_slice() with SampleMode.FILL",
        2,
        "INetworkDefinition.add_padding_nd INetworkDefinition.add_slice SampleMode.FILL",
    ),
    _rule(
        "INetworkDefinition.add_fully_connected IFullyConnectedLayer* LayerType.FULLY_CONNECTED",
        "add_constant() for the weights, add_matrix_multiply(), and add_elementwise() for the bias",
        2,
        "INetworkDefinition.add_constant INetworkDefinition.add_matrix_multiply INetworkDefinition.add_elementwise",
    ),
    _rule(
        "INetworkDefinition.add_rnn* IRNN* RNN* LayerType.RNN*",
        "add_loop() with matrix multiplications, or export the recurrence to ONNX, whose LSTM and GRU the parser turns into loops",
        2,
        "INetworkDefinition.add_loop",
    ),
    _rule("INetworkDefinition.add_normalization", "add_normalization_v2()", 2, "INetworkDefinition.add_normalization_v2"),
    _rule("INetworkDefinition.add_attention", "add_attention_v2()", 3, "INetworkDefinition.add_attention_v2"),
    _rule("IAttention.causal", "the property causal_kind", 3, "IAttention.causal_kind"),
    _rule("ResizeMode ResizeMode.*", "trt.InterpolationMode", 2, "InterpolationMode"),
    _rule("SliceMode SliceMode.*", "trt.SampleMode, whose DEFAULT is called STRICT_BOUNDS", 2, "SampleMode.STRICT_BOUNDS"),
    _rule("SampleMode.DEFAULT", "trt.SampleMode.STRICT_BOUNDS", 2, "SampleMode.STRICT_BOUNDS"),
    _rule("PaddingMode.CAFFE_*", "PaddingMode.EXPLICIT_ROUND_DOWN or EXPLICIT_ROUND_UP", 2, "PaddingMode.EXPLICIT_ROUND_DOWN"),
    _rule("DimensionType", "shapes hold no kinds of dimensions: use trt.Dims", 2, "Dims"),
    _rule("TensorFormat.NCHW TensorFormat.NC2HW2 TensorFormat.NHWC8", "TensorFormat.LINEAR, CHW2 or HWC8", 2,
          "TensorFormat.LINEAR TensorFormat.CHW2 TensorFormat.HWC8"),
    _rule("DimsCHW DimsNCHW", "trt.Dims3 and trt.Dims4, or a tuple of numbers", 2, "Dims3 Dims4"),
    _rule("SubGraphCollection SubGraphCollection.*",
          "supports_model_v2() and get_subgraph_nodes()", 2, "OnnxParser.supports_model_v2"),
    _rule(
        "OnnxParser.supports_model",
        "supports_model_v2(), then num_subgraphs and get_subgraph_nodes()",
        2,
        "OnnxParser.supports_model_v2 OnnxParser.num_subgraphs OnnxParser.get_subgraph_nodes",
    ),
    _rule("OnnxParser.parse_with_weight_descriptors", "load_model_proto(), load_initializer() and parse_model_proto()", 2,
          "OnnxParser.load_model_proto OnnxParser.load_initializer OnnxParser.parse_model_proto"),
    _rule("OnnxConfig OnnxParser.convert_to_trt_network OnnxParser.report_parsing_info",
          "OnnxParser(network, logger).parse(bytes) and get_error(i)",
          2, "OnnxParser.parse OnnxParser.get_error"),
    _rule(
        "UffParser* UffInputOrder* CaffeParser* FieldMap* FieldCollection* FieldType* IBlobNameToTensor* ICaffePluginFactory* "
        "IUffPluginFactory* shutdown_protobuf_library parsers infer utils lite",
        "export the model to ONNX (torch.onnx.export, tf2onnx) and read it with trt.OnnxParser",
        2,
        "OnnxParser",
    ),
)  # fmt: skip

_BUILDING = (
    _rule(
        "Builder.build_engine Builder.build_cuda_engine",
        "build_serialized_network(network, config), None on failure, then Runtime.deserialize_cuda_engine; "
        "or build_engine_with_config(network, config)",
        2,
        "Builder.build_serialized_network Runtime.deserialize_cuda_engine Builder.build_engine_with_config",
    ),
    _rule(
        "*.max_workspace_size Builder.set_max_workspace_size ICudaEngine.get_workspace_size",
        "config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, size)",
        2,
        "IBuilderConfig.set_memory_pool_limit MemoryPoolType.WORKSPACE",
    ),
    _rule(
        "Builder.max_batch_size Builder.set_max_batch_size ICudaEngine.max_batch_size ICudaEngine.get_max_batch_size",
        "the batch is a dimension: its range is in an optimization profile (set_shape, get_tensor_profile_shape)",
        8,
        "IOptimizationProfile.set_shape ICudaEngine.get_tensor_profile_shape",
    ),
    _rule(
        "Builder.fp16_mode Builder.half2_mode Builder.set_fp16_mode Builder.set_half2_mode",
        "cast the model: types live in the graph (model.half(), or add_cast); TensorRT 10 still knows BuilderFlag.FP16",
        5,
        "INetworkDefinition.add_cast",
    ),
    _rule("Builder.int8_mode Builder.set_int8_mode", "Q/DQ nodes in the graph (add_quantize, add_dequantize)", 6,
          "INetworkDefinition.add_quantize INetworkDefinition.add_dequantize"),
    _rule("Builder.strict_type_constraints BuilderFlag.STRICT_TYPES",
          "types live in the graph: delete the line and use add_cast where a type matters",
          5, "INetworkDefinition.add_cast"),
    _rule("Builder.debug_sync Builder.set_debug_sync IExecutionContext.set_debug_sync",
          "config.set_flag(trt.BuilderFlag.DEBUG), or execution_context.debug_sync", 12, "BuilderFlag.DEBUG"),
    _rule("Builder.refittable", "config.set_flag(trt.BuilderFlag.REFIT)", 10, "BuilderFlag.REFIT"),
    _rule("Builder.average_find_iterations", "config.avg_timing_iterations", 4, "IBuilderConfig.avg_timing_iterations"),
    _rule("Builder.min_find_iterations IBuilderConfig.min_timing_iterations", "config.avg_timing_iterations", 4,
          "IBuilderConfig.avg_timing_iterations"),
    _rule("Builder.engine_capability", "config.engine_capability", 14, "IBuilderConfig.engine_capability"),
    _rule(
        "Builder.default_device_type Builder.default_DLA_core Builder.DLA_core Builder.*_device_type Builder.is_device_type_set "
        "Builder.can_run_on_DLA",
        "the same name on the builder config",
        14,
        "IBuilderConfig.default_device_type IBuilderConfig.DLA_core IBuilderConfig.set_device_type IBuilderConfig.can_run_on_DLA",
    ),
    _rule("Builder.allow_gpu_fallback", "config.set_flag(trt.BuilderFlag.GPU_FALLBACK)", 14, "BuilderFlag.GPU_FALLBACK"),
    _rule("BuilderFlag.ENABLE_TACTIC_HEURISTIC",
          "config.builder_optimization_level = 2", 4, "IBuilderConfig.builder_optimization_level"),
    _rule("EngineCapability.DEFAULT", "EngineCapability.STANDARD", 14, "EngineCapability.STANDARD"),
    _rule("EngineCapability.SAFE_GPU EngineCapability.SAFE_DLA",
          "EngineCapability.SAFETY or EngineCapability.DLA_STANDALONE", 14,
          "EngineCapability.SAFETY EngineCapability.DLA_STANDALONE"),
    _rule("BuilderFlag.WEIGHTLESS", "BuilderFlag.STRIP_PLAN", 10, "BuilderFlag.STRIP_PLAN"),
    _rule("BuilderFlag.SAFETY_SCOPE", "delete the line: the flag is kept for compatibility and ignored", 14),
    _rule("BuilderFlag.DIRECT_IO",
          "set ITensor.allowed_formats on the inputs and outputs, without the flag", 3, "ITensor.allowed_formats"),
    _rule("ProfilingVerbosity.DEFAULT ProfilingVerbosity.VERBOSE",
          "ProfilingVerbosity.LAYER_NAMES_ONLY or ProfilingVerbosity.DETAILED", 12,
          "ProfilingVerbosity.LAYER_NAMES_ONLY ProfilingVerbosity.DETAILED"),
    _rule("PreviewFeature.*", "delete the line: what it switched on is how TensorRT works now", 8),
    _rule("BuilderFlag.REFIT",
          "REFIT lets you change the weights of a built engine; it saves no memory: use one memory for several contexts",
          10, "ICudaEngine.create_execution_context ExecutionContextAllocationStrategy.USER_MANAGED", severity="changed",
          mention=r"memory|\bre-?us"),
    _rule("BuilderFlag.DISABLE_TIMING_CACHE",
          "this makes builds slower: keep the cache, and keep it in a file (create_timing_cache)", 4,
          "IBuilderConfig.create_timing_cache", severity="changed", mention=r"fast|speed|quick"),
)  # fmt: skip

_PRECISION = (
    _rule(
        "BuilderFlag.FP16 BuilderFlag.BF16 BuilderFlag.FP8 BuilderFlag.FP4 BuilderFlag.INT4",
        "types live in the graph: cast the model (model.half(), modelopt.onnx.autocast) or add_cast",
        5,
        "INetworkDefinition.add_cast",
    ),
    _rule("BuilderFlag.INT8", "Q/DQ nodes in the graph: quantize the model with modelopt or onnxruntime.quantization", 6,
          "INetworkDefinition.add_quantize INetworkDefinition.add_dequantize"),
    _rule(
        "BuilderFlag.OBEY_PRECISION_CONSTRAINTS BuilderFlag.PREFER_PRECISION_CONSTRAINTS",
        "delete the line: in a strongly typed network the types of the graph are obeyed",
        5,
    ),
    _rule(
        "*.precision *.precision_is_set *.reset_precision *.set_output_type *.reset_output_type *.output_type_is_set "
        "INormalizationLayer.compute_precision",
        "add_cast() before and after the layer: its types are those of its inputs",
        5,
        "INetworkDefinition.add_cast",
        deprecated="10.12",
    ),
    _rule("ITensor.dtype", "the type of an input is an argument of add_input; change another with add_cast()", 5,
          "INetworkDefinition.add_input INetworkDefinition.add_cast"),
    _rule("Builder.platform_has_*", "ask for the compute capability, such as torch.cuda.get_device_capability()", 5),
    _rule(
        "IInt8*Calibrator* CalibrationAlgoType* *.int8_calibrator Builder.set_int8_calibrator "
        "IBuilderConfig.*calibration_profile QuantizationFlag* IBuilderConfig.*quantization_flag*",
        "calibrate outside TensorRT and put Q/DQ nodes into the graph (modelopt, onnxruntime.quantization)",
        6,
        "INetworkDefinition.add_quantize INetworkDefinition.add_dequantize",
    ),
    _rule("*.*dynamic_range*", "Q/DQ nodes in the graph: add_quantize() and add_dequantize() with the scale range / 127", 6,
          "INetworkDefinition.add_quantize INetworkDefinition.add_dequantize"),
)  # fmt: skip

_TACTICS = (
    _rule(
        "IAlgorithm* IBuilderConfig.algorithm_selector BuilderFlag.REJECT_EMPTY_ALGORITHMS",
        "an editable timing cache: BuilderFlag.EDITABLE_TIMING_CACHE, then ITimingCache.query() and update()",
        4,
        "BuilderFlag.EDITABLE_TIMING_CACHE ITimingCache.query ITimingCache.update",
    ),
    _rule("TacticSource.*", "delete it: only EDGE_MASK_CONVOLUTIONS and JIT_CONVOLUTIONS remain", 4,
          "TacticSource.EDGE_MASK_CONVOLUTIONS TacticSource.JIT_CONVOLUTIONS"),
)  # fmt: skip

_RUNTIME = (
    _rule("ICudaEngine.num_bindings ICudaEngine.get_nb_bindings ICudaEngine.__len__", "engine.num_io_tensors", 10,
          "ICudaEngine.num_io_tensors"),
    _rule("ICudaEngine.get_binding_name ICudaEngine.__getitem__*",
          "engine.get_tensor_name(i); tensors go by name, not by number", 10,
          "ICudaEngine.get_tensor_name"),
    _rule("ICudaEngine.get_binding_index",
          "tensors go by name: engine.get_tensor_name(i), context.set_tensor_address(name, address)", 10,
          "ICudaEngine.get_tensor_name IExecutionContext.set_tensor_address"),
    _rule("ICudaEngine.get_nb_layers", "engine.num_layers", 10, "ICudaEngine.num_layers"),
    _rule("ICudaEngine.get_binding_shape ICudaEngine.get_binding_dimensions", "engine.get_tensor_shape(name)", 10,
          "ICudaEngine.get_tensor_shape"),
    _rule("IExecutionContext.get_binding_shape", "context.get_tensor_shape(name)", 10, "IExecutionContext.get_tensor_shape"),
    _rule("ICudaEngine.get_binding_dtype ICudaEngine.get_binding_data_type", "engine.get_tensor_dtype(name)", 10,
          "ICudaEngine.get_tensor_dtype"),
    _rule("ICudaEngine.binding_is_input", "engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT", 10,
          "ICudaEngine.get_tensor_mode TensorIOMode.INPUT"),
    _rule("ICudaEngine.is_execution_binding ICudaEngine.is_shape_binding", "engine.is_shape_inference_io(name)", 8,
          "ICudaEngine.is_shape_inference_io"),
    _rule("ICudaEngine.get_binding_format", "engine.get_tensor_format(name)", 10, "ICudaEngine.get_tensor_format"),
    _rule("ICudaEngine.get_binding_format_desc",
          "engine.get_tensor_format_desc(name)", 10, "ICudaEngine.get_tensor_format_desc"),
    _rule("ICudaEngine.get_binding_bytes_per_component", "engine.get_tensor_bytes_per_component(name)", 10,
          "ICudaEngine.get_tensor_bytes_per_component"),
    _rule("ICudaEngine.get_binding_components_per_element", "engine.get_tensor_components_per_element(name)", 10,
          "ICudaEngine.get_tensor_components_per_element"),
    _rule("ICudaEngine.get_binding_vectorized_dim",
          "engine.get_tensor_vectorized_dim(name)", 10, "ICudaEngine.get_tensor_vectorized_dim"),
    _rule("ICudaEngine.get_binding_size",
          "it never was in the Python API: trt.volume(engine.get_tensor_shape(name)) * dtype.itemsize", 10,
          "volume ICudaEngine.get_tensor_shape DataType.itemsize"),
    _rule("ICudaEngine.get_location", "engine.get_tensor_location(name)", 10, "ICudaEngine.get_tensor_location"),
    _rule("ICudaEngine.get_profile_shape",
          "engine.get_tensor_profile_shape(name, profile)", 8, "ICudaEngine.get_tensor_profile_shape"),
    _rule("ICudaEngine.get_profile_shape_input",
          "engine.get_tensor_profile_values(name, profile)", 8, "ICudaEngine.get_tensor_profile_values"),
    _rule("IExecutionContext.set_binding_shape",
          "context.set_input_shape(name, shape)", 8, "IExecutionContext.set_input_shape"),
    _rule("IExecutionContext.set_shape_input", "context.set_tensor_address(name, address) with the values in host memory", 8,
          "IExecutionContext.set_tensor_address"),
    _rule("IExecutionContext.get_shape", "the values lie at the address that was set: context.get_tensor_address(name)", 8,
          "IExecutionContext.get_tensor_address"),
    _rule("IExecutionContext.get_strides", "context.get_tensor_strides(name)", 10, "IExecutionContext.get_tensor_strides"),
    _rule("IExecutionContext.all_shape_inputs_specified", "context.infer_shapes(): it names what is still missing", 8,
          "IExecutionContext.infer_shapes"),
    _rule(
        "IExecutionContext.enqueue IExecutionContext.execute_async IExecutionContext.execute_async_v2",
        "context.set_tensor_address(name, address) for each tensor, then context.execute_async_v3(stream)",
        10,
        "IExecutionContext.set_tensor_address IExecutionContext.execute_async_v3",
    ),
    _rule(
        "IExecutionContext.execute",
        "set_tensor_address() for each tensor and execute_async_v3(stream), or execute_v2(list of addresses), which waits for the result",
        10,
        "IExecutionContext.set_tensor_address IExecutionContext.execute_async_v3 IExecutionContext.execute_v2",
    ),
    _rule("IExecutionContext.active_optimization_profile",
          "context.set_optimization_profile_async(profile, stream); the property only tells it",
          8, "IExecutionContext.set_optimization_profile_async"),
    _rule("ICudaEngine.create_execution_context_without_device_memory",
          "engine.create_execution_context(trt.ExecutionContextAllocationStrategy.USER_MANAGED)", 10,
          "ICudaEngine.create_execution_context ExecutionContextAllocationStrategy.USER_MANAGED"),
    _rule("ICudaEngine.device_memory_size ICudaEngine.get_device_memory_size", "engine.device_memory_size_v2", 10,
          "ICudaEngine.device_memory_size_v2"),
    _rule("ICudaEngine.get_device_memory_size_for_profile", "engine.get_device_memory_size_for_profile_v2(profile)", 10,
          "ICudaEngine.get_device_memory_size_for_profile_v2"),
    _rule("ICudaEngine.weight_streaming_budget ICudaEngine.minimum_weight_streaming_budget",
          "engine.weight_streaming_budget_v2", 10,
          "ICudaEngine.weight_streaming_budget_v2"),
    _rule("IStreamReader IStreamReader.*", "trt.IStreamReaderV2, with read() and seek()", 10, "IStreamReaderV2"),
    _rule("IGpuAllocator.allocate IGpuAsyncAllocator.allocate", "allocate_async()", 10, "IGpuAllocator.allocate_async"),
    _rule("IGpuAllocator.deallocate IGpuAsyncAllocator.deallocate", "deallocate_async()", 10, "IGpuAllocator.deallocate_async"),
    _rule("Refitter.__enter__ Refitter.__exit__", "refitter = trt.Refitter(engine, logger), without `with`", 10, "Refitter"),
    _rule("*.destroy", "delete the line: Python frees the object with its last reference (del)", 10),
    _rule("IExecutionContext.get_engine", "context.engine", 10, "IExecutionContext.engine"),
    _rule("IExecutionContext.set_profiler", "context.profiler = profiler", 12, "IExecutionContext.profiler"),
    _rule("*Profiler.get_layer_timing",
          "it never existed: derive from trt.IProfiler and write report_layer_time(self, name, ms)", 12,
          "IProfiler.report_layer_time"),
    _rule("__version__",
          "compare numbers: as text '11' comes before '8'; int(trt.__version__.split('.')[0]) >= 10", 14, severity="changed"),
)  # fmt: skip

_PLUGINS = (
    _rule(
        "IPlugin IPluginExt IPluginFactory IPluginLayer INetworkDefinition.add_plugin_ext IPluginV2 IPluginV2Ext IPluginV2DynamicExt "
        "IPluginV2DynamicExtBase INetworkDefinition.add_plugin_v2 IPluginCreator",
        "IPluginV3 with IPluginCreatorV3One, and network.add_plugin_v3(inputs, shape_inputs, plugin)",
        9,
        "IPluginV3 IPluginCreatorV3One INetworkDefinition.add_plugin_v3",
        deprecated="10.0",
    ),
    _rule("IPluginRegistry.get_plugin_creator",
          "registry.get_creator(name, version, namespace)", 9, "IPluginRegistry.get_creator"),
    _rule("IPluginRegistry.plugin_creator_list", "registry.all_creators", 9, "IPluginRegistry.all_creators"),
)  # fmt: skip

RULES: tuple[Rule, ...] = (*_NETWORK, *_BUILDING, *_PRECISION, *_TACTICS, *_RUNTIME, *_PLUGINS)


def rule_for(name: str) -> Rule | None:
    """The first rule about a name."""
    return next((rule for rule in RULES if rule.matches(name)), None)
