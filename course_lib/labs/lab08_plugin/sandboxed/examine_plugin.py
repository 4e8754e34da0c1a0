"""The process that calls a learner's rope_plugin.py as TensorRT would, over TensorRT's real Python bindings.

It is started as a file, with ``python -I``, and does not import the course. Standard input is a zip archive: the bindings' wheel,
empty stand-ins for TensorRT's libraries, the plugin and the questions. Answers are plain JSON values; another process decides
whether they are correct.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import io
import itertools
import json
import os
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

FILE = "rope_plugin.py"
Fields = list[list[str | list[int]]]  # name, type and numbers of each field
Call = list[str | int | bool | list[int]]  # the arguments of one call of `launch`
Steps = Generator[None, None, Any]  # a question in steps, which returns the answer
MOST_WORKSPACE = 1 << 20  # bytes; RoPE needs none
_PERMITTED = {*sys.stdlib_module_names, "numpy", "tensorrt", "tensorrt_bindings"}


class NoOthers:
    """An import hook that rejects other packages."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Reject `name`, or pass it on to Python's own finders."""
        if name.partition(".")[0] not in _PERMITTED:
            raise ImportError(f"{FILE} may import tensorrt, numpy and Python's own modules, not {name!r}")


class Registry:
    """Accepts every creator, because the empty libraries have no registry."""

    def register_creator(self, *_: Any, **__: Any) -> bool:
        """Accept a creator without keeping it."""
        return True


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


class Expressions:
    """Stands for `trt.DimsExprs`: a sequence of expressions, made of a rank or of other expressions."""

    def __init__(self, given: Any = ()) -> None:
        several = [None] * int(given) if isinstance(given, SupportsIndex) else given
        self._all = [self._checked(one) for one in several]

    def _checked(self, one: Any) -> Expression | None:
        if one is None or isinstance(one, Expression):
            return one
        raise TypeError(f"DimsExprs holds IDimensionExpr, not {type(one).__name__}")

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, place: int) -> Expression | None:
        return self._all[place]

    def __setitem__(self, place: int, one: Any) -> None:
        self._all[place] = self._checked(one)


class Constants:
    """An expression builder that records the constants that a plugin creates."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def constant(self, value: int) -> Expression:
        """Remember the value of a constant expression."""
        self.asked.append(int(value))
        return Expression()

    def operation(self, *_: Any) -> Expression:
        """Stands for any expression that is not a constant."""
        return Expression()

    declare_size_tensor = operation


class PluginHost:
    """Asks plugins and their creator. A question that raises is answered with the error's line.

    Each question is a generator that yields between its steps: two plugins answer it at the same time.
    """

    def __init__(self, trt: Any, asked: dict[str, Any]) -> None:
        self.trt, self.names, self.calls = trt, dict[str, Any](), list[Call]()
        self.asked = [(name, getattr(self, name), pairs) for name, pairs in asked.items()]

    def _launch(self, dtype: Any, x: Any, cos: Any, sin: Any, y: Any, shape: Any, interleaved: Any, stream: Any) -> None:
        self.calls.append(
            [str(dtype), int(x), int(cos), int(sin), int(y), [int(n) for n in shape], bool(interleaved), int(stream)]
        )

    def answers(self, names: dict[str, Any]) -> dict[str, Any]:
        """An answer of a file's plugin for each question, under the question's name."""
        self.names = names
        names["launch"] = self._launch
        return {
            name: [answer for pair in pairs for answer in self._side_by_side(question, **pair)]
            for name, question, pairs in self.asked
        }

    def _side_by_side(self, question: Callable[..., Steps], both: list[dict[str, Any]], swapped: list[bool]) -> list[Any]:
        """The answers of two plugins, each of which takes one step after the other has taken one.

        Args:
            both: the arguments of the question, one for each plugin.
            swapped: for each step, whether the second plugin takes it before the first one.
        """
        asked = [question(**arguments) for arguments in both]
        calls: list[list[Call]] = [[] for _ in asked]
        found: dict[int, Any] = {}
        for second_first in itertools.cycle(swapped):
            for which in (1, 0) if second_first else (0, 1):
                self.calls = calls[which]
                if which not in found and (answer := _stepped(asked[which])):
                    found[which] = answer
            if len(found) == len(asked):
                break
        return [found[which] for which in range(len(asked))]

    def names_and_outputs(self, interleaved: bool) -> Steps:
        """Name, version and namespace of the plugin and of its creator, and the plugin's number of outputs."""
        plugin, creator = self._plugin(interleaved), self.names["RopeCreator"]()
        yield
        return [
            [plugin.plugin_name, plugin.plugin_version, plugin.plugin_namespace],
            [creator.name, creator.plugin_version, creator.plugin_namespace],
            int(plugin.num_outputs),
        ]

    def interface(self, interleaved: bool, capability: str) -> Steps:
        """Whether the object that the plugin returns for a capability implements that capability's interface."""
        plugin = self._plugin(interleaved)
        yield
        kind = getattr(
            self.trt, {"CORE": "IPluginV3OneCore", "BUILD": "IPluginV3OneBuild", "RUNTIME": "IPluginV3OneRuntime"}[capability]
        )
        asked = self.trt.PluginCapabilityType.__members__[capability]  # not in TensorRT 8.6
        return isinstance(plugin.get_capability_interface(asked), kind)

    def creator_fields(self) -> Steps:
        """Name and type of each field that the creator announces."""
        creator = self.names["RopeCreator"]()
        yield
        others = _churn()
        found = [[field.name, field.type.name] for field in creator.field_names]
        assert others
        return found

    def fields(self, interleaved: bool | None, phase: str) -> Steps:
        """The fields that a plugin serializes if it was created with `interleaved`, or without any field, in a phase.

        The phase is ``BUILD`` or ``RUNTIME``.
        """
        plugin = self._plugin(interleaved, phase)
        yield
        fields = plugin.get_fields_to_serialize()
        yield
        return self._read(fields)

    default_fields = fields

    def copies(self, interleaved: bool) -> Steps:
        """For `clone` and `attach_to_context`: whether the copy is new, its name, number of outputs and fields."""
        plugin = self._plugin(interleaved)
        yield
        copies = [plugin.clone()]
        yield
        copies.append(plugin.attach_to_context(None))
        yield
        fields = [copy.get_fields_to_serialize() for copy in copies]
        yield
        return [
            [copy is not plugin and type(copy) is type(plugin), copy.plugin_name, int(copy.num_outputs), self._read(kept)]
            for copy, kept in zip(copies, fields, strict=True)
        ]

    def output_types(self, interleaved: bool, types: list[str]) -> Steps:
        """Names of the output types for the names of three input types."""
        plugin = self._plugin(interleaved)
        yield
        return [one.name for one in plugin.get_output_data_types([self._type(name) for name in types])]

    def output_shapes(self, interleaved: bool, names: list[list[int]]) -> Steps:
        """The expressions of each output's shape, by name, and the constants that the plugin created to compute the shapes."""
        plugin = self._plugin(interleaved)
        yield
        builder = Constants()
        inputs = [Expressions(map(Expression, several)) for several in names]
        found = plugin.get_output_shapes(inputs, [], builder)
        return [[[getattr(one, "name", None) for one in shape] for shape in found], builder.asked]

    def build(self, interleaved: bool, types: list[str]) -> Steps:
        """Whether the tactics are legal and the workspace is small, in the order of the calls of a build, none of which may raise."""
        plugin = self._plugin(interleaved)
        yield
        plugin = plugin.clone()
        yield
        inputs = [self._dynamic(shape, dtype) for shape, dtype in zip(([2, 5, 3, 8], [7, 4], [7, 4]), types, strict=True)]
        outputs = [self._dynamic([2, 5, 3, 8], types[0])]
        plugin.configure_plugin(inputs, outputs)
        yield
        tactics = [int(tactic) for tactic in plugin.get_valid_tactics()]
        workspace = int(plugin.get_workspace_size(inputs, outputs))
        return [min(tactics, default=1) > 0 and len({*tactics}) == len(tactics), 0 <= workspace <= MOST_WORKSPACE]

    def format(self, interleaved: bool, position: int, types: list[str], formats: list[str]) -> Steps:
        """Whether the plugin accepts the type and format of the tensor at `position`."""
        plugin = self._plugin(interleaved)
        yield
        tensors = []
        for dtype, form in zip(types, formats, strict=True):
            tensors.append(self._dynamic([1], dtype, form))
        return bool(plugin.supports_format_combination(position, tensors, 3))

    def enqueue(
        self, interleaved: bool, dtype: str, shapes: list[list[int]], addresses: list[list[int]], streams: list[int]
    ) -> Steps:
        """Run one plugin with several shapes, as an engine with a dynamic shape does."""
        plugin, calls = self._plugin(interleaved, "RUNTIME"), self.calls
        yield
        plugin = plugin.attach_to_context(None)
        for shape, (*inputs, output), stream in zip(shapes, addresses, streams, strict=True):
            yield
            table = self._described([shape[1] + 2, shape[3] // 2], "FLOAT")
            described = [self._described(shape, dtype), table, table]
            plugin.set_tactic(0)
            plugin.on_shape_change(described, described[:1])
            yield
            plugin.enqueue(described, described[:1], inputs, [output], 0, stream)
        return calls

    def _plugin(self, interleaved: bool | None, phase: str = "BUILD") -> Any:
        kept = np.array([bool(interleaved)], np.int32)
        field = self.trt.PluginField("interleaved", kept, self.trt.PluginFieldType.INT32)
        fields = self.trt.PluginFieldCollection([] if interleaved is None else [field])
        phases = self.trt.TensorRTPhase.__members__  # not in TensorRT 8.6
        return self.names["RopeCreator"]().create_plugin("rope", fields, phases[phase])

    def _read(self, fields: Any) -> Fields:
        others = _churn()
        found = [[field.name, field.type.name, np.asarray(field.data).astype(np.int64).tolist()[:4]] for field in fields]
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


class Decoy:
    """Changes what passes through a plugin's methods in a way that only the judge knows.

    Answers then have the changes, if the plugin gave them. Something that stands for the plugin's methods gives the answers of the rules.

    Args:
        secret: ``created``, whether each call of `create_plugin` gets the other layout, ``formats``, whether each answer about a format is
            turned around, ``types``, other types by their names, ``address`` and ``stream``, what is added to them.
    """

    def __init__(self, trt: Any, secret: dict[str, Any]) -> None:
        self.trt, self.secret, self.inside = trt, secret, False
        self.created, self.formats = iter(secret["created"]), iter(secret["formats"])
        self.kept: list[Any] = []

    def change(self, creator: Any) -> None:
        """Change a creator, and each plugin that it makes."""
        self._wrap(creator if isinstance(creator, type) else type(creator()), "create_plugin", self._create)

    def _wrap(self, kind: Any, name: str, change: Callable[..., Any]) -> None:
        original = inspect.getattr_static(kind, name, None)
        if original is None:
            return

        def called(one: Any, *arguments: Any) -> Any:
            bound = original.__get__(one, kind)
            if self.inside:  # a method that another one calls
                return bound(*arguments)
            self.inside = True
            try:
                return change(bound, *arguments)
            finally:
                self.inside = False

        setattr(kind, name, called)

    def _create(self, bound: Any, name: Any, fields: Any, phase: Any) -> Any:
        if next(self.created):
            value = next((int(np.asarray(one.data).ravel()[0]) for one in fields if one.name == "interleaved"), 0)
            kept = np.array([1 - value], np.int32)
            fields = self.trt.PluginFieldCollection([self.trt.PluginField("interleaved", kept, self.trt.PluginFieldType.INT32)])
            self.kept += [kept, fields]
        plugin = bound(name, fields, phase)
        if type(plugin) not in self.kept:
            self.kept.append(type(plugin))
            for method, change in (
                ("get_output_data_types", self._types),
                ("get_output_shapes", self._shapes),
                ("supports_format_combination", self._format),
                ("enqueue", self._enqueue),
            ):
                self._wrap(type(plugin), method, change)
        return plugin

    def _types(self, bound: Any, types: Any) -> Any:
        first, *others = types
        return bound([self.trt.DataType.__members__[self.secret["types"][first.name]], *others])

    def _shapes(self, bound: Any, *arguments: Any) -> Any:
        return 2 * list(bound(*arguments))

    def _format(self, bound: Any, *arguments: Any) -> bool:
        return bool(bound(*arguments)) != next(self.formats)

    def _enqueue(self, bound: Any, described: Any, out: Any, inputs: Any, outputs: Any, workspace: Any, stream: Any) -> Any:
        moved, other = ([one + self.secret["address"] for one in several] for several in (inputs, outputs))
        return bound(described, out, moved, other, workspace, stream + self.secret["stream"])


def _churn() -> list[np.ndarray]:
    """Reuse freed memory, so that a plugin that keeps no reference to its fields reads other values."""
    gc.collect()
    return [np.full(size, -7, np.int32) for size in (1, 1, 1, 2, 4, 1000) for _ in range(300)]


def _stepped(asked: Steps) -> Any:
    """The answer after the next step of a question; None if more steps follow."""
    try:
        next(asked)
    except StopIteration as end:
        return {"answer": end.value}
    except BaseException as error:  # whatever a learner's code raises, SystemExit included, is an answer
        return {"error": said(error), "empty": isinstance(error, NotImplementedError)}
    return None


def said(error: BaseException) -> str:
    """One line with the error and its place in the learner's file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == FILE]
    where = f"{FILE}, line {frames[-1].lineno}: " if frames else f"{FILE}: "
    return " ".join(f"{where}{type(error).__name__} {error}".split())[:300]


def examine(folder: Path) -> dict[str, Any]:
    """Load the plugin and answer all questions. If it cannot be loaded, the result is ``{"error": line}``."""
    sys.path.insert(0, str(folder))
    trt: Any = importlib.import_module("tensorrt_bindings")
    sys.modules["tensorrt"] = trt
    trt.DimsExprs = Expressions  # not in TensorRT 8.6
    trt.get_plugin_registry = trt.init_libnvinfer_plugins = lambda *_: Registry()
    questions = folder / "questions.json"
    asked = json.loads(questions.read_text())
    questions.unlink()
    # What is asked is decided before the learner's file runs, which finds no class by its name.
    host, decoy = PluginHost(trt, asked["questions"]), Decoy(trt, asked["decoy"]) if asked["decoy"] else None
    del globals()["PluginHost"], globals()["Decoy"]
    sys.meta_path.insert(0, NoOthers())
    names: dict[str, Any] = {"__name__": "rope_plugin"}
    try:
        exec(compile((folder / FILE).read_text(encoding="utf-8"), FILE, "exec"), names)
        missing = [name for name in ("RopePlugin", "RopeCreator") if name not in names]
        if missing:
            raise NameError(f"defines no class {missing[0]}")
        if decoy:
            decoy.change(names["RopeCreator"])
    except BaseException as error:
        return {"error": said(error)}
    return host.answers(names) | {"nonce": asked["nonce"]}


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
