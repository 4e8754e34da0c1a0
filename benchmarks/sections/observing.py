"""What a call returned, raised and printed: the vocabulary of every section, and rows that are on disk as soon as they are known."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec

from course_lib._util.files import write_atomically

_P = ParamSpec("_P")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_LONGEST = 1500  # characters of one text in a row


def file_of(folder: Path, section: str, ending: str) -> Path:
    """Where a section keeps its rows, its outcome or its log."""
    return folder / f"{section.replace(':', '-').replace(',', '-')}.{ending}"


class Rows:
    """The rows of one section in a file, which is complete after each of them."""

    def __init__(self, folder: Path, section: str) -> None:
        self._path, self._section = file_of(folder, section, "rows.json"), section.partition(":")[0]
        self._rows: list[dict[str, Any]] = []

    def add(self, case: str, **facts: Any) -> None:
        """Write one more row."""
        self._rows.append({"section": self._section, "case": case, **facts})
        write_atomically(self._path, (json.dumps(self._rows, indent=1, default=str) + "\n").encode())
        print(self._section, "|", case, json.dumps(facts, default=str)[:400], flush=True)


@dataclass
class Seen:
    """What came of a call.

    Attributes:
        value: what it returned, or None.
        failed: class and text of its exception, or None.
        seconds: how long it took.
        warnings: warnings of Python and of Torch-TensorRT's loggers, without repetitions.
        messages: records of Torch-TensorRT's loggers at every level that was switched on.
        printed: what the process wrote to its standard output and error, C++ libraries included.
        settings: Torch-TensorRT's own account of the settings that it compiled with, or None.
    """

    value: Any = None
    failed: str | None = None
    seconds: float = 0.0
    warnings: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    printed: str = ""
    settings: dict[str, Any] | None = None

    def lines(self, *words: str) -> list[str]:
        """The different printed or logged lines with one of the words, in their order."""
        text = [line.strip() for line in "\n".join([*self.messages, self.printed]).splitlines()]
        return list(dict.fromkeys(line[:_LONGEST] for line in text if any(word in line for word in words)))

    def facts(self) -> dict[str, Any]:
        """What every row says."""
        errors = self.lines("[E] ", "ERROR: ", "[ERROR]")
        return {
            "failed": self.failed,
            "seconds": round(self.seconds, 3),
            "warnings": self.warnings,
            **({"errors_printed": errors[:4]} if errors else {}),
        }


def observed(call: Callable[_P, Any], *args: _P.args, **kwargs: _P.kwargs) -> Seen:
    """Call a function with these arguments; whatever it raises is part of the answer."""
    seen = Seen()
    with _output() as printed, _log() as records, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        started = time.perf_counter()
        try:
            seen.value = call(*args, **kwargs)
        except Exception as error:
            seen.failed = one_line(error)
        seen.seconds = time.perf_counter() - started
    seen.printed = printed()
    seen.messages = [_message(record) for record in records]
    said = [_message(record) for record in records if record.levelno >= logging.WARNING]
    said += [str(each.message) for each in warned if _concerns(each)]
    seen.warnings = list(dict.fromkeys(text[:_LONGEST] for text in said))
    for record in records:
        if str(record.msg).startswith("Compilation Settings") and record.args:
            settings = record.args[0] if isinstance(record.args, tuple) else record.args
            seen.settings = {name: str(value) for name, value in vars(settings).items()}
    return seen


def one_line(error: BaseException) -> str:
    """Class and text of an exception."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:_LONGEST]


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()[:20000]
    except Exception as error:  # a message whose arguments do not fit
        return f"{record.msg} ({type(error).__name__})"


def _concerns(warned: warnings.WarningMessage) -> bool:
    return "tensorrt" in f"{warned.filename} {warned.message}".lower()


@contextlib.contextmanager
def _log() -> Iterator[list[logging.LogRecord]]:
    """Records of Torch-TensorRT's Python loggers. INFO is on, since the settings come at that level."""
    records: list[logging.LogRecord] = []

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    logger, keeper = logging.getLogger("torch_tensorrt"), Keeper()
    before, dynamo = logger.level, logging.getLogger("torch_tensorrt.dynamo")
    dynamo_before = dynamo.level
    logger.addHandler(keeper)
    logger.setLevel(logging.INFO)
    try:
        yield records
    finally:
        logger.removeHandler(keeper)
        logger.setLevel(before)
        dynamo.setLevel(dynamo_before)


@contextlib.contextmanager
def _output() -> Iterator[Callable[[], str]]:
    """Everything that is written to file descriptors 1 and 2."""
    text, flush_c = "", ctypes.CDLL(None).fflush
    with tempfile.TemporaryFile() as file:
        sys.stdout.flush()
        sys.stderr.flush()
        flush_c(None)  # what C libraries hold back belongs to an earlier call
        kept = os.dup(1), os.dup(2)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: text
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            flush_c(None)
            for descriptor, old in zip((1, 2), kept, strict=True):
                os.dup2(old, descriptor)
                os.close(old)
            file.seek(0)
            text = _COLOR.sub("", file.read().decode(errors="replace"))
