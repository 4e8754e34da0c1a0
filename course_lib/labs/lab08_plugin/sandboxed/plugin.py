"""The process that calls a learner's rotary_plugin.py as TensorRT would, over TensorRT's real Python bindings.

It is started as a file, with ``python -I``, and does not import the course. Standard input is a zip archive: the bindings' wheel,
empty stand-ins for TensorRT's libraries, the framework's `learner_code`, the plugin and the calls. Answers are plain JSON values;
another process decides whether they are correct.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, SupportsIndex

import numpy as np

FILE = "rotary_plugin.py"
Fields = list[list[str | list[int]]]  # name, type and numbers of each field
PACKAGES = "tensorrt", "numpy", "tensorrt_bindings"  # that the plugin may import


class Expression:
    """Stands for `trt.IDimensionExpr`, which only TensorRT's library can make: a dimension, not known while an engine is built."""

    def __init__(self, name: int = 0) -> None:
        self.name = name

    def is_constant(self) -> bool:
        """Whether the value is known; it never is."""
        return False

    def get_constant_value(self) -> int:
        """What TensorRT returns for an expression without a known value."""
        return -(1 << 63)

    is_size_tensor = is_constant


class Expressions(list[Any]):
    """Stands for `trt.DimsExprs`: a sequence of expressions, made of a rank or of other expressions."""

    def __init__(self, given: Any = ()) -> None:
        super().__init__([None] * int(given) if isinstance(given, SupportsIndex) else given)


class PluginHost:
    """Calls plugins and their creator. Two plugins with different values live at the same time, because a network can have both."""

    def __init__(self, trt: Any, names: dict[str, Any]) -> None:
        self.trt, self.names, self.calls = trt, names, list[list[Any]]()
        names["launch"] = self._launch

    def given(self, rotary: list[int | None], types: list[str]) -> list[Any]:
        """Names, interfaces, and the calls of a build in their order, none of which may raise."""
        plugin, creator = self._plugins(rotary)[0], self.names["RotaryCreator"]()
        kinds = {"CORE": "IPluginV3OneCore", "BUILD": "IPluginV3OneBuild", "RUNTIME": "IPluginV3OneRuntime"}
        asked = self.trt.PluginCapabilityType.__members__  # not in TensorRT 8.6
        interfaces = all(
            isinstance(plugin.get_capability_interface(asked[name]), getattr(self.trt, kind)) for name, kind in kinds.items()
        )
        inputs = [
            self._dynamic(shape, dtype) for shape, dtype in zip(([2, 3, 5, 8], [7, 2], [7, 2], [2, 5]), types, strict=True)
        ]
        outputs = [self._dynamic([2, 3, 5, 8], types[0])]
        plugin.configure_plugin(inputs, outputs)
        plugin.get_valid_tactics(), plugin.get_workspace_size(inputs, outputs)
        return [
            [plugin.plugin_name, plugin.plugin_version, plugin.plugin_namespace],
            [creator.name, creator.plugin_version, creator.plugin_namespace],
            int(plugin.num_outputs),
            interfaces,
        ]

    def announced(self) -> Fields:
        """Name and type of each field that the creator announces."""
        creator = self.names["RotaryCreator"]()
        return [[field.name, field.type.name] for field in creator.field_names]

    def fields(self, rotary: list[int | None], phase: str) -> list[Fields]:
        """The fields that plugins serialize if they were created with these values, or without a field, in a phase."""
        plugins = self._plugins(rotary, phase)
        return self._read([plugin.get_fields_to_serialize() for plugin in plugins])

    def copies(self, rotary: list[int | None], call: str) -> list[Any]:
        """For ``clone`` or ``attach_to_context``: whether each copy is a new object, and its fields."""
        plugins = self._plugins(rotary)
        copies = [plugin.clone() if call == "clone" else plugin.attach_to_context(None) for plugin in plugins]
        fresh = [copy is not plugin and type(copy) is type(plugin) for copy, plugin in zip(copies, plugins, strict=True)]
        return [fresh, self._read([copy.get_fields_to_serialize() for copy in copies])]

    def output_types(self, types: list[str]) -> list[str]:
        """Names of the output types for the names of the input types."""
        (plugin,) = self._plugins([None])
        return [one.name for one in plugin.get_output_data_types([self._type(name) for name in types])]

    def output_shapes(self, names: list[list[int]]) -> list[list[int | None]]:
        """The expressions of each output's shape, by name."""
        (plugin,) = self._plugins([None])
        inputs = [Expressions(map(Expression, several)) for several in names]
        unknown = dict.fromkeys(("constant", "operation", "declare_size_tensor"), lambda *_: Expression())
        shapes = plugin.get_output_shapes(inputs, [], SimpleNamespace(**unknown))  # stands for `trt.IExprBuilder`
        return [[getattr(one, "name", None) for one in shape] for shape in shapes]

    def formats(self, position: int, types: list[str], formats: list[str]) -> bool:
        """Whether the plugin accepts the type and format of the tensor at `position`."""
        (plugin,) = self._plugins([None])
        tensors = [self._dynamic([1], dtype, form) for dtype, form in zip(types, formats, strict=True)]
        return bool(plugin.supports_format_combination(position, tensors, 4))

    def enqueue(
        self, rotary: list[int | None], dtype: str, shapes: list[list[int]], addresses: list[list[int]], streams: list[int]
    ) -> list[list[Any]]:
        """What reaches `launch` if plugins run one after the other, each with its own shape, as engines with dynamic shapes do."""
        self.calls = []
        plugins = [plugin.attach_to_context(None) for plugin in self._plugins(rotary, "RUNTIME")]
        described = []
        for plugin, shape in zip(plugins, shapes, strict=True):
            table, positions = self._described([9, 4], "FLOAT"), self._described([shape[0], shape[2]], "INT32")
            described.append([self._described(shape, dtype), table, table, positions])
            plugin.set_tactic(0)
            plugin.on_shape_change(described[-1], described[-1][:1])
        for plugin, inputs, (*given, output), stream in zip(plugins, described, addresses, streams, strict=True):
            plugin.enqueue(inputs, inputs[:1], given, [output], 0, stream)
        return self.calls

    def _launch(
        self, dtype: Any, x: Any, cos: Any, sin: Any, positions: Any, y: Any, shape: Any, rotary: Any, stream: Any
    ) -> None:
        addresses = [int(one) for one in (x, cos, sin, positions, y)]
        self.calls.append([str(dtype), *addresses, [int(n) for n in shape], int(rotary), int(stream)])

    def _plugins(self, rotary: list[int | None], phase: str = "BUILD") -> list[Any]:
        return [self._plugin(one, phase) for one in rotary]

    def _plugin(self, rotary: int | None, phase: str) -> Any:
        kept = np.array([rotary or 0], np.int32)
        field = self.trt.PluginField("rotary", kept, self.trt.PluginFieldType.INT32)
        fields = self.trt.PluginFieldCollection([] if rotary is None else [field])
        phases = self.trt.TensorRTPhase.__members__  # not in TensorRT 8.6
        return self.names["RotaryCreator"]().create_plugin("rotary", fields, phases[phase])

    def _read(self, several: list[Any]) -> list[Fields]:
        others = _churn()
        found = [
            [[field.name, field.type.name, np.asarray(field.data).astype(np.int64).tolist()[:4]] for field in fields]
            for fields in several
        ]
        assert others
        return found

    def _type(self, name: str) -> Any:
        return self.trt.DataType.__members__[name]

    def _dynamic(self, shape: list[int], dtype: str, form: str = "LINEAR") -> Any:
        tensor = self.trt.DynamicPluginTensorDesc()  # not in TensorRT 8.6
        tensor.desc = self._described(shape, dtype, form)  # not in TensorRT 8.6
        sizes = self.trt.Dims(shape)
        tensor.min = tensor.opt = tensor.max = sizes  # not in TensorRT 8.6
        return tensor

    def _described(self, shape: list[int], dtype: str, form: str = "LINEAR") -> Any:
        tensor = self.trt.PluginTensorDesc()  # not in TensorRT 8.6
        tensor.dims, tensor.type, tensor.format = (  # not in TensorRT 8.6
            self.trt.Dims(shape),
            self._type(dtype),
            self.trt.TensorFormat.__members__[form],
        )
        return tensor


def _churn() -> list[np.ndarray]:
    """Reuse freed memory, so that a plugin that keeps no reference to its fields reads other values."""
    gc.collect()
    return [np.full(size, -7, np.int32) for size in (1, 1, 1, 2, 4, 1000) for _ in range(300)]


def examine(folder: Path) -> Any:
    """Load the plugin, and answer each call with the method of `PluginHost`, or all of them with one failure if it cannot be loaded."""
    sys.path.insert(0, str(folder))
    learner_code = importlib.import_module("learner_code")
    trt: Any = importlib.import_module("tensorrt_bindings")
    sys.modules["tensorrt"] = trt
    trt.DimsExprs = Expressions  # not in TensorRT 8.6
    trt.init_libnvinfer_plugins = lambda *_: True
    # The empty libraries have none.
    trt.get_plugin_registry = lambda *_: SimpleNamespace(register_creator=lambda *_, **__: True)
    calls = json.loads((folder / "calls.json").read_text())
    sys.meta_path.insert(0, learner_code.OnlyPackages(*PACKAGES))
    try:
        names = vars(learner_code.loaded((folder / FILE).read_text(encoding="utf-8"), FILE))
        missing = [name for name in ("RotaryPlugin", "RotaryCreator") if name not in names]
        if missing:
            raise NameError(f"defines no class {missing[0]}")
    except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
        return learner_code.failure(error, FILE)
    host, answers = PluginHost(trt, names), list[dict[str, Any]]()
    for method, arguments in calls:
        try:
            answers.append({"answer": getattr(host, method)(**arguments)})
        except BaseException as error:
            answers.append(learner_code.failure(error, FILE))
    return answers


def main() -> None:
    """Unpack, restart with the empty libraries on the loader's path, then answer. A plugin's output is discarded."""
    if len(sys.argv) == 1:
        folder = tempfile.mkdtemp()
        with zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read())) as archive:
            archive.extractall(folder)
        with zipfile.ZipFile(Path(folder, "bindings.whl")) as wheel:
            wheel.extractall(folder)
        os.execve(sys.executable, [sys.executable, "-I", __file__, folder], {**os.environ, "LD_LIBRARY_PATH": folder})
    reply = os.dup(1)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    answered = examine(Path(sys.argv[1]))
    with os.fdopen(reply, "w") as out:
        json.dump(answered, out)
        out.flush()
    os._exit(0)  # not through destructors over empty libraries


if __name__ == "__main__":
    main()
