"""What the start page says about a machine, from what its backends say."""

from __future__ import annotations

import pytest

from course_lib.cli import console
from course_lib.cli.machine import Machine, this_machine
from course_lib.engines.backend import Availability

RTX, ORT = Availability("tensorrt_rtx", "1.7"), Availability("onnxruntime", "1.31")
TENSORRT = Availability("tensorrt", "10.9")


@pytest.mark.parametrize(
    ("machine", "ready", "rows"),
    [
        (Machine(RTX, ORT, "", (), "all labs"), "Ready for all labs without a GPU.", ("which needs no GPU", "on the CPU")),
        (Machine(TENSORRT, TENSORRT, "sm90", (), "all labs"), "Ready for all labs on this GPU.", ("tensorrt 10.9", "(sm90)")),
        (Machine(RTX, ORT, "sm90", (), "all labs but lab 11"), "Ready for all labs but lab 11 without a GPU.", ("on the CPU",)),
        (Machine(None, ORT, "", (), "all labs"), "Not ready yet: `course doctor` lists what to install.", ("no\n",)),
        (Machine(RTX, ORT, "", ("onnx >=1.15",), "all labs"), "Not ready yet", ("with tensorrt_rtx 1.7",)),
    ],
)
def test_a_machine_in_words(machine, ready, rows):
    assert repr(machine).startswith(ready) and all(row in repr(machine) for row in rows)
    assert ready.partition("`")[0] in machine._repr_html_() and machine._repr_html_().count("<tr") == 4


def test_commands_of_doctor_have_lines_of_their_own_that_are_not_wrapped(capsys, monkeypatch):
    """A command that was broken over lines could not be copied."""
    monkeypatch.setenv("COLUMNS", "40")
    long = f"pip install '{60 * 'x'}[gpu]'"
    reasons = {"a": ("not installed", (long,)), "b": ("absent: no wheel", ("python -m b", long)), "c": ("no GPU", ())}
    backends = [
        Availability(name, "", why, why, commands, modules=name == "c").to_json() for name, (why, commands) in reasons.items()
    ]
    known = dict.fromkeys(("ready", "course", "python", "gpu", "builds_with", "runs_with", "missing", "sandbox"), "")
    console.doctor(known | {"backends": backends})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if " modules " in line] == [["c", "-", "modules", "no"]]
    assert lines[-7:-1] == [
        "a: not installed",
        f"    {long}",
        "b: absent: no wheel",
        "    python -m b",
        f"    {long}",
        "c: no GPU",
    ]


def test_this_machine_says_what_is_next():
    assert "\nnext " in repr(this_machine()) and '<a href="../lectures/' in this_machine()._repr_html_()
