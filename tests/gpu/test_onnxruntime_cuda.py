"""ONNX Runtime on a real GPU, with torch in the same process: its numbers, and what is timed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_lib.engines import Plan, build, load
from course_lib.engines.cuda.driver import capability
from course_lib.models import classifier, digits, encoder, export_onnx
from course_lib.recipe import Profile, Recipe

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(capability() is None, reason="no NVIDIA GPU and driver answer"),
    pytest.mark.skipif(
        "CUDAExecutionProvider" not in onnxruntime.get_available_providers(), reason="onnxruntime-gpu is not installed here"
    ),
]

SERVICE = Profile(image={"min": (1, 1, 32, 32), "opt": (8, 1, 32, 32), "max": (32, 1, 32, 32)})


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("onnx")

    def make(dtype: str) -> Path:
        path = folder / f"wide_{dtype}.onnx"
        if not path.exists():
            export_onnx(classifier("wide"), path, dtype=dtype)  # type: ignore[arg-type]
        return path

    return make


@pytest.fixture(scope="module")
def plan(onnx_file: Callable[[str], Path]) -> Plan:
    return build(onnx_file("fp32"), Recipe(profiles=[SERVICE]), backend="onnxruntime")


@pytest.fixture
def engine(plan: Plan) -> Any:
    found = load(plan)
    assert found.device == "cuda"
    return found


def _image(batch: int) -> Any:
    return torch.from_numpy(digits("test").images[:batch].copy()).cuda()


def _error(have: Any, want: Any) -> float:
    return float(np.abs(np.asarray(have) - np.asarray(want)).max() / np.abs(np.asarray(want)).max())


# ---- numbers


@pytest.mark.parametrize(("dtype", "flags", "tolerance"), [("fp32", (), 1e-4), ("fp32", ("tf32",), 1e-3), ("fp16", (), 5e-3)])
def test_outputs_equal_torch_at_every_batch(
    dtype: str, flags: tuple[str, ...], tolerance: float, onnx_file: Callable[[str], Path]
) -> None:
    engine: Any = load(build(onnx_file(dtype), Recipe(profiles=[SERVICE], flags=flags), backend="onnxruntime"))
    model = classifier("wide").cuda()
    allowed, torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.allow_tf32, False  # the reference is exact
    try:
        for batch in (3, 1, 32, 3):
            image = _image(batch)
            with torch.inference_mode():
                want = model(image).cpu().numpy()
            arrays = engine.infer({"image": image.cpu().numpy()})["logits"]
            print(f"{dtype} {flags} batch {batch}: relative error {_error(arrays, want):.1e}")
            assert _error(arrays, want) < tolerance
    finally:
        torch.backends.cudnn.allow_tf32 = allowed


def test_two_dynamic_dimensions(tmp_path: Path) -> None:
    model = encoder()
    export_onnx(model, tmp_path / "encoder.onnx")
    plan = build(tmp_path / "encoder.onnx", backend="onnxruntime")
    engine: Any = load(plan)
    for batch, rows in ((2, 32), (5, 16), (2, 32)):
        tokens = torch.rand(batch, rows, 32)
        with torch.inference_mode():
            want = model(tokens)
        assert _error(engine.infer({"tokens": tokens.numpy()})["logits"], want) < 5e-3


# ---- time


def test_a_new_shape_is_not_timed_while_algorithms_are_chosen(plan: Plan) -> None:
    engine: Any = load(plan)
    feeds = {"image": digits("test").images[:7]}
    first, *later = [engine.time_ms(feeds) for _ in range(20)]
    assert first < 10 * float(np.median(later))
