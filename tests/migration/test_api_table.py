import pytest

from course_lib.migration.tables.api_table import ApiTable, Parameter, Signature
from docs.make_tables import parse_signatures


def test_a_method_has_its_overloads() -> None:
    table = ApiTable.load("11.4")
    parameters = (Parameter("name", "str"), Parameter("memory", "SupportsInt"))
    assert table.signature("IExecutionContext.set_tensor_address") == (Signature(parameters, "bool"),)
    shapes = [overload.parameters[1].type for overload in table.signature("IExecutionContext.set_input_shape")]
    assert shapes == ["tuple", "list", "Dims"]
    assert table.signature("Builder.create_network")[0].parameters == (Parameter("flags", "SupportsInt", "0"),)
    assert table.signature("volume") and table.signature("nothing") == table.signature("Builder.nothing") == ()


def test_properties_tell_how_they_may_be_used_and_enums_have_the_numbers_of_the_bindings() -> None:
    table = ApiTable.load("10.16")
    names = ("IExecutionContext.device_memory", "IExecutionContext.profiler", "ICudaEngine.num_layers", "ICudaEngine.serialize")
    assert [table.access(name) for name in (*names, "Nothing.name")] == ["w", "rw", "r", "", ""]
    table = ApiTable.load("11.4")
    assert table.enum("TacticSource") == {"EDGE_MASK_CONVOLUTIONS": 0, "JIT_CONVOLUTIONS": 1} and table.enum("Nothing") == {}
    assert table.values()["float16"] == "DataType.HALF" and "nptype" in table.functions()
    with pytest.raises(ValueError, match=r"no table of TensorRT '9\.0'"):
        ApiTable.load("9.0")


def test_names_of_every_kind_are_found() -> None:
    table = ApiTable.load("11.4")
    for name in (
        *("Runtime", "DataType", "DataType.FLOAT", "DataType.itemsize", "ILogger.Severity", "ILogger.Severity.ERROR"),
        *("Logger.ERROR", "Logger.Severity", "Logger.min_severity", "float32", "nptype", "Dims.MAX_DIMS"),
    ):
        assert table.has(name), name
    for name in ("", "Runtim", "Runtime.", "runtime", "DataType.float", "float32.FLOAT", "Runtime.deserialize", "a.b.c"):
        assert not table.has(name), name


@pytest.mark.parametrize(
    ("doc", "parameters", "returns"),
    [
        ("f() -> None", [], "None"),
        ("f(self: tensorrt_bindings.tensorrt.Dims) -> int\n\n    Length.", [], "int"),
        ("f(x: tuple[collections.abc.Sequence[int], A] = (1, 2)) -> A", [["x", "tuple[Sequence[int], A]", "(1, 2)"]], "A"),
        ("f(arg0: nvinfer1::v_1_0::IGpuAllocator) -> nvonnxparser::IParserError", [["arg0", "IGpuAllocator"]], "IParserError"),
        (
            "f(s: tensorrt_rtx_bindings.tensorrt_rtx.S = <S.STATIC: 0>, w: W = <a.W object at 0x7f1> , path: str = None) -> X",
            [["s", "S", "<S.STATIC: 0>"], ["w", "W", "<a.W object>"], ["path", "str", "None"]],
            "X",
        ),
        ("f(call: Callable[[int], str]) -> detail::str<a>", [["call", "Callable[[int], str]"]], "detail::str<a>"),
        ("common_exit(this, exc_type, traceback=None)", [["exc_type", ""], ["traceback", "", "None"]], ""),
    ],
)  # fmt: skip
def test_a_signature_is_taken_apart(doc: str, parameters: list[list[str]], returns: str) -> None:
    assert parse_signatures(doc) == [{"parameters": parameters, "returns": returns}]


def test_every_overload_is_read_and_text_without_a_signature_gives_none() -> None:
    doc = "f(*args, **kwargs)\nOverloaded function.\n\n1. f(self: A, x: tuple) -> bool\n\n\n    Text.\n\n2. f(self: A, x: list) -> bool\n"
    assert [one["parameters"] for one in parse_signatures(doc)] == [[["x", "tuple"]], [["x", "list"]]]
    for other in (
        "",
        "Initialize self.  See help(type(self)) for accurate signature.",
        "f(",
        "f(a: list[int) -> x",
        "Dict of (x)",
    ):
        assert parse_signatures(other) == []
