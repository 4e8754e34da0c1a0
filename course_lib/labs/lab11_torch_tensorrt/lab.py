"""Lab 11, compile inside PyTorch: a converter, a module that is one engine, and settings, judged by the released Torch-TensorRT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from course_lib.engines.backends.torch_tensorrt import installation
from course_lib.errors import MISSING_FILE, BackendUnavailable, EngineError
from course_lib.labs.framework.criteria import HALF, Criterion, Task, holds
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.framework.lab import Lab, Work
from course_lib.labs.framework.runner import ask
from course_lib.labs.framework.submission import read_text, read_toml
from course_lib.labs.lab11_torch_tensorrt import checks
from course_lib.labs.lab11_torch_tensorrt.sandboxed.compile_files import CONVERTER, MODEL

SETTINGS = "settings.toml"
MAX_BYTES = 64 << 10  # of a file
_LIMIT_S = 120.0  # of one process; the reference takes 6 s
_PROGRAM = "course_lib.labs.lab11_torch_tensorrt.sandboxed.compile_files"
_PARTIAL = {"min_block_size": 1}
_RUN = "The task's cell writes it. Run it, then check again."
_FAILED = "The message says what failed in the grader's process."


def _converter(work: Work) -> Iterator[Criterion]:
    """Secret medians."""
    work.examiner.begins("converter: Torch-TensorRT", 6)
    asked = checks.cases(work.rng())
    found = examined_files(work.folder, work.examiner, [CONVERTER], checks.question(asked))
    yield from _written(CONVERTER, found) or checks.converter(found, asked)


def _model(work: Work) -> Iterator[Criterion]:
    """The module with secret weights, at one batch size that is known and one that is drawn."""
    from course_lib.labs.lab11_torch_tensorrt import given

    work.examiner.begins("model: Torch-TensorRT", 6)
    rng = work.rng()
    seed, batches = int(rng.integers(1 << 30)), [1, int(rng.integers(2, 32))]
    least, most = given.RANGE
    question = {"seed": seed, "batches": batches, "range": [least, given.BATCH, most], "options": _PARTIAL}
    found = examined_files(work.folder, work.examiner, [MODEL, CONVERTER], {"model": question})
    drawn = given.weights(np.random.default_rng(seed))
    rows = [given.inputs(np.random.default_rng(seed + batch), batch) for batch in batches]
    expected = [given.logits(drawn, one).numpy() for one in rows]
    yield from _written(MODEL, found) or checks.model(found, expected)


def _settings(work: Work) -> Iterator[Criterion]:
    """The given module and the learner's, compiled with the settings."""
    from course_lib.labs.lab11_torch_tensorrt import given

    work.examiner.begins("settings: Torch-TensorRT", 6)
    batch, options = _read_settings(work.folder / SETTINGS)
    if not batch:
        yield _empty(SETTINGS)
        return
    question = {"seed": int(work.rng().integers(1 << 30)), "batches": [batch["opt"]], "options": options}
    question["range"] = [batch["min"], batch["opt"], batch["max"]]
    parts = {"model": question, "border": options}
    found = examined_files(work.folder, work.examiner, [MODEL, CONVERTER], parts, needed=False)
    yield from checks.settings(batch, given.TRAFFIC, found)


def _written(file: str, found: checks.Found) -> list[Criterion]:
    """Why the file cannot be examined; empty if it can."""
    if found.empty:
        return [_empty(file)]
    if found.failed:
        hint = "Does a method contain the batch size? A reshape with -1, or flatten, reads it from the tensor."
        hint = hint if "export" in found.failed else _FAILED
        return [replace(holds(f"{file} runs", False, HALF, hint=hint), symptom=f"{file}: {found.failed}")]
    return []


def _empty(file: str) -> Criterion:
    hint = "Write its body, and run the cell, which writes the file."
    return replace(holds(f"{file} is written", False, HALF, hint=hint), symptom=f"{file} is still empty.")


def examined_files(
    folder: Path, examiner: Examiner, files: Sequence[str], parts: Mapping[str, Any], *, needed: bool = True
) -> checks.Found:
    """What the process of the learner's files finds. The notebook asks it, too.

    Args:
        files: that are sent if they exist, the task's own first.
        parts: see `compile_files.answer`.
        needed: whether the first file must exist.

    Raises:
        BackendUnavailable: Torch-TensorRT is not installed on this machine.
        EngineError: that file is missing, or the process ended or sent another form.
    """
    if (release := installation.installed_release()) != installation.RELEASE:
        raise BackendUnavailable(
            f"lab 11 needs Torch-TensorRT {installation.RELEASE}, found {release or 'none'}: {installation.INSTALL}"
        )
    sent = [name for name in files if (folder / name).is_file() or (needed and name == files[0])]
    sources = {name: read_text(folder / name, MAX_BYTES) for name in sent}
    question = {"sources": sources, **parts}
    return ask(_PROGRAM, question, lambda values: checks.read(values, files[0]), examiner.launcher, time_limit_s=_LIMIT_S)


def _read_settings(file: Path) -> tuple[dict[str, int], dict[str, Any]]:
    """The tables ``batch`` and ``compile``. Both are empty in a file without content."""
    tables = read_toml(file, MAX_BYTES)
    if not tables:
        return {}, {}
    batch, options = tables.get("batch", {}), tables.get("compile", {})
    if set(tables) - {"batch", "compile"} or not isinstance(options, dict):
        raise EngineError(f"{file.name} has the tables {', '.join(tables)}: expected [batch] and [compile]")
    sizes = [batch.get(name, 0) for name in ("min", "opt", "max")] if isinstance(batch, dict) else [0]
    if not all(type(size) is int and 1 <= size <= 1024 for size in sizes) or sizes != sorted(sizes):
        raise EngineError(f"{file.name}: [batch] needs integers with 1 <= min <= opt <= max, found {batch}"[:200])
    return dict(zip(("min", "opt", "max"), sizes, strict=True)), options


class InsidePyTorch(Lab):
    """The submission is `converter.py`, `model.py` and `settings.toml`."""

    name = "lab11_torch_tensorrt"
    title = "Lab 11: compile inside PyTorch"
    artifacts: ClassVar = {CONVERTER: MAX_BYTES, MODEL: MAX_BYTES, SETTINGS: MAX_BYTES}
    tasks = (
        Task("converter", "A converter for the median", 3, _converter),
        Task("model", "One engine with right answers", 4, _model),
        Task("settings", "Settings for a day's traffic", 3, _settings),
    )
    run_hint = _FAILED
    build_hints: ClassVar = {MISSING_FILE: _RUN}
    process_s: ClassVar = 240.0  # the reference takes 15 s
    sandbox: ClassVar = {"address_bytes": 24 << 30}  # torch and the compiler reserve more than they use


lab = InsidePyTorch()
