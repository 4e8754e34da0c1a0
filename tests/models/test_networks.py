"""The networks: what the shipped weights can do, and that importing the package stays light."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from course_lib.models import classifier, digits, fresh_digits
from course_lib.models.weights import FOLDER
from docs import make_checkpoints
from docs.make_checkpoints import accuracy, train
from tests.sessions import run

NAMES = {"small": 0.98, "wide": 0.99, "encoder": 0.96}  # least accuracy on held-out digits


@pytest.mark.parametrize("name", NAMES)
def test_shipped_weights_are_accurate(name: str) -> None:
    held_out = accuracy(name, digits("test"))  # type: ignore[arg-type]
    fresh = accuracy(name, fresh_digits(300, seed=11))  # type: ignore[arg-type]
    assert held_out >= NAMES[name]
    assert fresh >= held_out - 0.02, "fresh digits must be new, not hard"


@pytest.mark.parametrize("rows", [16, 24, 48])
def test_encoder_reads_other_lengths(rows: int) -> None:
    assert accuracy("encoder", digits("test"), rows=rows) >= 0.96


def test_unknown_names_are_rejected() -> None:
    with pytest.raises(ValueError, match="small, wide"):
        classifier("huge")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="small, wide, encoder"):
        train("huge")  # type: ignore[arg-type]


def test_training_writes_what_it_reports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One epoch only: enough to learn something, and to see that equal seeds give equal weights."""
    monkeypatch.setattr("course_lib.models.weights.FOLDER", tmp_path)
    monkeypatch.setitem(
        make_checkpoints.SCHEDULES, "small", make_checkpoints.Schedule(epochs=1, learning_rate=6e-3, strength=0.5)
    )
    reported = train("small", progress=False)
    first = (tmp_path / "small.pt").read_bytes()
    assert 0.3 < reported == accuracy("small", digits("test"))
    train("small", progress=False)
    assert (tmp_path / "small.pt").read_bytes() == first
    assert capfd.readouterr() == ("", "")


def test_the_converted_file_reads_channels_last_and_classifies_digits() -> None:
    model = onnx.load(FOLDER / "keras_digits.onnx")
    batch, *image = model.graph.input[0].type.tensor_type.shape.dim
    assert batch.dim_param and [size.dim_value for size in image] == [32, 32, 1]
    assert [node.op_type for node in model.graph.node if node.op_type in ("Reshape", "Transpose")] == [
        "Reshape",  # one channel has the same bytes in both layouts
        "Transpose",
        "Reshape",
    ]
    test = digits("test")
    scores = run(model, np.ascontiguousarray(test.images.transpose(0, 2, 3, 1)))
    assert (scores.argmax(1) == test.labels).mean() > 0.97
