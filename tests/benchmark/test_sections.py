"""A recording in sections: what fails, dies or takes too long costs its own rows only. And what a call returned, raised and printed."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

from benchmarks import ort_tensorrt, torch_trt
from benchmarks.sections.lanes import Recording, assemble, run
from benchmarks.sections.observing import observed
from benchmarks.torch_trt_parts import child as torch_child

PROGRAM = """
import os, sys, time
from pathlib import Path
from benchmarks.sections.child import ready, run_sections

def timed(rows):
    ready("timed")
    rows.add("measured", others=sorted(path.name for path in Path(sys.argv[1]).glob("*.outcome.json")))

def fails(rows):
    rows.add("before")
    raise ValueError("no such thing")

run_sections(
    {
        "installed": lambda rows: rows.add("installed", numpy="1.26"),
        "fails": fails,
        "dies": lambda rows: os.kill(os.getpid(), 9),
        "after": lambda rows: rows.add("runs all the same"),
        "stays": lambda rows: time.sleep(600),
        "timed": timed,
    },
    Path(sys.argv[1]),
    sys.argv[2:],
)
"""


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recording:
    (tmp_path / "toy_sections.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Recording("toy_sections", (("installed", "fails", "dies", "after"), ("stays",)), ("timed",), ("numpy",), 600.0)


def _record(
    recording: Recording, tmp_path: Path, names: list[str], seconds: float, at_once: int = 1
) -> dict[tuple[str, str], dict[str, Any]]:
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "about.json").write_text('{"device": "toy"}')
    run(recording, folder, names, seconds, at_once)
    assemble(recording, folder, tmp_path / "record.json")
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["device"] == "toy"
    return {(row["section"], row["case"]): row for row in record["rows"]} | {("", ""): record}


def test_a_section_that_fails_or_dies_costs_its_own_rows(recording: Recording, tmp_path: Path) -> None:
    rows = _record(recording, tmp_path, ["installed", "fails", "dies", "after"], 120)
    assert rows["fails", ""]["failed"] == "ValueError: no such thing" and ("fails", "before") in rows
    assert rows["dies", ""]["failed"] == "the process ended with -9"
    assert ("after", "runs all the same") in rows
    assert rows["", ""]["versions"] == {"numpy": "1.26"}


@pytest.mark.slow  # it waits for the end of the time
def test_what_does_not_end_is_ended_and_waits_while_others_are_timed(recording: Recording, tmp_path: Path) -> None:
    began = time.monotonic()
    rows = _record(recording, tmp_path, ["stays", "timed"], 12, 2)
    assert time.monotonic() - began < 90
    assert rows["stays", ""]["failed"] == "not started, or not ended in time"
    assert rows["timed", "measured"]["others"] == []


def test_every_section_has_a_function() -> None:
    from benchmarks.ort_tensorrt_parts import child as ort_child

    assert set(torch_trt.RECORDING.sections) == set(torch_child.sections(Path()))
    assert set(ort_tensorrt.RECORDING.sections) == set(ort_child.SECTIONS)
    assert set(torch_child.ALONE) <= set(torch_trt.RECORDING.sections) and set(ort_child.ALONE) <= set(ort_child.SECTIONS)


def test_what_is_printed_below_python_is_part_of_the_answer(capfd: pytest.CaptureFixture[str]) -> None:
    def call() -> int:
        os.write(1, b"to standard output\n")
        ctypes.CDLL(None).puts(b"\x1b[1;31mERROR: by C\x1b[0m")
        os.write(2, b"to standard error\n")
        logging.getLogger("torch_tensorrt.dynamo").warning("logged")
        warnings.warn("torch_tensorrt warns", stacklevel=1)
        warnings.warn("another package warns", stacklevel=1)
        return 3

    seen = observed(call)
    assert (seen.value, seen.failed) == (3, None) and seen.seconds > 0
    assert {"to standard output", "ERROR: by C", "to standard error"} <= set(seen.printed.splitlines())
    assert seen.warnings == ["logged", "torch_tensorrt warns"]
    assert seen.facts()["errors_printed"] == ["ERROR: by C"]
    assert capfd.readouterr().out == ""
