"""The replacement of an old TensorRT name: one sentence, the names that it uses, and the lecture that teaches it.

The rules are data, in ``names.toml``. The tables of the bindings decide whether a name was removed. The tests check each rule
against them: its names are removed or deprecated in the newest version, and the names in its sentence exist there.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from course_lib.migration.rules.data import rows


@dataclass(frozen=True)
class Rule:
    """Advice for one or several old names.

    Attributes:
        names: the names after ``trt.``; ``*`` means any text.
        use: what to write instead, one sentence.
        lecture: number of the lecture that teaches it.
        new: names after ``trt.`` that the sentence uses; they exist in the newest version.
        deprecated: the version that deprecated the names, if no docstring says so.
        severity: ``"changed"`` for a name that remains but does not do what is often believed. Then `mention` is a regular
            expression that a comment next to the call must match.
    """

    names: tuple[str, ...]
    use: str
    lecture: int
    new: tuple[str, ...] = ()
    deprecated: str = ""
    severity: str = ""
    mention: str = ""

    def matches(self, name: str) -> bool:
        """Whether the rule is about a name."""
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.names)


RULES = tuple(Rule(**row) for row in rows("names.toml", "rule"))


def rule_for(name: str) -> Rule | None:
    """The first rule about a name."""
    return next((rule for rule in RULES if rule.matches(name)), None)
