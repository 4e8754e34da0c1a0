"""The catalog of attacks: one small file a submission, in ``submissions/``. The tests grade them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from course_lib._util import toml_text

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
    """

    name: str
    story: str
    blocked_by: str
    cell: str = ""
    make: str = ""
    honest_files: bool = False
    score: float = 0.0
    said: str = ""

    @property
    def by_engine(self) -> bool:
        """Whether its attack begins when the engine is built; its notebook does nothing."""
        return self.make.startswith("engines.")


def attacks() -> list[Attack]:
    """All of them, by name."""
    return [Attack(path.stem, **toml_text.loads(path.read_text(encoding="utf-8"))) for path in sorted(FOLDER.glob("*.toml"))]
