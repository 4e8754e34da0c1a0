"""ONNX Runtime on a real GPU, with torch in the same process: its numbers, whose stream it runs on, and that nothing is copied."""

from __future__ import annotations

import time
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
SECOND_OF_CYCLES = 1_500_000_000  # about a second of `torch.cuda._sleep`


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
            tensors = engine.run_tensors({"image": image})["logits"].cpu().numpy()
            print(f"{dtype} {flags} batch {batch}: relative error {_error(arrays, want):.1e}, {_error(tensors, want):.1e}")
            assert _error(arrays, want) < tolerance and _error(tensors, want) < tolerance
    finally:
        torch.backends.cudnn.allow_tf32 = allowed


def test_two_dynamic_dimensions(tmp_path: Path) -> None:
    model = encoder()
    export_onnx(model, tmp_path / "encoder.onnx")
    plan = build(tmp_path / "encoder.onnx", backend="onnxruntime")
    engine: Any = load(plan)
    print("on the CPU:", engine.placement.get("cpu", ()), "; told in the notes:", plan.notes[1:])
    assert bool(engine.placement.get("cpu")) == any("nodes run on the CPU" in note for note in plan.notes)
    assert "MatMul" not in engine.placement.get("cpu", ())
    for batch, rows in ((2, 32), (5, 16), (2, 32)):
        tokens = torch.rand(batch, rows, 32)
        with torch.inference_mode():
            want = model(tokens)
        assert _error(engine.run_tensors({"tokens": tokens.cuda()})["logits"].cpu(), want) < 5e-3


def test_every_convolution_is_on_the_gpu(engine: Any) -> None:
    print({device: len(operators) for device, operators in engine.placement.items()})
    assert engine.placement["cuda"].count("Conv") == 9 and "Conv" not in engine.placement.get("cpu", ())


# ---- whose memory, whose stream


def test_nothing_is_copied(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[tuple[Any, ...]] = []
    original = onnxruntime.IOBinding.bind_input

    def bind_input(self: Any, *arguments: Any) -> None:
        bound.append(arguments)
        original(self, *arguments)

    monkeypatch.setattr(onnxruntime.IOBinding, "bind_input", bind_input)
    image = _image(3)
    output = engine.run_tensors({"image": image})["logits"]
    assert [(name, device, pointer) for name, device, *_, pointer in bound] == [("image", "cuda", image.data_ptr())]
    # torch asks the driver whose memory a pointer is, so it would not call host memory a CUDA tensor
    assert output.is_cuda and output.shape == (3, 10) and output.dtype == torch.float32


def test_outputs_of_one_call_outlive_the_next_and_the_engine(plan: Plan) -> None:
    engine: Any = load(plan)
    first = engine.run_tensors({"image": _image(4)})["logits"]
    kept = first.clone()
    for _ in range(5):
        engine.run_tensors({"image": torch.rand(4, 1, 32, 32, device="cuda")})
    torch.cuda.synchronize()
    assert torch.equal(first, kept)
    del engine
    torch.rand(1 << 20, device="cuda")
    assert torch.equal(first, kept)


@pytest.mark.parametrize("which", ["a side stream", "the default stream"])
def test_it_runs_on_the_callers_stream(which: str, engine: Any) -> None:
    """The input becomes right a second after the call: only work that waits its turn on the same stream sees it."""
    stream = torch.cuda.Stream() if which == "a side stream" else torch.cuda.default_stream()
    right, image = _image(3), torch.zeros(3, 1, 32, 32, device="cuda")
    with torch.cuda.stream(stream):
        for _ in range(3):  # the first run on a stream makes a session and allocates
            want = engine.run_tensors({"image": right})["logits"].cpu()
            wrong = engine.run_tensors({"image": image})["logits"].cpu()
        torch.cuda.synchronize()
        started = time.perf_counter()
        torch.cuda._sleep(SECOND_OF_CYCLES)
        image.copy_(right)
        output = engine.run_tensors({"image": image})["logits"]
        returned, busy = time.perf_counter() - started, not stream.query()
        stream.synchronize()
        finished = time.perf_counter() - started
    print(f"{which}: the call returned after {1e3 * returned:.1f} ms, its result was there after {1e3 * finished:.0f} ms")
    assert busy and returned < 0.5 * finished, "the call waited for the GPU"
    assert torch.allclose(output.cpu(), want, atol=1e-4 * float(want.abs().max()))
    assert not torch.allclose(output.cpu(), wrong, atol=1e-2 * float(want.abs().max()))


def test_tensors_elsewhere_are_rejected(engine: Any) -> None:
    from course_lib.errors import EngineError

    with pytest.raises(EngineError, match="'image' is on cpu, this engine runs on cuda:0"):
        engine.run_tensors({"image": torch.zeros(1, 1, 32, 32)})


# ---- time


def test_the_clock_agrees_with_torchs_events(engine: Any) -> None:
    feeds, image = {"image": digits("test").images[:32]}, _image(32)
    ours = float(np.median([engine.time_ms(feeds) for _ in range(50)]))
    theirs = []
    for _ in range(55):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        engine.run_tensors({"image": image})
        end.record()
        end.synchronize()
        theirs.append(begin.elapsed_time(end))
    print(f"batch 32: time_ms {ours:.3f} ms, run_tensors between torch's events {np.median(theirs[5:]):.3f} ms")
    assert 0.3 < ours / float(np.median(theirs[5:])) < 3


def test_a_new_shape_is_not_timed_while_algorithms_are_chosen(plan: Plan) -> None:
    engine: Any = load(plan)
    feeds = {"image": digits("test").images[:7]}
    first, *later = [engine.time_ms(feeds) for _ in range(20)]
    assert first < 10 * float(np.median(later))
