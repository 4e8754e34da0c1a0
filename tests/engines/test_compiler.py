"""What real compilers make of a model and a recipe, and what they say when they reject."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from course_lib import engines
from course_lib.engines import Compiler, Plan
from course_lib.engines.backends.tensorrt.builder import _advise
from course_lib.errors import BackendUnavailable, BuildError, CourseError, EngineError, PrecisionError
from course_lib.recipe import Profile, Recipe

RTX = "tensorrt_rtx"


def _rejected(kind: type[CourseError], words: list[str], model: Any, recipe: Recipe | None = None, **options: Any) -> str:
    """The one line with which a build was rejected."""
    options.setdefault("backend", RTX)
    with pytest.raises(kind) as raised:
        engines.build(model, recipe, **options)
    message = str(raised.value)
    assert type(raised.value) is kind
    assert len(message.splitlines()) == 1 and len(message) < 1000
    assert [word for word in words if word not in message] == [], message
    return message


def _profile(**inputs: dict[str, Any]) -> Recipe:
    return Recipe(profiles=(Profile(inputs),))


def _range(*shape: int) -> dict[str, Any]:
    return {"min": (1, *shape), "opt": (8, *shape), "max": (32, *shape)}


# ---- what is built


def test_21_nodes_of_the_classifier_become_13_float_kernels(wide_onnx: Path, service_recipe: Recipe) -> None:
    plan = engines.build(wide_onnx, service_recipe, backend=RTX)
    assert len(plan.layers.operators) == 21 and len(plan.layers.kernels) == 13
    assert plan.layers.dtype_counts() == {"Float": 13}
    block = next(kernel for kernel in plan.layers.kernels if kernel.onnx_nodes and "/block1/conv2" in kernel.onnx_nodes[0])
    assert sorted(plan.layers.fused_operators(block).split(" + ")) == ["Add", "Conv", "Relu"]


def test_a_plan_says_where_it_comes_from(small_onnx: Path, small_plan: Plan, service_recipe: Recipe) -> None:
    import hashlib

    assert small_plan.backend == RTX and small_plan.version.startswith("1.7")
    assert small_plan.onnx_sha256 == hashlib.sha256(small_onnx.read_bytes()).hexdigest()
    assert small_plan.recipe == service_recipe.wire() and small_plan.targets == ("sm89",)
    assert len(small_plan.data) > 100_000 and 0 < small_plan.build_seconds < 60
    assert any("compiled for sm89" in note for note in small_plan.notes)


def test_on_a_gpu_that_tensorrt_for_rtx_does_not_support_it_compiles_for_another_and_says_so(
    small_onnx: Path, service_recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorrt_rtx

    from course_lib.engines.backends.tensorrt.builder import compile_plan
    from course_lib.engines.cuda import driver

    for here, target, said in (("sm90", "sm89", "does not support the GPU here (sm90)"), ("sm120", "sm120", "")):
        monkeypatch.setattr(driver, "capability", lambda here=here: here)
        plan = compile_plan(tensorrt_rtx, RTX, small_onnx, service_recipe.wire(), {})
        assert plan.targets == (target,) and plan.layers.kernels
        assert [note for note in plan.notes if "compiled for" in note] == [note for note in plan.notes if said and said in note]


def test_half_precision_is_proved_on_the_layers(wide_fp16_onnx: Path, service_recipe: Recipe) -> None:
    plan = engines.build(wide_fp16_onnx, service_recipe.model_copy(update={"precision": "fp16"}), backend=RTX)
    assert plan.layers.dtype_counts()["Half"] >= 12
    convolutions = [kernel for kernel in plan.layers.kernels if kernel.kind == "correlation"]
    assert convolutions and all("Half" in kernel.dtypes for kernel in convolutions)


RESNET = _profile(image={"min": (1, 3, 224, 224), "opt": (1, 3, 224, 224), "max": (32, 3, 224, 224)})


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_the_x_ray_of_resnet50(precision: str, request: pytest.FixtureRequest) -> None:
    model = request.getfixturevalue("resnet50_onnx" if precision == "fp32" else "resnet50_fp16_onnx")
    table = engines.build(model, RESNET.model_copy(update={"precision": precision}), backend=RTX).layers
    assert 115 <= len(table.operators) <= 125 and 50 <= len(table.kernels) <= 70

    operators = {kernel: Counter(table.operators[node] for node in kernel.onnx_nodes) for kernel in table.kernels}
    convolutions = [kernel for kernel in table.kernels if kernel.kind == "correlation"]
    assert len(convolutions) >= (53 if precision == "fp32" else 40)
    alone = [kernel for kernel in convolutions if operators[kernel] == {"Conv": 1}]
    # the last convolution of a stage's first block runs beside the shortcut's, which takes the Add and the Relu of both
    assert len(alone) <= 4 and all("/0/conv3" in kernel.onnx_nodes[0] for kernel in alone)
    for kernel in convolutions:
        if kernel not in alone:
            assert operators[kernel] in ({"Conv": 1, "Relu": 1}, {"Conv": 1, "Relu": 1, "Add": 1}), kernel.onnx_nodes
    assert all("Half" in kernel.dtypes for kernel in convolutions) == (precision == "fp16")

    fused = Counter(node for kernel in table.kernels for node in kernel.onnx_nodes)
    for kind in ("Conv", "Relu", "Add", "MaxPool", "Gemm"):
        missing = {node for node, operator in table.operators.items() if operator == kind} - fused.keys()
        assert not missing, f"no kernel owns up to {missing}"


def test_a_model_in_memory_and_a_file_give_the_same_layers(small_onnx: Path, small_plan: Plan, service_recipe: Recipe) -> None:
    plan = engines.build(onnx.load(small_onnx), service_recipe, backend=RTX)
    assert [kernel.onnx_nodes for kernel in plan.layers.kernels] == [k.onnx_nodes for k in small_plan.layers.kernels]


def test_several_targets_in_one_plan(small_onnx: Path, small_plan: Plan, service_recipe: Recipe) -> None:
    targets = ("sm86", "sm89", "sm120")
    plan = engines.build(small_onnx, service_recipe.model_copy(update={"targets": targets}), backend=RTX)
    assert plan.targets == targets and len(plan.layers.kernels) == 13
    assert len(plan.data) > len(small_plan.data)
    assert not any("compiled for" in note for note in plan.notes)


def test_every_profile_has_its_kernels(small_onnx: Path, service_recipe: Recipe) -> None:
    plan = engines.build(small_onnx, Recipe(profiles=service_recipe.profiles * 2), backend=RTX)
    assert len(plan.layers.kernels) == 26


def test_fixed_shapes_need_no_recipe(one_node: Callable[..., Any]) -> None:
    assert len(engines.build(one_node("Relu", output=[4, 4]), backend=RTX).layers.kernels) == 1


# ---- what is rejected


@pytest.mark.parametrize("backend", [RTX, "onnxruntime"])
@pytest.mark.parametrize(
    "content", [b"", b"hello\n" * 99, b"\x00" * 500, bytes(range(256)) * 9], ids=["empty", "text", "zeros", "bytes"]
)
def test_a_file_that_is_not_onnx(content: bytes, backend: str, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    _rejected(BuildError, ["not an ONNX model"], tmp_path / "model.onnx", backend=backend)


def test_an_unsupported_operator(one_node: Callable[..., Any]) -> None:
    _rejected(BuildError, ["'Det'", "'the_node'", "not supported"], one_node("Det", name="the_node", output=[]))


def test_an_unknown_custom_operator(one_node: Callable[..., Any]) -> None:
    model = one_node("Rope", name="the_node", domain="acme", output=[4, 4])
    _rejected(BuildError, ["'Rope'", "'the_node'", "plugin"], model)
    _rejected(BuildError, ["Rope", "onnxruntime"], model, backend="onnxruntime")


def test_no_profile(small_onnx: Path) -> None:
    _rejected(BuildError, ["'image'", "N, 1, 32, 32", "[[profile]]"], small_onnx)


def test_an_unknown_input_name(small_onnx: Path) -> None:
    _rejected(BuildError, ["profile 0", "'pixels'", "'image'"], small_onnx, _profile(pixels=_range(1, 32, 32)))


def test_a_wrong_rank(small_onnx: Path) -> None:
    _rejected(BuildError, ["profile 0", "'image'", "4 dimensions", "gives 3"], small_onnx, _profile(image=_range(32, 32)))


def test_a_wrong_static_dimension(small_onnx: Path) -> None:
    words = ["profile 0", "dimension 1", "'image'", "always 1", "3"]
    _rejected(BuildError, words, small_onnx, _profile(image=_range(3, 32, 32)))


def test_one_of_two_dynamic_inputs_is_missing(one_node: Callable[..., Any]) -> None:
    model = one_node("Add", [["n", 4], ["n", 4]], output=["n", 4])
    assert engines.build(model, _profile(x0=_range(4), x1=_range(4)), backend=RTX).layers.kernels
    _rejected(BuildError, ["profile 0", "'x1'"], model, _profile(x0=_range(4)))


def test_a_workspace_that_is_too_small_for_resnet50(resnet50_onnx: Path) -> None:
    _rejected(BuildError, ["workspace", "`workspace_mib`"], resnet50_onnx, RESNET.model_copy(update={"workspace_mib": 1}))


def test_an_unknown_flag(small_onnx: Path, service_recipe: Recipe) -> None:
    recipe = service_recipe.model_copy(update={"flags": ("faster",)})
    _rejected(BuildError, ["'faster'", "tf32", "sparse_weights"], small_onnx, recipe)


def test_a_device_that_tensorrt_for_rtx_does_not_know(small_onnx: Path, service_recipe: Recipe) -> None:
    recipe = service_recipe.model_copy(update={"targets": ("sm89", "sm90")})
    _rejected(BuildError, ["sm90", "sm89", "sm120"], small_onnx, recipe)


def test_half_precision_promised_for_a_float_graph(wide_onnx: Path, service_recipe: Recipe) -> None:
    recipe = service_recipe.model_copy(update={"precision": "fp16"})
    _rejected(PrecisionError, ["fp16", "none of 13 kernels", "FP16"], wide_onnx, recipe)


def test_float_promised_for_a_half_precision_graph(wide_fp16_onnx: Path, service_recipe: Recipe) -> None:
    _rejected(PrecisionError, ["fp32", "of 13 kernels", "FP16", "/stem"], wide_fp16_onnx, service_recipe)


def test_an_unknown_backend(small_onnx: Path) -> None:
    _rejected(BackendUnavailable, ["'tensorflow'", "onnxruntime"], small_onnx, backend="tensorflow")


@pytest.mark.skipif(bool(engines.registry.availability("tensorrt").version), reason="TensorRT is installed here")
def test_a_backend_that_is_not_installed(small_onnx: Path, service_recipe: Recipe) -> None:
    _rejected(BackendUnavailable, ["tensorrt is not installed", "pip install"], small_onnx, service_recipe, backend="tensorrt")


def test_a_time_limit(small_onnx: Path, service_recipe: Recipe) -> None:
    started = time.monotonic()
    _rejected(BuildError, ["did not finish", "0.05 s"], small_onnx, service_recipe, time_limit_s=0.05)
    assert time.monotonic() - started < 60, "it went on for as long as the build"


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV", "SIGKILL"])
def test_a_compiler_that_dies_is_named_by_its_signal(
    name: str, small_onnx: Path, service_recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONFAULTHANDLER", raising=False)  # whose words would be the last
    code = f"import os, sys; print('a last word', file=sys.stderr, flush=True); os.kill(os.getpid(), {getattr(signal, name).value})"
    words = ["did not finish", name, "a last word"]
    _rejected(BuildError, words, small_onnx, service_recipe, launcher=lambda command: [sys.executable, "-c", code])


# ---- several models in one process


def test_one_process_compiles_several_models(
    small_onnx: Path, small_plan: Plan, one_node: Callable[..., Any], service_recipe: Recipe
) -> None:
    with Compiler(RTX) as compiler:
        assert compiler.version() == small_plan.version
        other = compiler.build(one_node("Relu"))
        process = compiler._worker
        with pytest.raises(BuildError, match=r"no profile|optimization profile"):
            compiler.build(small_onnx)
        plan = compiler.build(small_onnx, service_recipe)
        assert process is not None and compiler._worker is process
    assert plan.layers == small_plan.layers and len(other.layers.kernels) == 1


def test_after_a_build_that_took_too_long_the_next_has_a_process_of_its_own(small_onnx: Path, service_recipe: Recipe) -> None:
    with Compiler(RTX) as compiler:
        with pytest.raises(BuildError, match="did not finish"):
            compiler.build(small_onnx, service_recipe, time_limit_s=0.01)
        assert compiler.build(small_onnx, service_recipe).layers.kernels


# ---- names that pretend to be a part of the layer table


def _gemm(weight: str) -> Any:
    """A float32 network whose one weight has the given name, which the layer table prints among the constants."""
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", weight], ["y"], name="gemm")],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((8, 4), np.float32), weight)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize(
    "name", ["x, Datatype: Half", "two\nlines", "a [b]", "a, Datatype: Half_output_0", "a\u2028b\x0b["], ids=ascii
)
def test_forged_names_are_rejected(name: str, one_node: Callable[..., Any]) -> None:
    _rejected(BuildError, ["in the graph", "rename"], one_node("Relu", name=name, output=[4, 4]))


@pytest.mark.parametrize("suffix", ["", "_output", "_output_0"])
def test_the_name_of_a_weight_does_not_turn_float_into_half(suffix: str) -> None:
    """The row of the one kernel would read "Datatype: Half" within the name of its constant."""
    name = f"x, Dimensions: [8,4], Strides: [4,1], Datatype: Half, Format: y{suffix}"
    with pytest.raises(BuildError):
        engines.build(_gemm(name), Recipe(precision="fp16"), backend=RTX)


# ---- ONNX Runtime


@pytest.fixture(scope="module")
def engine(small_ort_plan: Plan) -> Any:
    return engines.load(small_ort_plan)


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_onnxruntime_agrees_with_torch(batch: int, engine: Any) -> None:
    from course_lib.models import digits

    images = digits("test").images[:batch]
    eager = engines.load(engines.ModelSource("course_lib.models:classifier", ("small",)))
    want, have = eager.infer({"image": images})["logits"], engine.infer({"image": images})["logits"]
    assert have.dtype == np.float32 and have.shape == (batch, 10)
    assert np.abs(have - want).max() < 1e-4 * np.abs(want).max()


def test_onnxruntime_describes_its_engine(engine: Any) -> None:
    assert engine.backend == "onnxruntime"
    assert engine.inputs == (engines.TensorInfo("image", (-1, 1, 32, 32), "float32"),)
    assert engine.outputs == (engines.TensorInfo("logits", (-1, 10), "float32"),)
    assert 0 < engine.time_ms({"image": np.zeros((1, 1, 32, 32), np.float32)}) < 1000


def _image(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({"image": _image(33, 1, 32, 32)}, ["33x1x32x32", "'image'", "profile", "1x1x32x32 to 32x1x32x32"]),
        ({"image": _image(0, 1, 32, 32)}, ["0x1x32x32", "profile"]),
        ({"image": _image(1, 3, 32, 32)}, ["Nx1x32x32", "1x3x32x32"]),
        ({"image": _image(1, 32, 32)}, ["Nx1x32x32", "1x32x32"]),
        ({"image": _image(1, 1, 32, 32, dtype="float64")}, ["'image'", "float32", "float64"]),
        ({"image": _image(1, 1, 32, 32, dtype="complex64")}, ["'image'", "float32", "complex64"]),
        ({}, ["missing input image"]),
        ({"pixels": _image(1, 1, 32, 32)}, ["missing input image"]),
        ({"image": _image(1, 1, 32, 32), "pixels": _image(1)}, ["unknown input pixels", "image"]),
    ],
)
def test_onnxruntime_rejects_what_does_not_fit(feeds: dict[str, np.ndarray], words: list[str], engine: Any) -> None:
    for call in (engine.infer, engine.time_ms):
        with pytest.raises(EngineError) as raised:
            call(feeds)
        assert len(str(raised.value).splitlines()) == 1
        assert [word for word in words if word not in str(raised.value)] == []


@pytest.fixture
def split_model(small_onnx: Path, tmp_path: Path) -> Path:
    """The small classifier with its weights in a file beside it."""
    path = tmp_path / "split.onnx"
    onnx.save(onnx.load(small_onnx), path, save_as_external_data=True, location="split.data", size_threshold=0)
    return path


def test_weights_beside_the_model_end_up_in_the_plan(split_model: Path, small_ort_plan: Plan, service_recipe: Recipe) -> None:
    plan = engines.build(split_model, service_recipe, backend="onnxruntime")
    (split_model.parent / "split.data").unlink()
    image = {"image": np.random.default_rng(0).random((3, 1, 32, 32), dtype=np.float32)}
    assert np.array_equal(engines.load(plan).infer(image)["logits"], engines.load(small_ort_plan).infer(image)["logits"])


def test_weights_that_are_missing_are_one_line(split_model: Path, service_recipe: Recipe) -> None:
    (split_model.parent / "split.data").unlink()
    _rejected(BuildError, ["weights", "split.data"], split_model, service_recipe, backend="onnxruntime")


def test_a_gpu_without_memory_is_not_called_a_small_workspace() -> None:
    """On a full GPU; the first line as issue 3882 of NVIDIA/TensorRT has it, from version 8.5."""
    out_of_memory = "2: [virtualMemoryBuffer.cpp::resizePhysical::145] Error Code 2: OutOfMemory (no further information)"
    no_tactic = "10: Could not find any implementation for node {ForeignNode[a...b]} due to insufficient workspace."
    assert "GPU ran out of memory" in _advise([out_of_memory, no_tactic])
    assert "raise `workspace_mib`" in _advise([no_tactic])
