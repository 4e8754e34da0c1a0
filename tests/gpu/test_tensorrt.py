"""The whole loop on a real GPU with a real TensorRT, in this environment or in one of COURSE_ENVIRONMENTS."""

import numpy as np
import pytest

from course_lib.engines import ModelSource, Plan, Worker, build, environments, split_target
from course_lib.engines.cuda.driver import capability
from course_lib.errors import PrecisionError
from course_lib.labs import Examiner
from course_lib.models import classifier, export_onnx, fresh_digits
from course_lib.recipe import Profile, Recipe

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(capability() is None, reason="no NVIDIA GPU and driver answer")]

SERVICE = Profile(image={"min": (1, 1, 32, 32), "opt": (8, 1, 32, 32), "max": (32, 1, 32, 32)})


def _targets() -> list[str]:
    found = []
    for name, environment in environments().items():
        with Worker(environment) as worker:
            if any(b["name"] == "tensorrt" and not b["no_run"] for b in worker.backends()):
                found.append(f"tensorrt@{name}")
    return found


@pytest.fixture(scope="module")
def target() -> str:
    found = _targets()
    if not found:
        pytest.skip("no environment has a usable tensorrt: name one in COURSE_ENVIRONMENTS")
    return found[0]


@pytest.fixture(scope="module", params=["small", "wide"])
def network(request, target, tmp_path_factory):
    """A classifier's size, its ONNX file and its FP32 plan."""
    path = tmp_path_factory.mktemp("onnx") / f"{request.param}.onnx"
    export_onnx(classifier(request.param), path, opset=Examiner(builder=target).opset)
    return request.param, path, build(path, Recipe(profiles=[SERVICE]), backend=target)


def _load(target: str, plan: Plan | ModelSource) -> Worker:
    worker = Worker(split_target(target)[1])
    worker.load(plan)
    return worker


def _torch(size: str) -> Worker:
    worker = Worker()
    worker.load(ModelSource("course_lib.models:classifier", (size,)))
    return worker


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 5e-3), ("fp16", 2e-2)])
def test_outputs_equal_torch_at_every_batch(network, target, precision, tolerance):
    size, path, plan = network
    if precision == "fp16":
        plan = build(path, Recipe(precision="fp16", profiles=[SERVICE]), backend=target)
    with _torch(size) as eager, _load(target, plan) as engine:
        for batch in (1, 3, 32):
            feeds = {"image": fresh_digits(batch, seed=int(np.random.SeedSequence().generate_state(1)[0])).images}
            want, have = eager.infer(feeds)["logits"], engine.infer(feeds)["logits"]
            assert have.shape == (batch, 10)
            assert np.abs(have - want).max() <= tolerance * np.abs(want).max()


def test_layers_prove_the_precision(network, target):
    _, path, plan = network
    assert plan.layers.kernels
    plan.layers.check_precision("fp32")
    half = build(path, Recipe(precision="fp16", profiles=[SERVICE]), backend=target)
    assert half.layers.dtype_counts()["Half"] > 0
    with pytest.raises(PrecisionError):
        half.layers.check_precision("fp32")


def test_timing_cache_makes_the_second_build_faster(target, tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_TIMING_CACHE", str(tmp_path / "timings"))
    path = tmp_path / "wide.onnx"
    export_onnx(classifier("wide"), path, opset=Examiner(builder=target).opset)
    first = build(path, Recipe(profiles=[SERVICE]), backend=target)
    (kept,) = (tmp_path / "timings").glob("*.timings")
    size = kept.stat().st_size
    second = build(path, Recipe(profiles=[SERVICE]), backend=target)
    print(f"first build {first.build_seconds:.1f} s, second {second.build_seconds:.1f} s, {size} bytes of timings")
    assert second.build_seconds < 0.7 * first.build_seconds
    build(path, Recipe(precision="fp16", profiles=[SERVICE]), backend=target)  # other tactics are merged in
    assert kept.stat().st_size > size
    kept.write_bytes(b"garbage")
    assert build(path, Recipe(profiles=[SERVICE]), backend=target).layers.kernels  # rejected, timed anew, replaced
    assert kept.stat().st_size > 100
