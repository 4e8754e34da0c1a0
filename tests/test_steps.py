"""Long work names each step as it begins: a line a step in a pipe, a bar on a terminal, nothing where it must stay silent."""

import io
import re
from pathlib import Path

import pytest

from course_lib import labs
from course_lib.cli.steps import label, step_progress
from course_lib.labs import Examiner


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_one_line_a_step(capsys):
    with step_progress() as begin:
        begin("building", 10)
        begin("measuring", 24.6)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "building (about 10 s)\nmeasuring (about 25 s)\n")


def test_a_terminal_gets_a_bar_and_an_estimate(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with step_progress() as begin:
        begin("building", 10)
        begin("speed: PyTorch and your engine, interleaved", 25)
        begin("late: longer than estimated", 0)
    shown = re.sub(r"\x1b\[[\d;]*m", "", terminal.getvalue())
    assert "speed \u2501" in shown and "of about 25 s" in shown and "0 s of about 0 s" in shown and "PyTorch" not in shown


def test_a_bar_shows_the_whole_name_of_each_step():
    sources = "\n".join(file.read_text(encoding="utf-8") for file in Path(labs.__file__).parents[1].rglob("*.py"))
    names = [name for name in re.findall(r'\bbegins\(\s*f?"([^"]+)"', sources) if not name.startswith("{")]
    assert len(names) > 20 and all(len(label(name)) <= 20 for name in names)


@pytest.mark.parametrize("name", ["lab12"])
def test_a_lab_names_the_task_that_it_examines(name, tmp_path):
    lab, told = labs.find(name), []
    lab.write_reference(tmp_path)
    lab.examine(tmp_path, Examiner(begins=lambda step, about_s: told.append((step, about_s))), only="triton")
    assert [step.partition(":")[0] for step, _ in told] == ["triton"] and told[0][1] > 0
