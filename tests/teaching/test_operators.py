"""PyTorch's operators, recorded while they run."""

from __future__ import annotations

import torch

from course_lib.teaching.why import record_operators


def test_every_operator_once_and_in_order() -> None:
    x = torch.rand(64, 64)
    timeline = record_operators(lambda: torch.relu(x @ x) + 1)
    assert [event.name for event in timeline.events] == ["mm", "relu", "add"]
    assert all(event.kind == "kernel" and event.duration_us > 0 for event in timeline.events)
    assert all(a.start_us + a.duration_us <= b.start_us for a, b in zip(timeline.events, timeline.events[1:], strict=False))
    assert 0 < timeline.busy_us <= timeline.span_us


def test_outside_nothing_is_recorded() -> None:
    timeline = record_operators(lambda: None)
    torch.rand(3) + 1
    assert timeline.events == ()
