from __future__ import annotations

import pytest

from docs.make_tables import parse_signatures


@pytest.mark.parametrize(
    ("doc", "parameters", "returns"),
    [
        ("f() -> None", [], "None"),
        ("f(self: tensorrt_bindings.tensorrt.Dims) -> int\n\n    Length.", [], "int"),
        ("set(self: a.B, name: str, memory: typing.SupportsInt) -> bool", [["name", "str"], ["memory", "SupportsInt"]], "bool"),
        ("f(x: tuple[collections.abc.Sequence[int], A] = (1, 2)) -> A", [["x", "tuple[Sequence[int], A]", "(1, 2)"]], "A"),
        ("f(arg0: nvinfer1::v_1_0::IGpuAllocator) -> nvonnxparser::IParserError", [["arg0", "IGpuAllocator"]], "IParserError"),
        (
            "f(s: tensorrt_rtx_bindings.tensorrt_rtx.S = <S.STATIC: 0>, w: W = <a.W object at 0x7f1> , path: str = None) -> X",
            [["s", "S", "<S.STATIC: 0>"], ["w", "W", "<a.W object>"], ["path", "str", "None"]],
            "X",
        ),
        ("f(call: Callable[[int], str]) -> detail::str<a>", [["call", "Callable[[int], str]"]], "detail::str<a>"),
        ("nptype(trt_type)", [["trt_type", ""]], ""),
        ("common_exit(this, exc_type, traceback=None)", [["exc_type", ""], ["traceback", "", "None"]], ""),
    ],
)  # fmt: skip
def test_a_signature_is_taken_apart(doc: str, parameters: list[list[str]], returns: str) -> None:
    assert parse_signatures(doc) == [{"parameters": parameters, "returns": returns}]


def test_every_overload_is_read() -> None:
    doc = "f(*args, **kwargs)\nOverloaded function.\n\n1. f(self: A, x: tuple) -> bool\n\n\n    Text.\n\n2. f(self: A, x: list) -> bool\n"
    assert [one["parameters"] for one in parse_signatures(doc)] == [[["x", "tuple"]], [["x", "list"]]]


@pytest.mark.parametrize(
    "doc",
    ["", "Initialize self.  See help(type(self)) for accurate signature.", "f(", "f", "f(a: list[int) -> x", "Dict of (x)"],
)
def test_text_without_a_signature_gives_none(doc: str) -> None:
    assert parse_signatures(doc) == []
