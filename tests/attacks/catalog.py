"""The catalog of attacks: one small file a submission, in ``submissions/``. The tests grade them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).with_name("submissions")


@dataclass(frozen=True)
class Attack:
    """One submission that wants more than it has earned.

    Attributes:
        name: also the name of its student.
        story: what it does, one line for a reader.
        blocked_by: what takes the gain or the harm away, one line.
        cell: code of the notebook's first cell; ``@ROOT@`` is the course's folder, ``@PORT@`` a listener on loopback.
        make: a function of `makers` that changes the submission's folder.
        honest_files: start from the reference's files.
        score: what its honest part earns.
        said: words that the feedback or the report must have.
        rejected: words of the grade's reason where its notebook was not taken as it is.
        folder: the percent-encoded name of the learner's folder, where that is the attack: it must be listed and not graded, with the words
            of `rejected`.
    """

    name: str
    story: str
    blocked_by: str
    cell: str = ""
    make: str = ""
    honest_files: bool = False
    score: float = 0.0
    said: str = ""
    rejected: str = ""
    folder: str = ""

    @property
    def student(self) -> str:
        """The name of the learner's folder."""
        return os.fsdecode(unquote_to_bytes(self.folder)) if self.folder else self.name

    @property
    def by_engine(self) -> bool:
        """Whether its attack begins when the engine is built; its notebook does nothing."""
        return self.make.startswith(("engines.", "models."))


def attacks() -> list[Attack]:
    """All of them, by name."""
    return [Attack(path.stem, **tomllib.loads(path.read_text(encoding="utf-8"))) for path in sorted(FOLDER.glob("*.toml"))]
