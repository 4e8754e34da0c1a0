"""A backend is one class in one module, which the registry finds."""

from typing import Any

import pytest

from course_lib import engines
from course_lib.engines import registry
from course_lib.errors import BackendUnavailable, EngineError, PlanError

OWN = ("tensorrt", "tensorrt_rtx", "onnxruntime", "openvino", "torch", "torch_tensorrt")


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


def test_what_a_backend_does_not_do_is_rejected(small_ort_plan: engines.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    class Probe(engines.Backend):
        """It implements nothing."""

        name = "probe"

        def availability(self) -> engines.Availability:
            return engines.Availability("probe", "1")

    monkeypatch.setitem(registry._backends(), "probe", Probe())
    no_build, no_run = "this backend does not build plans", "this backend does not run engines"
    assert registry.availability("probe") == engines.Availability("probe", "1", no_build, no_run)
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
