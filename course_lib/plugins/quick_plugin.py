"""RoPE as a quick plugin: two decorated functions, for TensorRT 10.6 and newer.

The first describes the output, and the second computes it. TensorRT makes the plugin and its creator from them. Ten lines replace the
hundred of an `IPluginV3`, but nothing can be tuned: formats are linear, and types are those of the inputs.

Source: NVIDIA TensorRT documentation, "Quickly Deployable Plugins".
"""

# No `from __future__ import annotations`: TensorRT reads the annotations of both functions, and they must be types, not text.

from importlib import import_module
from typing import Any, TypeAlias

from course_lib.errors import BackendUnavailable
from course_lib.plugins.launchers import Launcher, cuda_launcher

ID = "course::QuickRope"


def quick_rope(trt: Any, launch: Launcher | None = None) -> Any:
    """Register the quick plugin ``course::QuickRope`` with inputs x, cos, sin and the attribute ``interleaved``.

    ``network.add_plugin(quick_rope(trt)(x, cos, sin, interleaved=False))`` adds it to a network.

    Args:
        trt: the module ``tensorrt``.
        launch: function that runs the kernel; None compiles it with nvcc on first use.

    Returns:
        a function that makes a plugin from tensors of a network.

    Raises:
        BackendUnavailable: this TensorRT has no quick plugins.
    """
    trtp: Any = plugin_module(trt)
    Described: TypeAlias = trtp.TensorDesc
    Tensor: TypeAlias = trtp.Tensor
    dtypes = {trt.DataType.FLOAT: "float32", trt.DataType.HALF: "float16"}
    dtypes[trt.DataType.BF16] = "bfloat16"  # not in TensorRT 8.6

    @trtp.register(ID)
    def describe(x: Described, cos: Described, sin: Described, interleaved: bool) -> Described:
        return x.like()

    @trtp.impl(ID)
    def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, outputs: tuple[Tensor], stream: int) -> None:
        run = launch or cuda_launcher()
        addresses = x.data_ptr, cos.data_ptr, sin.data_ptr, outputs[0].data_ptr
        run(dtypes[x.dtype], *addresses, tuple(x.shape), interleaved=interleaved, stream=stream)

    namespace, name = ID.split("::")
    return getattr(getattr(trtp.op, namespace), name)


def plugin_module(trt: Any) -> Any:
    """The module ``tensorrt.plugin``.

    Raises:
        BackendUnavailable: this TensorRT has none.
    """
    try:
        return import_module(f"{trt.__name__}.plugin")
    except ImportError:
        raise BackendUnavailable(f"TensorRT {trt.__version__} has no quick plugins: they came with 10.6") from None
