"""What must hold of the AOT attention plugin on TensorRT's real bindings. Run by test_aot_plugin.py as contract.py is.

NVIDIA's Python code drives the plugin as the builder does. Only what it gets from TensorRT's libraries is replaced: an expression here is
a function of the input's sizes. A text takes the place of the kernel's PTX; test_aot_plugin.py compiles the real one.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.plugins.attention_launches import BLOCK, GRIDS, SHARED_BYTES
from tests.plugins.contract import LINEAR, Registry, described, dynamic, rejected, report, trt

HALF = trt.DataType.HALF
PTX = ".visible .entry attentionKernel"
Sizes = dict[str, int]


class Expression:
    """As `IDimensionExpr`: a number that is known, or one that follows from sizes at run time."""

    def __init__(self, at: Callable[[Sizes], int], *, constant: bool = False) -> None:
        self.at, self._constant = at, constant

    def is_constant(self) -> bool:
        return self._constant

    def get_constant_value(self) -> int:
        assert self._constant
        return self.at({})


class ExpressionBuilder:
    """As `IExprBuilder`."""

    _functions: dict[Any, Callable[[int, int], int]] = {  # noqa: RUF012
        trt.DimensionOperation.SUM: operator.add,
        trt.DimensionOperation.FLOOR_DIV: operator.floordiv,
        trt.DimensionOperation.CEIL_DIV: lambda a, b: -(-a // b),
    }

    def constant(self, value: int) -> Expression:
        return Expression(lambda sizes: value, constant=True)

    def operation(self, kind: Any, a: Expression, b: Expression) -> Expression:
        function = self._functions[kind]
        return Expression(lambda sizes: function(a.at(sizes), b.at(sizes)), constant=a.is_constant() and b.is_constant())


class Argument:
    """As `ISymExpr`."""

    type: Any = None
    dtype: Any = None
    expr: Expression


class Arguments(dict[int, Argument]):
    """As `ISymExprs`."""

    nbSymExprs = 0


# Before tensorrt.plugin is imported, which derives a class from one of them
trt.IDimensionExpr, trt.ISymExpr, trt.DimsExprs = Expression, Argument, lambda rank: [None] * rank

from course_lib.plugins import quick_attention  # noqa: E402


@cache
def registered() -> tuple[Any, Any]:
    """The plugin's definition and its creator."""
    registry = Registry()
    trt.get_plugin_registry = lambda: registry
    return quick_attention(trt, PTX), registry.get_creator("CourseAttention", "1", "course")


def make(heads: int) -> Any:
    fields = trt.PluginFieldCollection([trt.PluginField("heads", np.array([heads], np.int32), trt.PluginFieldType.INT32)])
    request = trt.QuickPluginCreationRequest.STRICT_AOT
    return registered()[1].create_plugin("CourseAttention", "course", fields, trt.TensorRTPhase.BUILD, request)


def shape_of(heads: int) -> list[Expression]:
    names = ("batch", "sequence")
    return [*(Expression(operator.itemgetter(name)) for name in names), ExpressionBuilder().constant(heads * 3 * 64)]


def built(heads: int) -> tuple[Any, list[Expression], Any, Arguments]:
    """A plugin after the builder's questions, its output's shape, its launch and its arguments."""
    plugin, tensors = make(heads), [dynamic(HALF), dynamic(HALF)]
    assert plugin.get_output_data_types([HALF], [3]) == [HALF]
    (shape,) = plugin.get_output_shapes([shape_of(heads)], [], ExpressionBuilder())
    plugin.get_supported_format_combinations(tensors, 1)
    plugin.configure_plugin(tensors[:1], tensors[1:])
    plugin.set_tactic(0)
    launch, arguments = SimpleNamespace(), Arguments()
    plugin.get_launch_params([shape_of(heads)], tensors, 1, launch, arguments, ExpressionBuilder())
    return plugin, shape, launch, arguments


def check_names() -> None:
    definition, creator = registered()
    assert definition.plugin_id == "course::CourseAttention" and definition.num_outputs == 1
    assert definition.input_tensor_names == ["qkv"] and list(definition.input_attrs) == ["heads"]
    assert (creator.name, creator.plugin_version, creator.plugin_namespace) == ("CourseAttention", "1", "course")
    assert definition.impl_func is None, "nothing of it runs in Python"


def check_a_network_can_call_it() -> None:
    """As `INetworkDefinition.add_plugin` does with ``aot=True``."""
    definition, tensor = registered()[0], trt.ITensor.__new__(trt.ITensor)
    inputs, shapes, plugin = definition(tensor, heads=np.array([12], np.int32))(trt.QuickPluginCreationRequest.STRICT_AOT)
    assert inputs == [tensor] and shapes == [] and isinstance(plugin, trt.IPluginV3QuickAOTBuild)
    assert plugin.attrs["heads"].tolist() == [12]
    rejected(lambda: definition(tensor, heads=12), ValueError, "heads")


def check_the_outputs_shape() -> None:
    for batch, sequence, heads in GRIDS:
        shape = built(heads)[1]
        assert [one.at({"batch": batch, "sequence": sequence}) for one in shape] == [batch, sequence, heads * 64]


def check_other_inputs_are_rejected() -> None:
    width, size = ExpressionBuilder().constant(12 * 3 * 32), Expression(operator.itemgetter("size"))
    for shape in ([size, size, width], [size, size, size], [size, size, size, shape_of(12)[2]]):
        plugin = make(12)
        plugin.get_output_data_types([HALF], [len(shape)])
        question = lambda: plugin.get_output_shapes([shape], [], ExpressionBuilder())  # noqa: B023, E731
        rejected(question, ValueError, "(batch, sequence, 2304) for 12 heads")


def check_one_format_is_offered() -> None:
    plugin = make(12)
    plugin.get_output_data_types([HALF], [3])
    plugin.get_output_shapes([shape_of(12)], [], ExpressionBuilder())
    offered = plugin.get_supported_format_combinations([dynamic(HALF), dynamic(HALF)], 1)
    assert [(one.type, one.format) for one in offered] == [(HALF, LINEAR)] * 2


def check_the_launch_follows_the_shape() -> None:
    for (batch, sequence, heads), grid in GRIDS.items():
        launch = built(heads)[2]
        sizes = {"batch": batch, "sequence": sequence}
        names = [f"{part}_{axis}" for part in ("grid", "block") for axis in "xyz"]
        found = [getattr(launch, name).expr.at(sizes) for name in (*names, "shared_mem")]
        assert found == [*grid, *BLOCK, SHARED_BYTES], (batch, sequence, heads)
        assert all(getattr(launch, name).dtype == trt.PluginArgDataType.INT32 for name in names)


def check_the_kernel_and_its_numbers() -> None:
    plugin, _, _, arguments = built(12)
    for one in (plugin, plugin.clone()):
        name, code = one.get_kernel([described((2, 5, 2304), HALF)], [described((2, 5, 768), HALF)])
        assert (name, bytes(code)) == ("attentionKernel", PTX.encode())
    assert arguments.nbSymExprs == 2 == len(arguments)
    assert [arguments[i].expr.at({"batch": 2, "sequence": 197}) for i in range(2)] == [197, 12]
    assert {(arguments[i].type, arguments[i].dtype) for i in range(2)} == {(trt.PluginArgType.INT, trt.PluginArgDataType.INT32)}


if __name__ == "__main__":
    report(globals())
