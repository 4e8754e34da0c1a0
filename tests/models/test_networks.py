"""The networks: what the shipped weights can do, and that importing the package stays light."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from course_lib.models import classifier, digits, fresh_digits, resnet50
from docs import make_checkpoints
from docs.make_checkpoints import accuracy, train

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


def test_resnet50_depends_on_its_seed_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    once, again, other = resnet50(1), resnet50(1), resnet50(2)
    assert torch.equal(before, torch.get_rng_state()), "the learner's own random numbers must not move"
    for name, value in once.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert not torch.equal(once.head.weight, other.head.weight)


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
