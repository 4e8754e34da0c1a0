"""What real compilers make of a model and a recipe, and what they say when they reject."""

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
from course_lib.errors import BackendUnavailable, BuildError, EngineError
from course_lib.recipe import Profile, Recipe
from tests.one_line import one_line

RTX = "tensorrt_rtx"


# ---- what is built


def test_21_nodes_of_the_classifier_become_13_float_kernels(rtx: Compiler, wide_onnx: Path, service_recipe: Recipe) -> None:
    plan = rtx.build(wide_onnx, service_recipe)
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


RESNET = Recipe(profiles=(Profile(image={"min": (1, 3, 224, 224), "opt": (1, 3, 224, 224), "max": (32, 3, 224, 224)}),))


def test_the_x_ray_of_resnet50(rtx: Compiler, resnet50_onnx: Path) -> None:
    table = rtx.build(resnet50_onnx, RESNET).layers
    assert 115 <= len(table.operators) <= 125 and 50 <= len(table.kernels) <= 70

    operators = {kernel: Counter(table.operators[node] for node in kernel.onnx_nodes) for kernel in table.kernels}
    convolutions = [kernel for kernel in table.kernels if kernel.kind == "correlation"]
    assert len(convolutions) >= 53 and not any("Half" in kernel.dtypes for kernel in convolutions)
    alone = [kernel for kernel in convolutions if operators[kernel] == {"Conv": 1}]
    # the last convolution of a stage's first block runs beside the shortcut's, which takes the Add and the Relu of both
    assert len(alone) <= 4 and all("/0/conv3" in kernel.onnx_nodes[0] for kernel in alone)
    for kernel in convolutions:
        if kernel not in alone:
            assert operators[kernel] in ({"Conv": 1, "Relu": 1}, {"Conv": 1, "Relu": 1, "Add": 1}), kernel.onnx_nodes

    fused = Counter(node for kernel in table.kernels for node in kernel.onnx_nodes)
    for kind in ("Conv", "Relu", "Add", "MaxPool", "Gemm"):
        missing = {node for node, operator in table.operators.items() if operator == kind} - fused.keys()
        assert not missing, f"no kernel owns up to {missing}"


def test_several_targets_in_one_plan(rtx: Compiler, small_onnx: Path, small_plan: Plan, service_recipe: Recipe) -> None:
    targets = ("sm86", "sm89", "sm120")
    plan = rtx.build(small_onnx, service_recipe.model_copy(update={"targets": targets}))
    assert plan.targets == targets and len(plan.layers.kernels) == 13
    assert len(plan.data) > len(small_plan.data)
    assert not any("compiled for" in note for note in plan.notes)


def test_every_profile_has_its_kernels(rtx: Compiler, small_onnx: Path, service_recipe: Recipe) -> None:
    assert len(rtx.build(small_onnx, Recipe(profiles=service_recipe.profiles * 2)).layers.kernels) == 26


def test_fixed_shapes_need_no_recipe(rtx: Compiler, one_node: Callable[..., Any]) -> None:
    assert len(rtx.build(one_node("Relu", output=[4, 4])).layers.kernels) == 1


# ---- what is rejected


@pytest.mark.skipif(bool(engines.registry.availability("tensorrt").version), reason="TensorRT is installed here")
def test_a_backend_that_is_not_installed(small_onnx: Path) -> None:
    with one_line(BackendUnavailable, "tensorrt cannot build here: not installed; run pip install"):
        engines.build(small_onnx, backend="tensorrt")


def test_after_a_build_that_took_too_long_the_next_has_a_process_of_its_own(small_onnx: Path, service_recipe: Recipe) -> None:
    started = time.monotonic()
    with Compiler(RTX) as compiler:
        with one_line(BuildError, "did not finish", "0.01 s"):
            compiler.build(small_onnx, service_recipe, time_limit_s=0.01)
        assert time.monotonic() - started < 60, "it went on for as long as the build"
        assert compiler.build(small_onnx, service_recipe).layers.kernels


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV", "SIGKILL"])
def test_a_compiler_that_dies_is_named_by_its_signal(name: str, small_onnx: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONFAULTHANDLER", raising=False)  # whose words would be the last
    code = f"import os, sys; print('a last word', file=sys.stderr, flush=True); os.kill(os.getpid(), {getattr(signal, name).value})"
    with one_line(BuildError, "did not finish", name, "a last word"):
        engines.build(small_onnx, backend=RTX, launcher=lambda command: [sys.executable, "-c", code])


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


# ---- ONNX Runtime


@pytest.fixture(scope="module")
def engine(small_ort_plan: Plan) -> Any:
    return engines.load(small_ort_plan)


def test_onnxruntime_agrees_with_torch(engine: Any) -> None:
    from course_lib.models import digits

    eager = engines.load(engines.ModelSource("course_lib.models:classifier", ("small",)))
    assert (engine.inputs, engine.outputs) == (eager.inputs, (engines.TensorInfo("logits", (-1, 10), "float32"),))
    for batch in (1, 3, 32):
        feeds = {"image": digits("test").images[:batch]}
        want, have = eager.infer(feeds)["logits"], engine.infer(feeds)["logits"]
        assert have.dtype == np.float32 and have.shape == (batch, 10) and 0 < engine.time_ms(feeds) < 1000
        assert np.abs(have - want).max() < 1e-4 * np.abs(want).max()


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "words"),
    [
        ("image", (33, 1, 32, 32), "float32", ["33x1x32x32", "'image'", "profile", "1x1x32x32 to 32x1x32x32"]),
        ("image", (0, 1, 32, 32), "float32", ["0x1x32x32", "profile"]),
        ("image", (1, 3, 32, 32), "float32", ["Nx1x32x32", "1x3x32x32"]),
        ("image", (1, 32, 32), "float32", ["Nx1x32x32", "1x32x32"]),
        ("image", (1, 1, 32, 32), "complex64", ["'image'", "float32", "complex64"]),
        ("pixels", (1, 1, 32, 32), "float32", ["missing input image"]),
    ],
)
def test_onnxruntime_rejects_what_does_not_fit(
    name: str, shape: tuple[int, ...], dtype: str, words: list[str], engine: Any
) -> None:
    for call in (engine.infer, engine.time_ms):
        with one_line(EngineError, *words):
            call({name: np.zeros(shape, dtype)})
    with one_line(EngineError, "unknown input pixels", "image"):
        engine.infer({"image": np.zeros((1, 1, 32, 32), np.float32), "pixels": np.zeros(1)})


def test_weights_beside_the_model_end_up_in_the_plan(
    small_onnx: Path, small_ort_plan: Plan, service_recipe: Recipe, tmp_path: Path
) -> None:
    path = tmp_path / "split.onnx"
    onnx.save(onnx.load(small_onnx), path, save_as_external_data=True, location="split.data", size_threshold=0)
    plan = engines.build(path, service_recipe, backend="onnxruntime")
    (tmp_path / "split.data").unlink()
    image = {"image": np.random.default_rng(0).random((3, 1, 32, 32), dtype=np.float32)}
    assert np.array_equal(engines.load(plan).infer(image)["logits"], engines.load(small_ort_plan).infer(image)["logits"])
