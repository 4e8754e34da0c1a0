"""RoPE as a TensorRT plugin written in Python: `IPluginV3` and its creator, for TensorRT 10 and 11.

A plugin has three interfaces. The core interface gives its name, the build interface gives output shapes and types, and the
runtime interface computes. One class implements all three here, as in NVIDIA's samples.

Source: NVIDIA TensorRT documentation, "Adding Custom Layers Using the Python API".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from course_lib.errors import BackendUnavailable, EngineError
from course_lib.plugins.launchers import Launcher, cuda_launcher
from course_lib.plugins.reference import check_shapes

# An engine finds the plugins that it needs by these three, and so does the ONNX parser.
NAME, VERSION, NAMESPACE = "CourseRope", "1", "course"


@dataclass(frozen=True)
class RopePlugin:
    """The two classes that `rope_plugin` makes for one TensorRT module."""

    plugin: Any
    creator: Any


def rope_plugin(trt: Any, launch: Launcher | None = None) -> RopePlugin:
    """The plugin's class and its creator's class, subclasses of those of the TensorRT module `trt`.

    Inputs: x of shape (batch, sequence, heads, head size) in FP32, FP16 or BF16; cos and sin in FP32, shape (rows, head size / 2) with
    at least `sequence` rows. Output: like x. Field: ``interleaved``, INT32, 0 or 1.

    Args:
        trt: the module ``tensorrt``, 10 or newer.
        launch: function that runs the kernel; None compiles it with nvcc on first use.

    Raises:
        BackendUnavailable: TensorRT is older than 10.
    """
    if not hasattr(trt, "IPluginV3"):
        raise BackendUnavailable(f"TensorRT {trt.__version__} has no IPluginV3, which came with 10: use the plugin in C++")
    dtypes = {trt.DataType.FLOAT: "float32", trt.DataType.HALF: "float16", trt.DataType.BF16: "bfloat16"}

    class CourseRope(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
        def __init__(self, interleaved: bool = False) -> None:
            # Each base is its own C++ object. One that is not initialized raises TypeError here and now.
            trt.IPluginV3.__init__(self)
            trt.IPluginV3OneCore.__init__(self)
            trt.IPluginV3OneBuild.__init__(self)
            trt.IPluginV3OneRuntime.__init__(self)
            self.plugin_name, self.plugin_version, self.plugin_namespace = NAME, VERSION, NAMESPACE
            self.num_outputs = 1
            self.interleaved = bool(interleaved)

        def get_capability_interface(self, type: Any) -> CourseRope:
            return self

        def clone(self) -> CourseRope:
            """TensorRT clones freely: a network, an engine and each context have their own plugin."""
            return CourseRope(self.interleaved)

        # ---- core and build: asked once, while the engine is built

        def get_output_data_types(self, input_types: Sequence[Any]) -> list[Any]:
            return [input_types[0]]

        def get_output_shapes(self, inputs: Sequence[Any], shape_inputs: Sequence[Any], expr_builder: Any) -> list[Any]:
            # Shapes are expressions here, since a dimension may be known at run time only. Ours are those of x, as they are.
            return [trt.DimsExprs(inputs[0])]

        def supports_format_combination(self, pos: int, in_out: Sequence[Any], num_inputs: int) -> bool:
            """Whether tensor `pos` may be as described, given that all before it are as described."""
            tensor = in_out[pos].desc
            if tensor.format != trt.TensorFormat.LINEAR:
                return False
            if pos == 0:
                return tensor.type in dtypes
            is_table = pos < num_inputs
            return bool(tensor.type == (trt.DataType.FLOAT if is_table else in_out[0].desc.type))

        def configure_plugin(self, inp: Sequence[Any], out: Sequence[Any]) -> None:
            if len(inp) != 3 or len(out) != 1:
                raise ValueError(f"{NAME} has the inputs x, cos and sin and one output, found {len(inp)} and {len(out)}")

        def get_valid_tactics(self) -> list[int]:
            return []  # one way to do it: nothing to time

        def get_workspace_size(self, inp: Sequence[Any], out: Sequence[Any]) -> int:
            return 0

        # ---- runtime

        def get_fields_to_serialize(self) -> Any:
            """The fields that an engine file keeps. The creator receives them when the engine is loaded."""
            # A collection copies the pointers of its fields and forgets whose memory it is. If the array is not kept alive,
            # TensorRT writes whatever is in that memory into the engine, without an error.
            self._kept = np.array([self.interleaved], np.int32)
            return trt.PluginFieldCollection([trt.PluginField("interleaved", self._kept, trt.PluginFieldType.INT32)])

        def attach_to_context(self, resource_context: Any) -> CourseRope:
            return self.clone()

        def set_tactic(self, tactic: int) -> None:
            pass

        def on_shape_change(self, inp: Sequence[Any], out: Sequence[Any]) -> None:
            check_shapes(*(tuple(tensor.dims) for tensor in inp))

        def enqueue(
            self,
            input_desc: Sequence[Any],
            output_desc: Sequence[Any],
            inputs: Sequence[int],
            outputs: Sequence[int],
            workspace: int,
            stream: int,
        ) -> None:
            """Put the work on TensorRT's stream and return: no synchronization, no allocation, so a CUDA graph can capture it."""
            run = launch or cuda_launcher()
            (x, cos, sin), (y,) = inputs, outputs
            shape, dtype = tuple(input_desc[0].dims), dtypes[input_desc[0].type]
            run(dtype, x, cos, sin, y, shape, interleaved=self.interleaved, stream=stream)

    class CourseRopeCreator(trt.IPluginCreatorV3One):
        def __init__(self) -> None:
            trt.IPluginCreatorV3One.__init__(self)
            self.name, self.plugin_version, self.plugin_namespace = NAME, VERSION, NAMESPACE
            # Names and types tell the ONNX parser which attributes of a node to hand over.
            self._kept = np.array([], np.int32)
            fields = [trt.PluginField("interleaved", self._kept, trt.PluginFieldType.INT32)]
            self.field_names = trt.PluginFieldCollection(fields)

        def create_plugin(self, name: str, fc: Any, phase: Any) -> CourseRope:
            """A plugin from fields: of an ONNX node or a program while building, of an engine file when it is loaded."""
            fields = {fc[i].name: fc[i].data for i in range(len(fc))}
            unknown = fields.keys() - {"interleaved"}
            if unknown:
                raise ValueError(f"{NAME} has the field interleaved, found {', '.join(sorted(unknown))}")
            return CourseRope(bool(fields["interleaved"][0]) if "interleaved" in fields else False)

    return RopePlugin(CourseRope, CourseRopeCreator)


@cache  # it also keeps the creator: TensorRT's registry holds a bare pointer to it
def register_rope(trt: Any, launch: Launcher | None = None) -> Any:
    """Register the plugin with TensorRT. A second call has no effect.

    Call it before an ONNX file is parsed and before an engine is loaded: both look the plugin up by name.

    Returns:
        the creator.

    Raises:
        EngineError: TensorRT already has a plugin of this name, from a library or with another kernel.
    """
    creator = rope_plugin(trt, launch).creator()
    if not trt.get_plugin_registry().register_creator(creator, NAMESPACE):
        raise EngineError(
            f"TensorRT cannot register {NAMESPACE}::{NAME} {VERSION}: it has one already; register it once in a process"
        )
    return creator
