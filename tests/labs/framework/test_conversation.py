"""A conversation with a process that answers, and with processes that do not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from course_lib.errors import EngineError
from course_lib.labs.framework import isolation
from course_lib.labs.framework.conversation import Conversation
from course_lib.labs.framework.sandboxed import learner_code

_ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)"


def test_each_message_has_its_answer():
    with Conversation([sys.executable, "-c", _ECHO], time_limit_s=60) as conversation:
        for message in ({"a": 1}, {"b": "x" * 300_000}, {"c": [[1.5], None]}):
            assert conversation.ask(message) == message


def test_a_line_that_is_too_long_is_not_kept():
    with (
        Conversation([sys.executable, "-c", _ECHO], time_limit_s=60, max_bytes=1000) as conversation,
        pytest.raises(EngineError, match="more than 1,000 bytes"),
    ):
        conversation.ask({"a": "x" * 100_000})


def test_a_program_of_texts_sees_what_came_before_it():
    command = isolation.text_command(learner_code)
    assert "course_lib.labs.framework.sandboxed.learner_code" in command[-1]
    with pytest.raises(EngineError, match="without an answer"):  # it has no `main`
        isolation.run_isolated(command, b"", time_limit_s=60, max_bytes=10)


@pytest.mark.parametrize("line", ["[]", "no", "[" * 100_000, "", '{"a": ' + "[" * 50 + "]" * 50 + "}"])
def test_a_line_in_another_form_is_rejected(line):
    program = f"import sys; sys.stdin.readline(); print({line!r}, flush=True)"
    with (
        Conversation([sys.executable, "-c", program], time_limit_s=20) as conversation,
        pytest.raises(EngineError, match="another form"),
    ):
        conversation.ask({})


def test_a_process_that_does_not_read_is_stopped():
    with (
        Conversation([sys.executable, "-c", "import time; time.sleep(60)"], time_limit_s=1) as conversation,
        pytest.raises(EngineError, match="did not finish within 1 s"),
    ):
        conversation.ask({"text": "x" * (1 << 22)})


def test_a_process_that_has_ended_is_named():
    with Conversation([sys.executable, "-c", "pass"], time_limit_s=20) as conversation:
        conversation.process.wait()
        with pytest.raises(EngineError, match="its process ended"):
            conversation.ask({"text": "x" * (1 << 22)})
    with pytest.raises(EngineError, match="cannot start"):
        Conversation(["no-such-program"], time_limit_s=1)


def test_a_process_that_is_ended_leaves_no_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program = "import json, tempfile; folder = tempfile.mkdtemp(); print(json.dumps({'folder': folder}), flush=True); input(); input()"
    with Conversation([sys.executable, "-c", program], time_limit_s=20) as conversation:
        folder = Path(conversation.ask({})["folder"])
        assert folder.is_dir() and tmp_path in folder.parents
    with pytest.raises(EngineError, match="cannot start"):
        Conversation(["no-such-program"], time_limit_s=1)
    assert list(tmp_path.iterdir()) == []
