"""LiteRT on the CPU: a file that Google's converter made of the small classifier gives PyTorch's answers."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import cpu, litert
from course_lib.benchmark import sqnr_db
from course_lib.engines import Plan
from course_lib.errors import OUTSIDE_PROFILES, EngineError, PlanError
from course_lib.models import digits
from tests.exported import network

FILE = Path(__file__).parents[1] / "data" / "small_classifier.tflite"


@pytest.fixture(scope="module")
def plan() -> Plan:
    return litert.converted(FILE.read_bytes())


def test_the_answers_are_pytorchs_and_stay_after_the_next_call(plan: Plan) -> None:
    engine, answers = litert.LiteRTEngine(plan), []
    batches = [digits("test").images[:batch] for batch in (1, 8)]
    for images in batches:
        answers.append(engine.infer({"image": images})["logits"])
        assert engine.time_ms({"image": images}) > 0
    for images, logits in zip(batches, answers, strict=True):
        with torch.inference_mode():
            assert sqnr_db(network("small")(torch.from_numpy(images)).numpy(), logits) > 110


def test_the_engine_says_which_shapes_it_accepts(plan: Plan) -> None:
    engine = litert.LiteRTEngine(plan)
    (image,), (logits,) = engine.inputs, engine.outputs
    assert (image.name, image.shape, image.dtype) == ("image", (-1, 1, 32, 32), "float32")
    assert (logits.name, logits.shape) == ("logits", (-1, 10))
    with pytest.raises(EngineError, match="accepts image 3x1x32x32: it has image 1x1x32x32, image 8x1x32x32") as raised:
        engine.infer({"image": np.zeros((3, 1, 32, 32), np.float32)})
    assert raised.value.code == OUTSIDE_PROFILES
    with pytest.raises(EngineError, match="needs dtype float32"):
        engine.infer({"image": np.zeros((1, 1, 32, 32))})


def test_it_runs_in_a_worker(plan: Plan) -> None:
    with litert.LiteRTWorker() as worker:
        worker.load(plan)
        assert worker.infer({"image": digits("test").images[:8]})["logits"].shape == (8, 10)


@pytest.mark.parametrize("data", [b"", b"junk" * 99, FILE.read_bytes()[:5000]], ids=["empty", "foreign", "cut off"])
def test_a_damaged_file_is_rejected(plan: Plan, data: bytes) -> None:
    with pytest.raises(PlanError, match="litert cannot read the plan"):
        litert.LiteRTEngine(replace(plan, data=data))


def test_the_converter_is_called_with_the_networks_input_and_its_failure_is_a_line(tmp_path: Path) -> None:
    """A stand-in for the interpreter that has the converter."""
    python = tmp_path / "python"
    python.write_text(
        f'#!{sys.executable}\nimport sys, shutil\nprint(*sys.argv[3:])\nif "wide" in sys.argv: sys.exit("no litert_torch")\n'
        f'assert sys.argv[3:] == "course_lib.models:classifier small --input image --shape 1 32 32 --batches 1 8".split()\n'
        f'shutil.copy("{FILE}", sys.argv[2])\n'
    )
    python.chmod(0o755)
    found = cpu.litert_plan(cpu.NETWORKS["small"], tmp_path / "a.tflite", python, (1, 8))
    assert found.backend == "litert" and found.data == FILE.read_bytes()
    with pytest.raises(RuntimeError, match=r"^no litert_torch$"):
        cpu.litert_plan(cpu.NETWORKS["wide"], tmp_path / "b.tflite", python, (1, 8))
