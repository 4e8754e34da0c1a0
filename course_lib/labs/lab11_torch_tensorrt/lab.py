"""Lab 11, compile inside PyTorch: a converter, a module that is one engine, and settings, judged by the released Torch-TensorRT."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from course_lib.engines.backends.torch_tensorrt import installation
from course_lib.errors import MISSING_FILE, BackendUnavailable, CourseError, EngineError
from course_lib.labs.framework.criteria import HALF
from course_lib.labs.framework.examination import Examination, Examiner
from course_lib.labs.framework.isolation import module_command, read_hostile, run_isolated
from course_lib.labs.framework.lab import Lab
from course_lib.labs.framework.submission_files import missing, read_text, read_toml
from course_lib.labs.framework.task import Outcome, Task
from course_lib.labs.lab11_torch_tensorrt import checks
from course_lib.labs.lab11_torch_tensorrt.sandboxed.compile_files import CONVERTER, MODEL

SETTINGS = "settings.toml"
MAX_BYTES = 64 << 10  # of a file
_LIMIT_S = 120.0  # of one process; the reference takes 6 s
_MAX_ANSWER = 8 << 20
_PROGRAM = "course_lib.labs.lab11_torch_tensorrt.sandboxed.compile_files"
_INVALID = "its process answered in another form than the grader's program"
_PARTIAL = {"min_block_size": 1}
_RUN = "The task's cell writes it. Run it, then check again."
_FAILED = "The message says what failed in the grader's process."
_EMPTY = "Write its body, and run the cell, which writes the file."


class InsidePyTorch(Lab):
    """The submission is `converter.py`, `model.py` and `settings.toml`."""

    name = "lab11_torch_tensorrt"
    title = "Lab 11: compile inside PyTorch"
    artifacts: ClassVar = {CONVERTER: MAX_BYTES, MODEL: MAX_BYTES, SETTINGS: MAX_BYTES}
    packages: ClassVar = ("torch", "numpy")
    tasks = (
        Task("converter", "A converter for the median", 3),
        Task("model", "One engine with right answers", 4),
        Task("settings", "Settings for a day's traffic", 3),
    )
    process_s: ClassVar = 240.0  # the reference takes 15 s
    sandbox: ClassVar = {"address_bytes": 24 << 30}  # torch and the compiler reserve more than they use

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """The reference's three files."""
        from course_lib.labs.lab11_torch_tensorrt import reference

        for name, text in ((CONVERTER, reference.CONVERTER), (MODEL, reference.MODEL), (SETTINGS, reference.SETTINGS)):
            (folder / name).write_text(text, encoding="utf-8")

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Convert secret medians, compile the module with secret weights, and compile with the settings."""
        judges = {"converter": self._converter, "model": self._model, "settings": self._settings}
        outcomes = []
        for task, judge in judges.items():
            if only in (None, task):
                examiner.begins(f"{task}: Torch-TensorRT", 6)
                try:
                    outcomes.append(judge(folder, examiner))
                except BackendUnavailable:
                    raise
                except CourseError as error:
                    hint = _RUN if error.code == MISSING_FILE else _FAILED
                    outcomes.append(self.outcome(task, "none", error, hint))
        return Examination(tuple(outcomes))

    def _converter(self, folder: Path, examiner: Examiner) -> Outcome:
        asked = checks.cases(examiner.rng())
        found = examined_files(folder, examiner, [CONVERTER], {"converter": [case.question() for case in asked]})
        return self._judged("converter", CONVERTER, found, lambda: checks.converter(found, asked))

    def _model(self, folder: Path, examiner: Examiner) -> Outcome:
        from course_lib.labs.lab11_torch_tensorrt import given

        rng = examiner.rng()
        seed, batches = int(rng.integers(1 << 30)), [1, int(rng.integers(2, 32))]
        least, most = given.RANGE
        question = {"seed": seed, "batches": batches, "range": [least, given.BATCH, most], "options": _PARTIAL}
        found = examined_files(folder, examiner, [MODEL, CONVERTER], {"model": question})
        drawn = given.weights(np.random.default_rng(seed))
        rows = [given.inputs(np.random.default_rng(seed + batch), batch) for batch in batches]
        expected = [given.logits(drawn, one).numpy() for one in rows]
        return self._judged("model", MODEL, found, lambda: checks.model(found, expected))

    def _settings(self, folder: Path, examiner: Examiner) -> Outcome:
        from course_lib.labs.lab11_torch_tensorrt import given

        batch, options = _read_settings(folder / SETTINGS)
        if not batch:
            return self.outcome("settings", "none", f"{SETTINGS} is still empty.", _EMPTY)
        question = {"seed": int(examiner.rng().integers(1 << 30)), "batches": [batch["opt"]], "options": options}
        question["range"] = [batch["min"], batch["opt"], batch["max"]]
        parts = {"model": question, "border": options}
        found = examined_files(folder, examiner, [MODEL, CONVERTER], parts, needed=False)
        found = replace(found, failed="", empty=False)
        return self._judged("settings", SETTINGS, found, lambda: checks.settings(batch, given.TRAFFIC, found))

    def _judged(self, task: str, file: str, found: checks.Found, check: Callable[[], Iterable[checks.Checked]]) -> Outcome:
        if found.empty:
            return self.outcome(task, "none", f"{file} is still empty.", _EMPTY)
        if found.failed:
            hint = "Does a method contain the batch size? A reshape with -1, or flatten, reads it from the tensor."
            return self.outcome(
                task, "none", EngineError(f"{file}: {found.failed}"), hint if "export" in found.failed else _FAILED
            )
        several = list(check())
        full = [criterion for criterion, _ in several]
        half = [criterion for criterion in full if criterion.needed_for == HALF]
        hints = [hint for needed in (half, full) for criterion, hint in several if criterion in needed and not criterion.met]
        return self.judged(task, full, half, hints[0] if hints else "")


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
    if needed and not (folder / files[0]).is_file():
        raise EngineError(missing(files[0]), code=MISSING_FILE)
    sources = {name: read_text(folder / name, MAX_BYTES) for name in files if (folder / name).is_file()}
    question = json.dumps({"sources": sources, **parts}).encode()
    command = module_command(_PROGRAM)
    answer = run_isolated(command, question, launcher=examiner.launcher, time_limit_s=_LIMIT_S, max_bytes=_MAX_ANSWER)
    return read_hostile(answer, lambda values: checks.read(values, files[0]), _INVALID)


def _read_settings(file: Path) -> tuple[dict[str, int], dict[str, Any]]:
    """The tables ``batch`` and ``compile``. Both are empty in a file without content.

    Raises:
        EngineError: it is missing, or has other tables or values.
    """
    if not file.is_file():
        raise EngineError(missing(file.name), code=MISSING_FILE)
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


lab = InsidePyTorch()
