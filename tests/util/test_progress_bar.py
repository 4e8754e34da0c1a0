"""Progress bars in a notebook: few messages, no thread and no widget, so that nothing is left to wait for."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from course_lib._util import progress_bar


class Handle:
    """Counts what is displayed."""

    def __init__(self) -> None:
        self.data: list[dict[str, str]] = []

    def display(self, data: dict[str, str], **options: Any) -> Handle:
        self.data.append(data)
        return self

    def update(self, data: dict[str, str], **options: Any) -> None:
        self.data.append(data)


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> Handle:
    handle = Handle()
    monkeypatch.setattr("IPython.display.display", handle.display)
    monkeypatch.setattr(progress_bar, "in_notebook", lambda: True)
    return handle


@pytest.mark.parametrize("total", [None, 20_000])
def test_a_bar_in_a_notebook_sends_few_messages_and_starts_no_thread(handle: Handle, total: int | None) -> None:
    threads = threading.active_count()
    steps: Any = range(20_000) if total is None else iter(range(20_000))
    started, taken = time.monotonic(), 0
    for _ in progress_bar.track(steps, "counting", total=total):
        taken += 1
        assert threading.active_count() == threads
    assert taken == 20_000
    assert len(handle.data) <= (time.monotonic() - started) / 0.2 + 2
    assert "counting 0%" in handle.data[0]["text/plain"] and set(handle.data[-1].values()) == {""}


def test_a_build_has_the_same_bar(handle: Handle) -> None:
    threads = threading.active_count()
    with progress_bar.bar("building <model>") as report:
        report(0.5, "tactics")
        assert threading.active_count() == threads
    assert "50% tactics" in handle.data[0]["text/plain"] and "&lt;model&gt;" in handle.data[0]["text/html"]
    assert set(handle.data[-1].values()) == {""}


def test_a_check_names_its_stages_on_one_line(handle: Handle) -> None:
    with progress_bar.notebook_stages() as begins:
        begins("building <yours>", 10)
        begins("racing", 25)
    assert [data["text/plain"] for data in handle.data] == [
        "building <yours> (about 10 s)",
        "racing (about 25 s)",
        "",
    ]
    assert "&lt;yours&gt;" in handle.data[0]["text/html"] and "25s" in handle.data[1]["text/html"]
