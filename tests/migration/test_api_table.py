from __future__ import annotations

import pytest

from course_lib.migration.tables.api_table import ApiTable, Parameter, Signature


def test_a_method_has_its_overloads() -> None:
    table = ApiTable.load("11.4")
    parameters = (Parameter("name", "str"), Parameter("memory", "SupportsInt"))
    assert table.signature("IExecutionContext.set_tensor_address") == (Signature(parameters, "bool"),)
    shapes = [overload.parameters[1].type for overload in table.signature("IExecutionContext.set_input_shape")]
    assert shapes == ["tuple", "list", "Dims"]
    assert table.signature("Builder.create_network")[0].parameters == (Parameter("flags", "SupportsInt", "0"),)
    assert table.signature("volume") and table.signature("nothing") == table.signature("Builder.nothing") == ()


def test_properties_tell_how_they_may_be_used() -> None:
    table = ApiTable.load("10.16")
    assert table.access("IExecutionContext.device_memory") == "w"
    assert table.access("IExecutionContext.profiler") == "rw"
    assert table.access("ICudaEngine.num_layers") == "r"
    assert table.access("ICudaEngine.serialize") == table.access("Nothing.name") == ""


def test_names_of_every_kind_are_found() -> None:
    table = ApiTable.load("11.4")
    for name in (
        *("Runtime", "DataType", "DataType.FLOAT", "DataType.itemsize", "ILogger.Severity", "ILogger.Severity.ERROR"),
        *("Logger.ERROR", "Logger.Severity", "Logger.min_severity", "float32", "nptype", "Dims.MAX_DIMS"),
    ):
        assert table.has(name), name
    for name in ("", "Runtim", "Runtime.", "runtime", "DataType.float", "float32.FLOAT", "Runtime.deserialize", "a.b.c"):
        assert not table.has(name), name


def test_enums_have_the_numbers_of_the_bindings() -> None:
    table = ApiTable.load("11.4")
    assert table.enum("TacticSource") == {"EDGE_MASK_CONVOLUTIONS": 0, "JIT_CONVOLUTIONS": 1} and table.enum("Nothing") == {}
    assert table.values()["float16"] == "DataType.HALF" and "nptype" in table.functions()


def test_an_unknown_version_is_named() -> None:
    with pytest.raises(ValueError, match=r"no table of TensorRT '9\.0'"):
        ApiTable.load("9.0")
