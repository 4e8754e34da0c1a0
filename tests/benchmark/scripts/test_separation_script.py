"""Engines that differ in one respect: their ONNX files, and the rows of a measurement with stand-ins for the processes."""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks import separation
from benchmarks.separation_parts.cases import Case, cases, model_for
from course_lib.models import classifier, export_onnx, fresh_digits


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    return export_onnx(classifier("small"), tmp_path_factory.mktemp("onnx") / "small.onnx", opset=17)


def test_a_fixed_shape_in_fp16_has_the_answers_of_the_network(exported: onnx.ModelProto) -> None:
    model = model_for(Case("fixed shape", "fp16", (8,), half_tensors=True), exported)
    images = fresh_digits(8, seed=0).images
    want, have = (
        onnxruntime.InferenceSession(each.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"image": given})[
            0
        ]
        for each, given in ((exported, images), (model, images.astype(np.float16)))
    )
    assert have.dtype == np.float16 and np.linalg.norm(have - want) <= 2e-2 * np.linalg.norm(want)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 8


class Holder:
    """Answers at once; each name has a time of its own."""

    def __init__(self, times: dict[str, float]) -> None:
        self._times, self._noise = times, itertools.cycle((0.99, 1.0, 1.01))

    def hold(self, name: str, images: np.ndarray, **how: Any) -> np.ndarray:
        return np.ones((len(images), 10), np.float32) * (1.01 if "plan" in how else 1.0)

    def time(self, name: str, calls: int) -> float:
        return self._times[name] * next(self._noise)


def test_engines_are_compared_with_torch_in_the_same_precision(tmp_path: Path) -> None:
    case = next(one for one in cases() if one.precision == "fp16" and one.batches == (8,))
    (tmp_path / f"{case.key}.plan").touch()
    (tmp_path / f"{case.key}.json").write_text(json.dumps({"build_s": 70.0}))
    torch, engines = Holder({separation.BASELINE: 0.6, "torch eager": 1.2}), Holder({case.name: 0.5})
    options = argparse.Namespace(folder=tmp_path, seconds=0.2)
    rows = separation.measured(options, "resnet50", "fp16", np.zeros((8, 3, 4, 4), np.float32), torch, engines)  # type: ignore[arg-type]
    assert [row["engine"] for row in rows] == [separation.BASELINE, "torch eager", case.name]
    engine = rows[-1]
    assert engine["speedup"]["median"] == pytest.approx(1.2, rel=0.03) and engine["single_ms"] == pytest.approx(0.5, rel=0.03)
    assert engine["relative_error"] == pytest.approx(0.01, rel=1e-3) and engine["build_s"] == 70.0
