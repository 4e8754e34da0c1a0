"""`course migrate`: tables for people, one JSON document for programs, an exit status for continuous integration."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from course_lib.cli import app

OLD = "import tensorrt as trt\nbuilder = trt.Builder(trt.Logger())\nbuilder.max_workspace_size = 1 << 30\n"
NEW = "import tensorrt as trt\nconfig = trt.Builder(trt.Logger()).create_builder_config()\n"


def course(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    monkeypatch.setenv("COURSE_DEBUG", "")
    monkeypatch.setattr(sys, "argv", ["course", "migrate", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        app.main()
    assert left.value.code is None or isinstance(left.value.code, int)
    return left.value.code or 0, *capsys.readouterr()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "old.py").write_text(OLD)
    (tmp_path / "new.py").write_text(NEW)
    return tmp_path


def test_findings_fail(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = course(monkeypatch, capsys, folder)
    assert status == 1 and err == ""
    for text in ("old.py", "3", "removed", "Builder.max_workspace_size", "set_memory_pool_limit", "8.0", "lecture 2"):
        assert text in out
    assert out.endswith("2 files read for TensorRT 11.4: 1 removed\n") and "new.py" not in out


def test_nothing_to_change(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = course(monkeypatch, capsys, folder / "new.py", "--to", "11")
    assert (status, out) == (0, "1 file read for TensorRT 11.4: nothing to change\n")


def test_what_is_deprecated_does_not_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("import tensorrt as trt\ntrt.BuilderFlag.FP16\n")
    status, out, _ = course(monkeypatch, capsys, tmp_path, "--to", "10.16")
    assert status == 0 and "deprecated" in out and "10.12" in out
    assert course(monkeypatch, capsys, tmp_path, "--to", "11.0")[0] == 1


def test_json_is_one_document(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = course(monkeypatch, capsys, folder, "--json")
    document: dict[str, Any] = json.loads(out)
    assert status == 1 and err == ""
    assert document["target"] == "11.4" and document["files"] == 2 and document["notes"] == document["unread"] == []
    assert document["counts"] == {"removed": 1, "unknown": 0, "ignored": 0, "changed": 0, "deprecated": 0}
    assert document["findings"] == [
        {
            "file": str(folder / "old.py"),
            "line": 3,
            "cell": None,
            "name": "Builder.max_workspace_size",
            "severity": "removed",
            "since": "8.0",
            "use": "config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, size)",
            "lecture": "lecture 2",
        }
    ]


def test_cells_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    cell = {"cell_type": "code", "source": ["!trtexec --fp16"]}
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": [{"cell_type": "markdown", "source": []}, cell]}))
    assert f"{tmp_path / 'a.ipynb'}:cell 2:1: removed trtexec --fp16: " in course(monkeypatch, capsys, tmp_path)[1]
    assert "cell 2, 1" in course(monkeypatch, capsys, tmp_path, "--format", "table")[1]


def test_a_file_that_cannot_be_read_is_status_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.ipynb").write_text("{")
    status, out, _ = course(monkeypatch, capsys, tmp_path)
    assert status == 2 and "note: " in out and "not a notebook" in out and out.count("\n") == 2


def test_status_2_where_nothing_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.cpp").write_text("b->setMaxBatchSize(1);\n", encoding="utf-8")
    status, out, _ = course(monkeypatch, capsys, tmp_path)
    assert status == 2 and out.startswith(f"note: {tmp_path}: 1 file of C++ and CUDA not read")
    assert out.endswith("0 files read for TensorRT 11.4: nothing was checked\n")
    (tmp_path / "a.py").write_text(NEW, encoding="utf-8")
    status, out, _ = course(monkeypatch, capsys, tmp_path)
    assert status == 0 and "1 file of C++ and CUDA not read" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("no/such",), "does not exist"),
        ((".", "--format", "xml"), "no format 'xml': there are table"),
        ((".", "--to", "9.1"), "no table of TensorRT '9.1': there are 8.6.1"),
        ((), "PATH"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(
    arguments: tuple[str, ...], text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = course(monkeypatch, capsys, *arguments)
    assert status == 2 and out == "" and text in err and err.count("\n") == 1


@pytest.mark.parametrize("output", ["lines", "json", "github", "table"])
def test_each_format_has_the_finding(
    output: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = course(monkeypatch, capsys, folder, "--format", output)
    assert status == 1 and err == "" and "Builder.max_workspace_size" in out
    start = {"lines": f"{folder / 'old.py'}:3: removed Builder", "github": "::error file="}.get(output, "")
    assert out.startswith(start)
    if output == "json":
        assert isinstance(json.loads(out), dict)


def test_a_pipe_gets_lines_and_a_terminal_a_table(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    piped = course(monkeypatch, capsys, folder)[1]
    assert piped.startswith(f"{folder / 'old.py'}:3: removed Builder.max_workspace_size: config.set_memory_pool_limit(")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "taught in" in course(monkeypatch, capsys, folder)[1] and "taught in" not in piped


def test_what_was_asked_for_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = course(monkeypatch, capsys, folder, "--to", "10.3", "--exclude", "old.py")
    assert status == 0 and out.count("10.15") == 2 and "there is no table of TensorRT 10.3" in out
    (folder / "a.cpp").write_text("int main() {}\n")
    status, out, _ = course(monkeypatch, capsys, folder / "a.cpp")
    assert status == 2 and "a.cpp: not read" in out
