"""What a rejected model's author reads: the cause first, then one action, in every backend and without the library's own noise."""

from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from course_lib import engines
from course_lib._util.model_file import open_model
from course_lib.engines import Compiler, Plan
from course_lib.engines.backends.tensorrt.builder import _advise, _rejection, parser_reason
from course_lib.errors import ZERO_POINT, BuildError, CourseError, EngineError, PrecisionError
from course_lib.recipe import Profile, Recipe
from tests.one_line import one_line

RTX, ORT, OV = "tensorrt_rtx", "onnxruntime", "openvino"


def _installed(backend: str) -> bool:
    try:
        return bool(version(backend))
    except PackageNotFoundError:
        return False


BACKENDS = [RTX, ORT, pytest.param(OV, marks=pytest.mark.skipif(not _installed(OV), reason="openvino is not installed"))]


@cache
def _compiler(backend: str) -> Compiler:
    """One process for all builds of a backend; it ends with this one."""
    return Compiler(backend)


def _build(model: Any, recipe: Recipe | None = None, *, backend: str) -> Plan:
    return _compiler(backend).build(model, recipe)


def _model(graph: str, *, opset: int = 20, ir: int = 10) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: {ir}, opset_import: ["": {opset}]> graph {graph}')


def _rejected(call: Callable[[], object], *words: str, kind: type[CourseError] = BuildError) -> str:
    with one_line(kind, *words) as raised:
        call()
    message = str(raised.value)
    assert [noise for noise in (".cc:", ".cpp:", ".h:", "Assertion", "ONNXRuntimeError", "&&") if noise in message] == [], (
        message
    )
    return message


def _range(*shape: int) -> dict[str, Any]:
    return {"min": (1, *shape), "opt": (8, *shape), "max": (32, *shape)}


@pytest.mark.parametrize(
    ("model", "changed", "words"),
    [
        ("small_onnx", {"profiles": ()}, ["'image'", "N, 1, 32, 32", "[[profile]]"]),
        ("small_onnx", {"profiles": (Profile(pixels=_range(1, 32, 32)),)}, ["profile 0", "'pixels'", "'image'"]),
        ("small_onnx", {"profiles": (Profile(image=_range(32, 32)),)}, ["profile 0", "'image'", "4 dimensions", "gives 3"]),
        ("small_onnx", {"profiles": (Profile(image=_range(3, 32, 32)),)}, ["profile 0", "dimension 1", "always 1", "3"]),
        ("small_onnx", {"flags": ("faster",)}, ["'faster'", "tf32", "sparse_weights"]),
        ("small_onnx", {"targets": ("sm89", "sm90")}, ["sm90", "sm89", "sm120"]),
        ("small_onnx", {"precision": "fp16"}, ["fp16", "none of 13 kernels", "FP16"]),
        ("wide_fp16_onnx", {}, ["fp32", "of 13 kernels", "FP16", "/stem"]),
        ("resnet50_onnx", {"workspace_mib": 1, "profiles": (Profile(image=_range(3, 224, 224)),)}, ["`workspace_mib`"]),
    ],
)
def test_a_recipe_that_does_not_fit_the_model(
    model: str, changed: dict[str, Any], words: list[str], request: pytest.FixtureRequest, service_recipe: Recipe
) -> None:
    recipe = service_recipe.model_copy(update=changed)
    kind = PrecisionError if "FP16" in words else BuildError
    _rejected(lambda: _build(request.getfixturevalue(model), recipe, backend=RTX), *words, kind=kind)


def test_one_of_two_dynamic_inputs_is_missing(one_node: Callable[..., Any]) -> None:
    model = one_node("Add", [["n", 4], ["n", 4]], output=["n", 4])
    assert _build(model, Recipe(profiles=(Profile(x0=_range(4), x1=_range(4)),)), backend=RTX).layers.kernels
    _rejected(lambda: _build(model, Recipe(profiles=(Profile(x0=_range(4)),)), backend=RTX), "profile 0", "'x1'")


@pytest.mark.parametrize("backend", BACKENDS[:2])
@pytest.mark.parametrize(
    "content", [b"", b"hello\n" * 99, b"\x00" * 500, bytes(range(256)) * 9], ids=["empty", "text", "zeros", "bytes"]
)
def test_a_file_that_is_not_onnx(content: bytes, backend: str, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    _rejected(lambda: _build(tmp_path / "model.onnx", backend=backend), "not an ONNX model")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_operator_that_a_backend_does_not_have(backend: str, one_node: Callable[..., Any]) -> None:
    for operator, domain, words in (("Rope", "acme", "plugin"), ("Det", "", "not supported")):
        if backend != ORT or domain:  # ONNX Runtime has Det
            model = one_node(operator, name="the_node", domain=domain, output=[4, 4] if domain else [])
            _rejected(lambda model=model: _build(model, backend=backend), operator, *([words] if backend == RTX else ()))


@pytest.mark.parametrize(
    "name", ["x, Datatype: Half", "two\nlines", "a [b]", "a, Datatype: Half_output_0", "a\u2028b\x0b["], ids=ascii
)
def test_names_that_pretend_to_be_a_part_of_the_layer_table(name: str, one_node: Callable[..., Any]) -> None:
    _rejected(lambda: _build(one_node("Relu", name=name, output=[4, 4]), backend=RTX), "in the graph", "rename")


@pytest.mark.parametrize("suffix", ["", "_output", "_output_0"])
def test_the_name_of_a_weight_does_not_turn_float_into_half(suffix: str) -> None:
    """The row of the one kernel would read "Datatype: Half" within the name of its constant."""
    model = _model("(float[4, 8] x) => (float[4, 4] y) { y = Gemm(x, w) }")
    name = f"x, Dimensions: [8,4], Strides: [4,1], Datatype: Half, Format: y{suffix}"
    model.graph.node[0].input[1] = name
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((8, 4), np.float32), name))
    with pytest.raises(BuildError):
        _build(model, Recipe(precision="fp16"), backend=RTX)


def test_a_gpu_without_memory_is_not_called_a_small_workspace() -> None:
    """On a full GPU; the first line as issue 3882 of NVIDIA/TensorRT has it, from version 8.5."""
    out_of_memory = "2: [virtualMemoryBuffer.cpp::resizePhysical::145] Error Code 2: OutOfMemory (no further information)"
    no_tactic = "10: Could not find any implementation for node {ForeignNode[a...b]} due to insufficient workspace."
    assert "GPU ran out of memory" in _advise([out_of_memory, no_tactic])
    assert "raise `workspace_mib`" in _advise([no_tactic])


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        ("(float[2, 3, 4] X, float[4] W) => (float[2, 3, 4] Y, float[2, 3, 1] M) { Y, M = LayerNormalization(X, W) }",
         ["operator 'LayerNormalization'", "than 1 outputs", "remove the outputs"]),
        ("(float[2, 3] x, int64[1] axes) => (float[1, 1] y) { y = ReduceSum(x, axes) }",
         ["operator 'ReduceSum'", "Axis input must resolve to a build-time constant", "store this input in the file"]),
        ("(float[1, 4] x, float[5, 4] w) => (float[1, 4] y) { y = MatMul(x, w) }",
         ["operator 'MatMul'", "last dimension of input0 = 4", "change this node"]),
        ("(float[1, 4] x) => (float[1, 4] y) <float s = {0.1}, uint8 z = {128}> "
         "{ q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }",
         ["Non-zero zero point is not supported", "zero points of 0"]),
        ("(uint16[4] x) => (float[4] y) { y = Cast<to = 1>(x) }", ["input 'x'", "data type", "cast it to"]),
        ("(float[4] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }", ["'s'", "shape tensor", "constant"]),
    ],
)  # fmt: skip
def test_the_parsers_own_reason_for_operators_that_it_supports(graph: str, reason: list[str]) -> None:
    message = _rejected(lambda: _build(_model(graph), backend=RTX), *reason)
    assert "plugin" not in message and "DLA" not in message


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        ("false", ""),
        ('creator && "Plugin not found, are the plugin name, version, and namespace correct?"', "Plugin not found, are the plugin"),
        ("Assertion failed: (ctx->tensors().count(inputName)): Node input was not registered.", "Node input was not registered."),
        ('In node 3 (importPad): UNSUPPORTED_NODE: Assertion failed: inputs.at(1).is_weights() && "pads: 8.6"', "pads: 8.6"),
        ("Assertion failed: rank >= 2", "rank >= 2"),
        ("Invalid Node - /a\nITensor::getDimensions: Error Code 4: API Usage Error (/a: wrong. In v at /s/x.cpp:4)", "/a: wrong."),
    ],
)  # fmt: skip
def test_a_reason_has_no_condition_in_cpp(description: str, reason: str) -> None:
    """Descriptions as TensorRT 8.6, 10 and TensorRT for RTX 1.7 write them."""
    assert parser_reason(description).startswith(reason) and bool(parser_reason(description)) == bool(reason)


def test_a_zero_point_is_known_by_its_code() -> None:
    assert _rejection(["Non-zero zero point is not supported."]).code == ZERO_POINT


def test_onnxruntime_names_the_version_that_it_does_not_read() -> None:
    relu = "(float[4] x) => (float[4] y) { y = Relu(x) }"
    _rejected(lambda: _build(_model(relu, ir=99), backend=ORT), "model IR version: 99", "set `model.ir_version`")
    _rejected(lambda: _build(_model(relu, opset=99), backend=ORT), "opset 99 of ai.onnx", "export with a lower opset")
    _rejected(lambda: _build(_model("(float[4] x) => (float[4] y) { y = Relu(z) }"), backend=ORT), "'z'", "repair")


@pytest.mark.skipif(not _installed(OV), reason="openvino is not installed")
def test_openvino_says_why_a_conversion_failed() -> None:
    mixed = _model("(float[4] x, float16[4] h) => (float[4] y) { y = Add(x, h) }")
    _rejected(lambda: _build(mixed, backend=OV), "Add", "do not have the same element type", "repair")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ("(string[1] x, string[1] y) => (string[1] z) { z = StringConcat(x, y) }", ["input 'x'", "string tensor"]),
        ("(float[1] x) => (string[1] y) { y = Cast<to = 8>(x) }", ["output 'y'", "string tensor"]),
        ("(seq(float[N]) x, int64 i) => (float[N] y) { y = SequenceAt(x, i) }", ["input 'x'", "sequence"]),
        ("(float[1] x) => (seq(float[1]) y) { y = SequenceConstruct(x, x) }", ["output 'y'", "sequence"]),
        ("(optional(float[1]) x) => (float[1] y) { y = OptionalGetElement(x) }", ["input 'x'", "optional"]),
        ("(complex64[1] x) => (complex64[1] y) { y = Identity(x) }", ["input 'x'", "complex"]),
    ],
)
def test_values_that_are_not_tensors_of_real_numbers(graph: str, words: list[str], backend: str) -> None:
    _rejected(lambda: _build(_model(graph), backend=backend), *words, "not support", "Remove this part")


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_input_without_a_shape_is_not_taken_for_a_scalar(backend: str) -> None:
    _rejected(lambda: _build(_model("(float[] x) => (float[] y) { y = Relu(x) }"), backend=backend), "'x'", "no shape")


@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_a_scalar_input_runs(backend: str) -> None:
    plan = _build(_model("(float[2] x, float t) => (float[2] y) { y = Mul(x, t) }"), backend=backend)
    feeds = {"x": np.ones(2, np.float32), "t": np.array(3, np.float32)}
    assert engines.load(plan).infer(feeds)["y"].tolist() == [3, 3]


@pytest.mark.parametrize("dtype", ["int16", "uint16", "uint32", "uint64"])
def test_every_integer_of_numpy_is_an_input_of_onnxruntime(dtype: str) -> None:
    plan = _build(_model(f"({dtype}[2] x) => (float[2] y) {{ y = Cast<to = 1>(x) }}"), backend=ORT)
    assert engines.load(plan).infer({"x": np.array([1, 2], dtype)})["y"].tolist() == [1, 2]


def test_a_type_that_numpy_does_not_have() -> None:
    plan = _build(_model("(bfloat16[2] x) => (float[2] y) { y = Cast<to = 1>(x) }"), backend=ORT)
    _rejected(lambda: engines.load(plan), "'x'", "bfloat16", "numpy", kind=EngineError)


# ---- weights in other files


@pytest.fixture
def split(tmp_path: Path) -> Path:
    """A model whose weights are in the file ``data/w.bin`` next to it."""
    model = _model("(float[64] x) => (float[64] y) <float[64] B = {1}> { y = Add(x, B) }")
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.ones(64, np.float32), "B"))
    (tmp_path / "data").mkdir()
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="data/w.bin", size_threshold=0)
    return tmp_path / "m.onnx"


@pytest.mark.parametrize("backend", BACKENDS)
def test_missing_weights_are_named(split: Path, backend: str) -> None:
    _build(split, backend=backend)
    (split.parent / "data" / "w.bin").write_bytes(b"short")
    _rejected(lambda: _build(split, backend=backend), "'B'", "'data/w.bin'", "5 bytes", "copy it again")
    (split.parent / "data" / "w.bin").unlink()
    _rejected(lambda: _build(split, backend=backend), "'B'", "'data/w.bin'", "missing", "copy it there")
    _rejected(lambda: open_model(split), str(split), "'data/w.bin'", "missing")


def test_where_no_onnx_package_is_the_log_names_the_file(monkeypatch: pytest.MonkeyPatch, split: Path) -> None:
    """TensorRT 8.6 is compiled with in another interpreter, which has only numpy and TensorRT."""
    (split.parent / "data" / "w.bin").unlink()
    monkeypatch.setattr(engines.registry, "described", lambda _: None)
    recipe: dict[str, Any] = {}
    _rejected(lambda: engines.registry.compile_plan(RTX, split, recipe), "data/w.bin", "copy this file there")
