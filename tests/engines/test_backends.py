"""A backend is one class: one of another distribution is found, builds and runs with nothing else touched."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from course_lib import engines
from course_lib.engines import Worker, registry
from course_lib.engines.cache.plan_cache import PlanCache
from course_lib.errors import BackendUnavailable, EngineError, PlanError
from course_lib.recipe import Recipe

OWN = ("tensorrt", "tensorrt_rtx", "onnxruntime", "openvino", "torch", "torch_tensorrt")

_TOY = '''
"""A backend that runs chains of Neg and Relu with numpy. Its plan is the list of the operators."""

import hashlib, json, os, time

import numpy as np

from course_lib.engines import Layer, LayerTable, Plan, TensorInfo
from course_lib.engines.backend import Availability, Backend
from course_lib.engines.plan import check_feeds
from course_lib.errors import BuildError

KERNELS = {"Neg": np.negative, "Relu": lambda x: np.maximum(x, 0)}


class Toy(Backend):
    name = "toy"
    distributions = ("toy-backend",)

    def availability(self):
        return Availability(self.name, self.version())

    def compile(self, model, recipe, operators, report=None):
        if unknown := set(operators.values()) - KERNELS.keys():
            raise BuildError(f"toy has no {', '.join(unknown)}")
        if report:
            report(1.0, "toy")
        return Plan(
            backend=self.name, version=self.version(), data=json.dumps(list(operators.values())).encode(),
            onnx_sha256=hashlib.sha256(model.read_bytes()).hexdigest(), recipe=dict(recipe), targets=(),
            layers=LayerTable(tuple(Layer(name, "toy", onnx_nodes=(name,)) for name in operators), operators), build_seconds=0.0,
        )

    def load(self, plan, *, weight_budget_bytes=None):
        return ToyEngine(plan)

    def build_settings(self):
        return {"toy": os.environ.get("TOY", "")}


class ToyEngine:
    backend = "toy"

    def __init__(self, plan):
        self.kernels = [KERNELS[operator] for operator in json.loads(plan.data)]
        self.inputs, self.outputs = (TensorInfo("x", (2, 2), "float32"),), (TensorInfo("y", (2, 2), "float32"),)

    def infer(self, feeds):
        check_feeds(self.inputs, feeds)
        x = feeds["x"]
        for kernel in self.kernels:
            x = kernel(x)
        return {"y": x}

    def time_ms(self, feeds):
        started = time.perf_counter()
        self.infer(feeds)
        return 1e3 * (time.perf_counter() - started)


class Probe(Backend):
    """Says that it is installed and implements nothing."""

    name = "probe"

    def availability(self):
        return Availability(self.name, "1")
'''


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a distribution with a module and entry points on the path of this process and of those that it starts."""

    def install(**entry_points: str) -> None:
        folder = tmp_path / "site"
        (folder / "toy_backend-2.5.dist-info").mkdir(parents=True)
        (folder / "toy_backend.py").write_text(_TOY)
        (folder / "toy_backend-2.5.dist-info" / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: toy-backend\nVersion: 2.5\n"
        )
        lines = [f"{name} = {value}\n" for name, value in entry_points.items()]
        (folder / "toy_backend-2.5.dist-info" / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\n{''.join(lines)}")
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        monkeypatch.delitem(sys.modules, "toy_backend", raising=False)

    return install


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """``y = relu(-x)``"""
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 2]) for name in "xy"]
    nodes = [onnx.helper.make_node("Neg", ["x"], ["n"], name="neg"), onnx.helper.make_node("Relu", ["n"], ["y"], name="relu")]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "graph", info[:1], info[1:])), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


X = np.array([[1, -2], [-3, 4]], np.float32)
Y = np.array([[0, 2], [3, 0]], np.float32)


def test_a_backend_of_another_distribution_builds_and_runs(
    install: Callable[..., None], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(toy="toy_backend:Toy")
    said: list[tuple[float, str]] = []
    plan = engines.build(model, backend="toy", progress=lambda *told: said.append(told))
    assert (plan.backend, plan.version, said) == ("toy", "2.5", [(1.0, "toy")])
    assert [plan.layers.fused_operators(layer) for layer in plan.layers] == ["Neg", "Relu"]
    plan.save(tmp_path / "model.plan")
    plan = engines.Plan.load(tmp_path / "model.plan")
    np.testing.assert_array_equal(engines.load(plan).infer({"x": X})["y"], Y)
    with Worker() as worker:
        assert {"name": "toy", "version": "2.5", "no_build": "", "no_run": ""} in worker.backends()
        worker.load(plan)
        np.testing.assert_array_equal(worker.infer({"x": X})["y"], Y)
        assert worker.time_ms({"x": X}) > 0
    cache = PlanCache(tmp_path / "plans")
    assert [cache.build(model, backend="toy").outcome for _ in range(2)] == ["built", "hit"]
    monkeypatch.setenv("TOY", "other")
    assert cache.build(model, backend="toy").outcome == "built", "what the build depends on is the backend's to say"


def test_another_environment_needs_the_distribution_too(
    install: Callable[..., None], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(toy="toy_backend:Toy")
    monkeypatch.setenv("COURSE_ENVIRONMENTS", f"same={sys.executable}; bare=env -u PYTHONPATH {sys.executable}")
    cache = PlanCache(tmp_path / "plans")
    assert cache.build(model, backend="toy@same").plan.version == "2.5"
    for build in (cache.build, engines.build):
        with pytest.raises(BackendUnavailable, match="no backend 'toy'"):
            build(model, backend="toy@bare")


def test_a_backend_with_only_a_probe_builds_and_runs_nothing(install: Callable[..., None], model: Path) -> None:
    install(toy="toy_backend:Toy", probe="toy_backend:Probe")
    found = registry.availability("probe")
    assert found == engines.Availability("probe", "1", "this backend does not build plans", "this backend does not run engines")
    assert found in engines.available_backends()
    for build in (engines.build, lambda model, backend: registry.compile_plan(backend, model, Recipe().wire())):
        with pytest.raises(BackendUnavailable, match="probe cannot build here: this backend does not build plans"):
            build(model, backend="probe")
    plan = engines.build(model, backend="toy")
    with pytest.raises(BackendUnavailable, match="probe cannot run here: this backend does not run engines"):
        engines.load(type(plan)(**{**vars(plan), "backend": "probe"}))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("nowhere:Toy", "nowhere:Toy cannot be loaded (ModuleNotFoundError"),
        ("toy_backend:Nobody", "toy_backend:Nobody cannot be loaded (AttributeError"),
        ("toy_backend:Probe", "must be a subclass of Backend with the name 'bad'"),
        ("toy_backend:Backend", "cannot be loaded (TypeError"),
        ("toy_backend:ToyEngine", "cannot be loaded (TypeError"),
    ],
)
def test_one_that_cannot_be_loaded_says_why_and_hides_no_other(
    value: str, words: str, install: Callable[..., None], model: Path
) -> None:
    install(bad=value, toy="toy_backend:Toy")
    rows = {row.name: row for row in engines.available_backends()}
    assert rows["bad"].no_build == rows["bad"].no_run and words in rows["bad"].no_run
    assert {*OWN, "toy"} <= rows.keys() and rows["toy"].no_build == ""
    with pytest.raises(BackendUnavailable, match="bad cannot build here"):
        engines.build(model, backend="bad")


def test_a_name_of_the_course_cannot_be_taken(install: Callable[..., None]) -> None:
    install(onnxruntime="toy_backend:Toy")
    for found in (registry.find("onnxruntime"), *registry.all_backends()):
        assert type(found).__module__.startswith("course_lib.")


def test_the_order_and_the_names_of_the_courses_own() -> None:
    found = registry.all_backends()
    assert tuple(one.name for one in found) == OWN
    for one in found:  # the module is named after the backend
        assert type(one).__module__.removesuffix(".backend") == f"course_lib.engines.backends.{one.name}"


def test_default_builder_and_runner_follow_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    def only(*working: str) -> None:
        def availability(self: Any) -> engines.Availability:
            reason = "" if self.name in working else "broken"
            return engines.Availability(self.name, "1", reason, reason)

        for one in registry.all_backends():
            monkeypatch.setattr(type(one), "availability", availability)

    for working, builder, runner in (
        (OWN, "tensorrt", "tensorrt"),
        (("tensorrt_rtx", "onnxruntime"), "tensorrt_rtx", "tensorrt_rtx"),
        (("onnxruntime", "openvino"), "tensorrt_rtx", "onnxruntime"),
    ):
        only(*working)
        assert (engines.default_builder(), engines.default_runner()) == (builder, runner)
    only("openvino")
    with pytest.raises(
        BackendUnavailable, match=r"no backend can run engines here \(tensorrt: broken; tensorrt_rtx: .*onnxruntime"
    ):
        engines.default_runner()


def test_what_a_backend_does_not_do_is_rejected(small_ort_plan: engines.Plan) -> None:
    with pytest.raises(EngineError, match="onnxruntime cannot stream weights"):
        engines.load(small_ort_plan, weight_budget_bytes=1)
    for name in ("torch", "torch_tensorrt"):
        with pytest.raises(PlanError, match=f"{name} does not build plans"):
            registry.find(name).load(small_ort_plan)
    with pytest.raises(BackendUnavailable, match="no backend 'nobody': the course has tensorrt, tensorrt_rtx, onnxruntime, op"):
        registry.find("nobody")


def test_only_tensorrt_8_limits_the_operator_set() -> None:
    assert [registry.find("tensorrt").newest_opset(version) for version in ("8.6.1", "10.16.1", "11.0")] == [17, None, None]
    assert [registry.find(name).newest_opset("8.0") for name in ("onnxruntime", "openvino")] == [None, None]
