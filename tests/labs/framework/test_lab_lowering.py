"""Lowering in a process of its own gives what lowering here gives, and one line for everything that cannot be lowered."""

from __future__ import annotations

import onnx
import pytest

from course_lib.engines.backends.onnxruntime import session
from course_lib.errors import BuildError
from course_lib.labs import Examiner
from course_lib.labs.framework import onnx_model
from course_lib.precision import LOWERED, insert_qdq, lower_for_onnxruntime, lowering_helps


@pytest.fixture(scope="module")
def quantized(small_onnx) -> onnx.ModelProto:
    from course_lib.precision import activations

    model = onnx.load(small_onnx)
    return insert_qdq(model, dict.fromkeys(activations(model), 4.0))


def test_the_plan_is_built_from_the_copy(quantized, service_recipe, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(quantized, path)
    recipe = service_recipe.model_copy(update={"precision": "int8"})
    plan = onnx_model.runnable(path, recipe, Examiner(runner="onnxruntime"))
    copy = onnx.load_model_from_string(plan.data)
    assert (LOWERED in {entry.key for entry in copy.metadata_props}) == lowering_helps()
    assert copy.graph == lower_for_onnxruntime(quantized).graph


@pytest.mark.parametrize("what", ["garbage", "nothing", "float", "lowered"])
def test_rejected_in_one_line(quantized, small_onnx, service_recipe, tmp_path, what):
    if what == "lowered" and not lowering_helps():
        pytest.skip("nothing is lowered on this CPU")
    data = {
        "garbage": b"\xff" * 1000,
        "nothing": b"",
        "float": small_onnx.read_bytes(),
        "lowered": lower_for_onnxruntime(quantized, {"avx_vnni"}).SerializeToString(),
    }[what]
    (tmp_path / "model.onnx").write_bytes(data)
    recipe = service_recipe.model_copy(update={"precision": "int8"})
    with pytest.raises(BuildError, match=r"^the model cannot be lowered for ONNX Runtime: \S.*$"):
        onnx_model.runnable(tmp_path / "model.onnx", recipe, Examiner(runner="onnxruntime"))


def test_wanted_where_onnxruntime_runs_on_a_cpu(monkeypatch):
    monkeypatch.setattr(session, "device", lambda: "cpu")
    assert onnx_model.wants_lowering(Examiner(runner="onnxruntime"))
    assert not onnx_model.wants_lowering(Examiner(runner="tensorrt"))
    monkeypatch.setattr(session, "device", lambda: "cuda")
    assert not onnx_model.wants_lowering(Examiner(runner="onnxruntime"))
