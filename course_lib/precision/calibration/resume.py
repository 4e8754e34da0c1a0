"""A file from which a killed calibration can continue: the histograms so far, and digests of their origin."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from course_lib._util.files import write_atomically
from course_lib.errors import CourseError
from course_lib.precision.calibration.histogram import StreamingHistogram

_WORDS = {"model": "another model", "data": "other data", "tensors": "other tensors", "bins": "another number of bins"}


@dataclass(frozen=True)
class Progress:
    """The number of counted batches, and their results by tensor."""

    batches: int
    histograms: Mapping[str, StreamingHistogram]


class Store:
    """The cache file of one calibration.

    Args:
        path: the file; need not exist.
        belongs: the inputs of the histograms, by the keys of `_WORDS`. A file with other inputs is not used.
    """

    def __init__(self, path: Path, belongs: Mapping[str, Any]) -> None:
        self.path = path
        self.notes: tuple[str, ...] = ()
        self._belongs = json.loads(json.dumps(belongs))  # tuples become lists, as they do in the file
        self._saved = time.monotonic()

    def load(self, tensors: tuple[str, ...]) -> Progress:
        """The progress of this calibration in the file, or none if the file is missing or unusable. `notes` says which."""
        try:
            with np.load(self.path, allow_pickle=False) as file:
                header = json.loads(str(file["header"]))
                different = [words for key, words in _WORDS.items() if header["belongs"].get(key) != self._belongs[key]]
                if different:
                    self._note(f"belongs to {' and '.join(different)}: it was replaced")
                    return Progress(0, {})
                histograms = {
                    name: StreamingHistogram.restored(name, file[f"counts{i}"], file[f"numbers{i}"])
                    for i, name in enumerate(tensors)
                }
        except FileNotFoundError:
            return Progress(0, {})
        except (
            OSError,
            ValueError,
            RecursionError,
            KeyError,
            TypeError,
            AttributeError,
            IndexError,
            EOFError,
            zipfile.BadZipFile,
            CourseError,
        ):
            self._note("is damaged or not a calibration cache: it was replaced")
            return Progress(0, {})
        self._note(f"supplied the first {header['batches']} batches")
        return Progress(int(header["batches"]), histograms)

    def save(self, progress: Progress, *, at_most_every_s: float = 0.0) -> None:
        """Write the file in one step, unless it was written less than ``at_most_every_s`` seconds ago.

        Raises:
            CourseError: it cannot be written.
        """
        if time.monotonic() - self._saved < at_most_every_s:
            return
        arrays: dict[str, Any] = {"header": json.dumps({"belongs": self._belongs, "batches": progress.batches})}
        for i, name in enumerate(self._belongs["tensors"]):
            arrays[f"counts{i}"], arrays[f"numbers{i}"] = progress.histograms[name].state()
        content = io.BytesIO()
        np.savez(content, **arrays)
        try:
            write_atomically(self.path, content.getbuffer())
        except OSError as error:
            raise CourseError(f"the calibration cache {self.path} cannot be written: {error.strerror}") from None
        self._saved = time.monotonic()

    def _note(self, text: str) -> None:
        self.notes = (f"calibration cache {self.path.name} {text}",)
