"""An instance of a task for each learner, drawn from an id, so that the answers of a friend are wrong under another id.

The id is in the answer file itself, under the key `KEY`, and the grader reads it there. A mistyped id therefore costs no points: network,
questions and answers follow from the same text. Files with the id of a friend are shown to the instructor. Without an id, which is usual
for those who study alone, one is drawn once on this machine.

A lab draws with `rng`, starts its answer file with `begin`, writes it with `write`, and reads the id back with `learner_of`.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np

from course_lib._util.files import state_folder, write_atomically
from course_lib.errors import CourseError
from course_lib.labs.framework.criteria import HALF, Criterion
from course_lib.labs.framework.task import NOT_EXAMINED

KEY = "learner"
VARIABLES = ("COURSE_LEARNER", "JUPYTERHUB_USER")  # with the id, where a machine knows it
_LONGEST = 100  # characters of an id that count
_MOST_BYTES = 1 << 20  # of an answer file


def rng(learner: str, subject: str) -> np.random.Generator:
    """A learner's generator for one subject, such as ``"lab02"``. Case and spaces around the id do not count."""
    return np.random.default_rng(list(hashlib.sha256(f"{subject}\n{plain(learner)}".encode()).digest()))


def plain(learner: str) -> str:
    """The id as it counts: equal ids have one instance."""
    return unicodedata.normalize("NFKC", learner).strip().casefold()


def begin(file: str | Path, learner: str = "") -> str:
    """The id that the work in this folder belongs to. It is written into the answer file, and answers in the file stay.

    Args:
        file: the answer file. It need not exist.
        learner: your id. Without it, the id in the file counts, then a variable of `VARIABLES`, then this machine's own id.
    """
    answers = _read(Path(file))
    named = (os.environ.get(name, "") for name in VARIABLES)
    found = learner.strip() or learner_of(answers) or next(filter(None, named), "") or _of_machine()
    write(file, found, **{name: value for name, value in answers.items() if name != KEY})
    return found


def write(file: str | Path, learner: str, **answers: Any) -> None:
    """Write an answer file in JSON: the id, and the answers by name."""
    write_atomically(Path(file), json.dumps({KEY: learner, **answers}, indent=2).encode() + b"\n")


def learner_of(answers: object) -> str:
    """The id in an answer file's content; "" if there is none."""
    found = answers.get(KEY, "") if isinstance(answers, dict) else ""
    return found.strip()[:_LONGEST] if isinstance(found, str) else ""


def learner_in(file: Path) -> str:
    """The id in an answer file; "" if there is none or the file cannot be read."""
    return learner_of(_read(file))


def known(learner: str, file: str) -> Criterion:
    """That the answer file has an id. Without one its instance is not known: an instructor decides, and no points are lost."""
    return Criterion(f"learner in {file}", learner or "missing", "an id", bool(learner) or None, HALF, code=NOT_EXAMINED)


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes()) if file.stat().st_size <= _MOST_BYTES else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _of_machine() -> str:
    """Drawn once, and the same for every lab on this machine. Where nothing can be kept, it is drawn again each time."""
    drawn = f"machine-{secrets.token_hex(4)}"
    try:
        file = state_folder("learner")
        if file.is_file():
            return file.read_text(encoding="utf-8").strip() or drawn
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, drawn.encode())
    except (OSError, CourseError, UnicodeError):
        pass
    return drawn
