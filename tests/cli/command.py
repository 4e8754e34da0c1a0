"""`course` as somebody types it, in this process, and what it answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from course_lib.cli import app


@dataclass(frozen=True)
class Done:
    status: int
    out: str
    err: str

    def document(self) -> Any:
        """The one JSON document that is all of stdout."""
        assert self.err == "" and self.out.startswith("{") and self.out.endswith("}\n")
        return json.loads(self.out)


Course = Callable[..., Done]


@pytest.fixture
def course(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Course:
    """Runs `course`; what its child processes print counts too."""
    monkeypatch.setenv("COURSE_DEBUG", "")

    def run(*arguments: object) -> Done:
        monkeypatch.setattr(sys, "argv", ["course", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            app.main()
        code = left.value.code
        assert code is None or isinstance(code, int), f"{code!r} would be printed by Python itself"
        return Done(code or 0, *capfd.readouterr())

    return run


def is_one_line(done: Done, words: tuple[str, ...], status: int = 1) -> None:
    assert done.out == "" and done.status == status
    assert done.err.startswith("course: ") and done.err.endswith("\n") and len(done.err.splitlines()) == 1
    assert "internal error" not in done.err and "Traceback" not in done.err
    assert [word for word in words if word not in done.err] == [], done.err
