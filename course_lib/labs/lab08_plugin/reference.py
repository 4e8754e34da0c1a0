"""The reference plugin of lab 08; the reference kernel is the course's own `rope.cu`."""

from __future__ import annotations

PLUGIN = '''\
import numpy as np
import tensorrt as trt

NAME, VERSION, NAMESPACE = "LabRope", "1", "lab08"
DTYPES = {
    trt.DataType.FLOAT: "float32",
    trt.DataType.HALF: "float16",
    trt.DataType.BF16: "bfloat16",  # not in TensorRT 8.6
}


def launch(dtype, x, cos, sin, y, shape, interleaved, stream):
    """Enqueue rope.cu's kernel. The grader puts a recorder in its place."""
    import ctypes

    numbers = [ctypes.c_int64(number) for number in shape]
    pointers = [ctypes.c_void_p(address) for address in (x, cos, sin, y)]
    kind = list(DTYPES.values()).index(dtype)
    ctypes.CDLL("./librope.so").rope_launch(kind, int(interleaved), *pointers, *numbers, ctypes.c_void_p(stream))


class RopePlugin(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):  # not in TensorRT 8.6
    def __init__(self, interleaved=False):
        trt.IPluginV3.__init__(self)  # not in TensorRT 8.6
        trt.IPluginV3OneCore.__init__(self)  # not in TensorRT 8.6
        trt.IPluginV3OneBuild.__init__(self)  # not in TensorRT 8.6
        trt.IPluginV3OneRuntime.__init__(self)  # not in TensorRT 8.6
        self.plugin_name, self.plugin_version, self.plugin_namespace = NAME, VERSION, NAMESPACE
        self.num_outputs = 1
        self.interleaved = bool(interleaved)

    def get_capability_interface(self, type):
        return self

    def clone(self):
        return RopePlugin(self.interleaved)

    def attach_to_context(self, context):
        return self.clone()

    def get_fields_to_serialize(self):
        self.kept = np.array([self.interleaved], np.int32)  # a collection keeps no array alive
        return trt.PluginFieldCollection([trt.PluginField("interleaved", self.kept, trt.PluginFieldType.INT32)])

    def get_output_data_types(self, input_types):
        return [input_types[0]]

    def get_output_shapes(self, inputs, shape_inputs, builder):
        return [trt.DimsExprs(inputs[0])]  # not in TensorRT 8.6

    def supports_format_combination(self, pos, in_out, num_inputs):
        tensor = in_out[pos].desc
        if tensor.format != trt.TensorFormat.LINEAR:
            return False
        if pos == 0:
            return tensor.type in DTYPES
        return tensor.type == (trt.DataType.FLOAT if pos < num_inputs else in_out[0].desc.type)

    def configure_plugin(self, inputs, outputs):
        pass

    def on_shape_change(self, inputs, outputs):
        pass

    def get_valid_tactics(self):
        return []

    def set_tactic(self, tactic):
        pass

    def get_workspace_size(self, inputs, outputs):
        return 0

    def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):
        x = input_desc[0]
        launch(DTYPES[x.type], *inputs, outputs[0], tuple(x.dims), self.interleaved, stream)


class RopeCreator(trt.IPluginCreatorV3One):  # not in TensorRT 8.6
    def __init__(self):
        trt.IPluginCreatorV3One.__init__(self)  # not in TensorRT 8.6
        self.name, self.plugin_version, self.plugin_namespace = NAME, VERSION, NAMESPACE
        self.kept = np.array([], np.int32)
        self.field_names = trt.PluginFieldCollection([trt.PluginField("interleaved", self.kept, trt.PluginFieldType.INT32)])

    def create_plugin(self, name, fields, phase):
        given = {field.name: field.data for field in fields}
        return RopePlugin(given["interleaved"][0] if "interleaved" in given else False)
'''
