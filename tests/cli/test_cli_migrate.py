"""`course migrate`: tables for people, one JSON document for programs, an exit status for continuous integration."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.command import Course

OLD = "import tensorrt as trt\nbuilder = trt.Builder(trt.Logger())\nbuilder.max_workspace_size = 1 << 30\n"
NEW = "import tensorrt as trt\nconfig = trt.Builder(trt.Logger()).create_builder_config()\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "old.py").write_text(OLD)
    (tmp_path / "new.py").write_text(NEW)
    return tmp_path


def test_findings_fail(folder: Path, course: Course) -> None:
    done = course("migrate", folder)
    assert done.status == 1 and done.err == ""
    for text in ("old.py", "3", "removed", "Builder.max_workspace_size", "set_memory_pool_limit", "8.0", "lecture 2"):
        assert text in done.out
    assert done.out.endswith("2 files read for TensorRT 11.4: 1 removed\n") and "new.py" not in done.out


def test_what_is_right_or_only_deprecated_does_not_fail(folder: Path, tmp_path: Path, course: Course) -> None:
    done = course("migrate", folder / "new.py", "--to", "11")
    assert (done.status, done.out) == (0, "1 file read for TensorRT 11.4: nothing to change\n")
    (tmp_path / "a.py").write_text("import tensorrt as trt\ntrt.BuilderFlag.FP16\n")
    done = course("migrate", tmp_path / "a.py", "--to", "10.16")
    assert done.status == 0 and "deprecated" in done.out and "10.12" in done.out
    assert course("migrate", tmp_path / "a.py", "--to", "11.0").status == 1


def test_json_is_one_document(folder: Path, course: Course) -> None:
    done = course("migrate", folder, "--json")
    document = done.document()
    assert done.status == 1 and document["target"] == "11.4" and document["files"] == 2
    assert document["notes"] == document["unread"] == []
    assert document["counts"] == {"removed": 1, "unknown": 0, "ignored": 0, "changed": 0, "deprecated": 0}
    assert document["findings"] == [
        {
            "file": str(folder / "old.py"),
            "line": 3,
            "cell": None,
            "source": "builder.max_workspace_size = 1 << 30",
            "name": "Builder.max_workspace_size",
            "severity": "removed",
            "since": "8.0",
            "use": "config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, size)",
            "lecture": "lecture 2",
        }
    ]


def test_cells_are_told(tmp_path: Path, course: Course) -> None:
    cell = {"cell_type": "code", "source": ["!trtexec --fp16"]}
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": []}, cell]}))
    assert f"{tmp_path / 'a.ipynb'}:cell 2:1: removed trtexec --fp16: " in course("migrate", tmp_path).out
    shown = course("migrate", tmp_path, "--format", "table").out
    assert (
        "a.ipynb:cell 2:1 trtexec --fp16: removed in 11.0\n    trtexec --fp16\n    instead: cast the ONNX model (`modelopt"
        in shown
    )


def test_status_2_where_nothing_was_read(tmp_path: Path, course: Course) -> None:
    (tmp_path / "a.ipynb").write_text("{")
    done = course("migrate", tmp_path)
    assert done.status == 2 and "note: " in done.out and "not a notebook" in done.out and done.out.count("\n") == 2
    (tmp_path / "a.ipynb").unlink()
    (tmp_path / "a.cpp").write_text("b->setMaxBatchSize(1);\n", encoding="utf-8")
    done = course("migrate", tmp_path)
    assert done.status == 2 and done.out.startswith(f"note: {tmp_path}: 1 file of C++ and CUDA not read")
    assert done.out.endswith("0 files read for TensorRT 11.4: nothing was checked\n")
    done = course("migrate", tmp_path / "a.cpp")
    assert done.status == 2 and "a.cpp: not read" in done.out
    (tmp_path / "a.py").write_text(NEW, encoding="utf-8")
    done = course("migrate", tmp_path)
    assert done.status == 0 and "1 file of C++ and CUDA not read" in done.out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("no/such",), "does not exist"),
        ((".", "--format", "xml"), "no format 'xml': there are table"),
        ((".", "--to", "9.1"), "no table of TensorRT '9.1': there are 8.6.1"),
        ((), "PATH"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(arguments: tuple[str, ...], text: str, course: Course) -> None:
    done = course("migrate", *arguments)
    assert done.status == 2 and done.out == "" and text in done.err and done.err.count("\n") == 1


@pytest.mark.parametrize("output", ["lines", "json", "github", "table"])
def test_each_format_has_the_finding(output: str, folder: Path, course: Course) -> None:
    done = course("migrate", folder, "--format", output)
    assert done.status == 1 and done.err == "" and "Builder.max_workspace_size" in done.out
    start = {"lines": f"{folder / 'old.py'}:3: removed Builder", "github": "::error file=", "json": "{"}.get(
        output, str(folder)
    )
    assert done.out.startswith(start)


def test_a_pipe_gets_lines_and_a_terminal_blocks_with_whole_names(
    folder: Path, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = "config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, size)"
    piped = course("migrate", folder).out
    assert piped.startswith(f"{folder / 'old.py'}:3: removed Builder.max_workspace_size: {new}")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    shown = re.sub(r"\x1b\[\d*m", "", course("migrate", folder).out)
    assert f"\n    builder.max_workspace_size = 1 << 30\n    instead: `{new}` \n      (lecture 2)\n\n" in shown
    assert " ".join(shown.replace("\n      ", "").split()).startswith(
        f"{folder / 'old.py'}:3 Builder.max_workspace_size: removed in 8.0"
    )


def test_what_was_asked_for_is_said(folder: Path, course: Course) -> None:
    done = course("migrate", folder, "--to", "10.3", "--exclude", "old.py")
    assert done.status == 0 and done.out.count("10.15") == 2 and "there is no table of TensorRT 10.3" in done.out
