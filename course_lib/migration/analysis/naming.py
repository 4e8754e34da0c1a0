"""Types guessed from names: in code about TensorRT `engine` is rarely a list, and only TensorRT has a `get_binding_shape`."""

from __future__ import annotations

import re
import sys

# The last word of a variable's name, in the singular, and the class that it holds by convention.
_CONVENTIONAL = {
    "engine": "ICudaEngine",
    "context": "IExecutionContext",
    "ctx": "IExecutionContext",
    "builder": "Builder",
    "config": "IBuilderConfig",
    "network": "INetworkDefinition",
    "parser": "OnnxParser",
    "runtime": "Runtime",
    "profile": "IOptimizationProfile",
    "refitter": "Refitter",
    "layer": "ILayer",
}
_VERSION = re.compile(r"(?i)(trt|tensorrt)\w{0,10}version|is_?trt_?\d+|trt_?\d+")

# Members that no other library has: the receiver may be anything. Each is gone from the newest version's classes.
_DISTINCTIVE = """
build_cuda_engine max_workspace_size fp16_mode int8_mode strict_type_constraints int8_calibrator
get_binding_shape get_binding_name get_binding_dtype get_binding_index get_binding_format get_binding_format_desc
get_binding_bytes_per_component get_binding_components_per_element get_binding_vectorized_dim get_binding_size
binding_is_input num_bindings is_shape_binding is_execution_binding get_profile_shape get_profile_shape_input
execute_async execute_async_v2 set_binding_shape all_shape_inputs_specified
create_execution_context_without_device_memory get_device_memory_size set_calibration_profile algorithm_selector
platform_has_fast_fp16 platform_has_fast_int8 platform_has_tf32 output_type_is_set precision_is_set reset_precision
set_output_type set_dynamic_range add_fully_connected add_rnn_v2 register_input register_output
get_plugin_creator plugin_creator_list algorithm_variant get_algorithm_io_info get_layer_timing
get_nb_bindings get_binding_dimensions get_binding_data_type set_max_workspace_size set_half2_mode set_int8_calibrator
"""
DISTINCTIVE = frozenset(_DISTINCTIVE.split())
# Receivers that are an object of the program's own, or its options.
_OWN = re.compile(
    r"(\w+_)?(args?|opts?|options?|flags|h?params|parameters|cfg|conf|configs?|settings?|spec|specs)|self|cls", re.I
)
_TENSOR_NAME = re.compile(r"(\w+_)?(name|tensor|key|blob)", re.I)
_SERIALIZED = re.compile(r"(serialized|plan|raw|encoded|bytes)_", re.I)

_LIBRARIES = """
argparse numpy torch torchvision onnx onnxruntime onnxsim onnx_graphsurgeon tensorflow keras jax flax cv2 PIL matplotlib yaml
pycuda cuda cupy numba psutil tqdm requests transformers diffusers omegaconf hydra ray dask pandas scipy sklearn skimage
zmq glfw OpenGL librosa openvino openvino_genai tvm ncnn mnn paddle mxnet pynvml nvtx click typer fire absl pytest sqlalchemy flask
fastapi grpc tritonclient pytorch_lightning lightning configparser configargparse logging pydantic
"""
_OTHER_LIBRARIES = frozenset((*_LIBRARIES.split(), *getattr(sys, "stdlib_module_names", ())))


def guess(name: str) -> str:
    """The class that a variable or attribute holds by convention, ``"trt"`` for the module; empty if the name gives no information."""
    plain = name.strip("_").lower()
    if plain == "trt":
        return "trt"
    if _SERIALIZED.match(plain):
        return ""  # `serialized_engine` is the bytes of one
    last = plain.rpartition("_")[2]
    if last in _CONVENTIONAL:
        return _CONVENTIONAL[last]
    plural = last[:-1] if last.endswith("s") else ""
    return f"list:{_CONVENTIONAL[plural]}" if plural in _CONVENTIONAL else ""


def names_a_version(name: str) -> bool:
    """Whether a variable holds TensorRT's version, or the result of a test of that version."""
    return _VERSION.fullmatch(name.strip("_")) is not None


def names_a_tensor(name: str) -> bool:
    """Whether a variable of unknown type holds a tensor's name, so that indexing an engine with it asks for a binding's number."""
    return _TENSOR_NAME.fullmatch(name) is not None


def is_own_object(name: str) -> bool:
    """Whether a receiver is the program's own object or its options, so that no member of it is TensorRT's by its name alone."""
    return _OWN.fullmatch(name) is not None


def is_other_library(module: str) -> bool:
    """Whether a module is a known library that is not TensorRT: nothing that comes out of it is TensorRT's."""
    return module.partition(".")[0] in _OTHER_LIBRARIES
