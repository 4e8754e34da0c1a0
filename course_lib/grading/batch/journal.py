"""What an unfinished batch has recorded, on disk, so that it can continue after an interruption."""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from course_lib._util.files import write_atomically
from course_lib.errors import CourseError
from course_lib.grading.batch.submission import Result


@dataclass(frozen=True)
class Journal:
    """A folder with a mark for each submission that is in the gradebook, until the batch is done.

    A submission is known by its digest: one that was changed in between is graded again.
    """

    folder: Path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the journal for this process alone.

        Raises:
            CourseError: another process grades this lab in this classroom.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CourseError(
                    f"another process grades {self.folder.name} in this classroom: wait until it is done"
                ) from None
            if not self._began.exists():  # an interrupted batch goes on
                write_atomically(self._began, datetime.now(timezone.utc).isoformat(timespec="seconds").encode())
            yield

    def began(self) -> str:
        """When the batch that holds the journal began, in UTC, as verdicts write it."""
        return self._began.read_text(encoding="utf-8")

    def mark(self, result: Result) -> None:
        """It is in the gradebook."""
        write_atomically(self._mark(result.student), json.dumps([result.digest, result.error]).encode())

    def recorded(self, student: str, digest: str) -> str | None:
        """The `Result.error` of exactly this submission if it went into the gradebook in this batch, otherwise None."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            recorded, error = json.loads(self._mark(student).read_bytes())
            return str(error) if recorded == digest else None
        return None

    def finish(self, students: Iterable[str]) -> None:
        """End the batch. The next one grades all submissions again."""
        for student in students:
            self._mark(student).unlink(missing_ok=True)
        self._began.unlink(missing_ok=True)

    @property
    def _began(self) -> Path:
        return self.folder / "began"

    def _mark(self, student: str) -> Path:
        return self.folder / f"{student}.recorded"
