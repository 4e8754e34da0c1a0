"""What replaces an old name of TensorRT: one sentence, the names that it uses, and the lecture that teaches it.

The rules are data, in ``names.toml``. Whether a name is gone is decided by the tables of the bindings. The tests check each rule
against them: its names are gone or deprecated in the newest version, and what the sentence uses exists there.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from course_lib.migration.rules.data import rows


@dataclass(frozen=True)
class Rule:
    """Advice for one or several old names.

    Attributes:
        names: as after ``trt.``; ``*`` stands for any text.
        use: what to write instead, one sentence.
        lecture: where the course teaches it.
        new: names that the sentence uses, as after ``trt.``; they exist in the newest version.
        deprecated: the version that deprecated the names, where no docstring says so.
        severity: ``"changed"`` for a name that stays and does something else than is often said; then `mention` is a regular
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
