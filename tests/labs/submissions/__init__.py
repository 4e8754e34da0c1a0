"""Submissions for the labs' tests: right in another way, almost right, or made to cheat. A file for each lab.

``labNN.toml`` has submissions that are edits of the reference; ``changes`` are pairs of an old and a new passage, by file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from course_lib._util import toml_text

Changes = Mapping[str, Sequence[Sequence[str]]]


class Mistake(NamedTuple):
    """What a learner does wrong, and what the task then gets: its tier, words of its message or hint, and words of the hint alone."""

    make: Callable[[Path], None]
    task: str
    tier: str
    words: str
    hint: str = ""


def table(lab: str) -> dict[str, Any]:
    """The submissions of a lab that are written as data."""
    return dict(toml_text.loads(Path(__file__).with_name(f"{lab}.toml").read_text(encoding="utf-8")))


def changed(text: str, changes: Sequence[Sequence[str]]) -> str:
    """A text with other passages, each of which must be there."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def edit(folder: Path, changes: Changes) -> None:
    """Change the files of a folder, which holds the reference."""
    for name, passages in changes.items():
        (folder / name).write_text(changed((folder / name).read_text(), passages))


def mistakes(rows: Mapping[str, Any]) -> dict[str, Mistake]:
    """Mistakes of a table; each is made in a folder that holds the reference."""
    return {
        name: Mistake(partial(edit, changes=row["changes"]), row["task"], row["tier"], row["words"], row.get("hint", ""))
        for name, row in rows.items()
    }
