"""The chain against engines that reject, lie, and answer."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from course_lib.engines import build
from course_lib.errors import BackendUnavailable, EngineError, PlanError
from course_lib.teaching.deployment.fallback_chain import TensorRTProvider, first_that_answers

KNOWN, RIGHT = {"x": np.array([1.0, 2.0])}, {"y": np.array([2.0, 4.0])}


class Doubling:
    def __init__(self, factor=2.0, name="y"):
        self.factor, self.name = factor, name

    def infer(self, feeds):
        return {self.name: self.factor * feeds["x"]}


def rejects():
    raise PlanError("made for another device")


def test_the_first_that_answers_is_used_and_the_others_say_why():
    later = []
    ways = {
        "plan": rejects,
        "liar": lambda: Doubling(2.5),
        "right": Doubling,
        "spare": lambda: later.append("opened"),
    }
    chosen = first_that_answers(ways, KNOWN, RIGHT)
    assert chosen.name == "right" and chosen.engine.infer(KNOWN)["y"][1] == 4
    assert [step.outcome for step in chosen.steps] == ["rejected", "wrong", "chosen", "not tried"]
    assert chosen.steps[0].reason == "made for another device"
    assert "off by 1, allowed is 0.04" in chosen.steps[1].reason
    assert not later


@pytest.mark.parametrize("wrong", [Doubling(np.nan), Doubling(name="z"), Doubling(np.ones((3, 1)))])
def test_what_is_no_answer_is_wrong(wrong):
    with pytest.raises(EngineError, match="nothing runs this model here: only: "):
        first_that_answers({"only": lambda: wrong}, KNOWN, RIGHT)


@pytest.fixture(scope="module")
def relu():
    from onnx import TensorProto, helper

    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="relu")], "g", value[:1], value[1:])
    return build(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), backend="onnxruntime")


@pytest.mark.parametrize(
    ("providers", "words"),
    [
        ([], "without TensorRT: pip install onnxruntime-gpu"),
        (["TensorrtExecutionProvider"], "did not load"),  # ONNX Runtime warns at most, and goes on with the CPU
    ],
)
def test_a_provider_that_is_absent_or_does_not_load_is_rejected(relu, monkeypatch, providers, words):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: providers)
    real = onnxruntime.InferenceSession
    monkeypatch.setattr(
        onnxruntime, "InferenceSession", lambda data, options, providers: real(data, options, ["CPUExecutionProvider"])
    )
    with pytest.raises(BackendUnavailable, match=words):
        TensorRTProvider(relu)


def test_a_provider_that_loads_answers(relu, monkeypatch):
    class Session(onnxruntime.InferenceSession):
        def __init__(self, data, options, providers):
            super().__init__(data, options, providers=["CPUExecutionProvider"])

        def get_providers(self):
            return ["TensorrtExecutionProvider", "CPUExecutionProvider"]

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["TensorrtExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    engine = TensorRTProvider(relu)
    np.testing.assert_array_equal(engine.infer({"x": np.array([-1.0, 2.0], np.float32)})["y"], [0, 2])
    with pytest.raises(EngineError, match="onnxruntime failed: "):
        engine.infer({"x": np.zeros((1, 1), np.float32)})
