"""What `course migrate` writes for machines, what it leaves out, and how fast it passes over what is not about TensorRT."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from course_lib.migration import report, scan, scanner
from course_lib.migration.findings import Finding, Verdict
from course_lib.migration.scanner import Scan, target_version

SAMPLES = Path(__file__).parent / "samples"
OLD = "import tensorrt as trt\ntrt.BuilderFlag.FP16\ntrt.UffParser()\n"


@pytest.fixture(scope="module")
def samples() -> Scan:
    return scan([SAMPLES])


def test_a_line_is_path_line_severity_name_and_advice(samples: Scan) -> None:
    written = report.lines(samples)
    assert len(written) == len(samples.findings) > 100 and all("\n" not in line for line in written)
    for line, one in zip(written, samples.findings, strict=True):
        place = f"cell {one.cell}:{one.line}" if one.cell else f"{one.line}"
        assert line.startswith(f"{one.file}:{place}: {one.verdict.severity} {one.verdict.name}: {one.verdict.use}")


def test_annotations_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "a,b:c%.py").write_text(OLD)
    (tmp_path / "bad.ipynb").write_text("{")
    first, second, third = report.github(scan([tmp_path], "10.16"))
    assert first.startswith("::warning file=") and "a%2Cb%3Ac%25.py,line=2,title=deprecated BuilderFlag.FP16::" in first
    assert second.startswith("::error file=") and ",line=3," in second and third.startswith("::error::")


@pytest.mark.parametrize(
    ("name", "text", "source"),
    [
        ("a.py", "import tensorrt as trt\n\n  # old\nparser = \\\n    trt.UffParser()  # [x]\n", "trt.UffParser() # [x]"),
        ("a.sh", "x=1\ntrtexec --onnx=a.onnx \\\n  --fp16\n", "trtexec --onnx=a.onnx --fp16"),
        ("a.md", "Text\n\n```python\nimport tensorrt as trt\ntrt.UffParser()\n```\n", "trt.UffParser()"),
        ("requirements.txt", "numpy\ntensorrt==8.6.1\n", "tensorrt==8.6.1"),
        ("a.ipynb", json.dumps({"cells": [{"cell_type": "code", "source": "y = 1\n!trtexec --fp16"}]}), "trtexec --fp16"),
    ],
)
def test_a_finding_has_its_line(name: str, text: str, source: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    (finding,) = scan([tmp_path]).findings
    assert finding.source == source and report.block(finding)[1] == source


@pytest.mark.parametrize(
    ("advice", "marked"),
    [
        ("context.profiler = profiler", "`context.profiler = profiler`"),
        (
            "leave it out: trtexec never had this flag (until TensorRT 10)",
            "leave it out: trtexec never had this flag (until TensorRT 10)",
        ),
        ("cast the model (model.half(), or add_cast)", "cast the model (`model.half()`, or `add_cast`)"),
        (
            "OnnxParser(network, logger).parse(bytes) and get_error(i)",
            "`OnnxParser(network, logger).parse(bytes)` and `get_error(i)`",
        ),
        ("--shapes=input:8x3, with --minShapes", "`--shapes=input:8x3`, with `--minShapes`"),
        ("pip install nvidia-modelopt", "`pip install nvidia-modelopt`"),
        ("Q/DQ nodes in the graph", "Q/DQ nodes in the graph"),
    ],
)
def test_code_in_an_advice_is_told_from_prose(advice: str, marked: str) -> None:
    finding = Finding("a.py", 1, None, Verdict("Name", "removed", "10.0", advice, 2))
    assert report.block(finding)[2] == f"{marked} (lecture 2)"


# ---- what is left out


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("trt.UffParser()  # migrate: ignore", 0),
        ("trt.UffParser()  # needed by the old board; migrate: ignore", 1),  # the comment begins with it
        ("# migrate: ignore\ntrt.UffParser()", 0),
        ("trt.UffParser()  # migrate: ignore[UffParser]", 0),
        ("trt.UffParser()  # migrate: ignore[ BuilderFlag.FP16, UffParser ]", 0),
        ("trt.UffParser()  # migrate: ignored", 1),
        ("x = '# migrate: ignore'\ntrt.UffParser()", 1),
        ("trt.UffParser()  # migrate: ignore\ntrt.UffParser()", 1),
    ],
)
def test_a_comment_keeps_a_finding_back(text: str, left: int, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"import tensorrt as trt\n{text}\n")
    found = scan([tmp_path])
    assert len(found.findings) == left and found.silenced == text.count("trt.UffParser()") - left
    assert ("suppressed" in report.summary(found)[-1]) is (found.silenced > 0)


def test_comments_count_in_scripts_requirements_and_notebooks(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("trtexec --fp16  # migrate: ignore\n# migrate: ignore\ntrtexec --best\ntrtexec --int8\n")
    (tmp_path / "requirements.txt").write_text("tensorrt==8.6.1  # migrate: ignore\n")
    cell = {"cell_type": "code", "source": "import tensorrt as trt\n# migrate: ignore\ntrt.UffParser()\ntrt.UffParser()"}
    (tmp_path / "n.ipynb").write_text(json.dumps({"cells": [cell]}))
    found = scan([tmp_path])
    assert [(one.line, one.verdict.name) for one in found.findings] == [(4, "trtexec --int8"), (4, "UffParser")]
    assert found.silenced == 4


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        ((), {"a.py", "docs/b.py", "docs/deep/c.py", "x_pb2.py"}),
        (("docs",), {"a.py", "x_pb2.py"}),
        (("*_pb2.py", "a.*"), {"docs/b.py", "docs/deep/c.py"}),
        (("docs/*.py",), {"a.py", "x_pb2.py"}),
        (("deep",), {"a.py", "docs/b.py", "x_pb2.py"}),
    ],
)
def test_folders_and_files_are_excluded(patterns: tuple[str, ...], left: set[str], tmp_path: Path) -> None:
    for name in ("a.py", "docs/b.py", "docs/deep/c.py", "x_pb2.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(OLD)
    found = scan([tmp_path], exclude=patterns)
    assert {Path(one.file).relative_to(tmp_path).as_posix() for one in found.findings} == left


# ---- versions without a table


@pytest.mark.parametrize(
    ("asked", "table"),
    [
        ("10.3", "10.15"),
        ("11.1", "11.0"),
        ("11.9", "11.4"),
        ("8.5.3", "8.6.1"),
    ],
)
def test_a_version_in_between_gets_the_nearest_table(asked: str, table: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(OLD)
    found = scan([tmp_path], asked)
    assert target_version(asked) == found.target == table
    assert found.notes == (f"there is no table of TensorRT {asked}: the one of {table} is used",)


# ---- files that are not read, and odd ones


@pytest.mark.parametrize("error", [MemoryError(), OverflowError("x"), RecursionError(), ValueError("odd")])
def test_one_odd_file_does_not_end_the_scan(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text(OLD)
    (tmp_path / "b.py").write_text(f"{OLD}# odd\n")
    judged = scanner.scan_source

    def odd(source: Any, target: str) -> Any:
        if "odd" in source.programs[0].text:
            raise error
        return judged(source, target)

    monkeypatch.setattr(scanner, "scan_source", odd)
    found = scan([tmp_path])
    assert len(found.findings) == 2 and len(found.unread) == 1 and "b.py: cannot be analyzed" in found.unread[0]


def test_folders_nested_deeper_than_a_path_may_be_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended with a traceback of rglob. What has no path is one short line."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    monkeypatch.chdir(tmp_path)
    for depth in range(60):
        if depth in (0, 40):
            Path("a.py").write_text(OLD)
        Path(20 * "name").mkdir()
        os.chdir(20 * "name")
    found = scan([tmp_path])
    assert len(found.findings) == 4 and found.files == 2 and not found.unread
    (note,) = found.notes
    assert note.endswith(": the folder was not read: File name too long") and len(note) < 300


# ---- the look at the bytes


def test_the_first_look_loses_no_finding(samples: Scan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner, "may_hold_findings", lambda data: True)
    thorough = scan([SAMPLES])
    assert thorough.findings == samples.findings and thorough.files == samples.files
