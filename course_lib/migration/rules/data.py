"""Rules as data: tables of the TOML files in this folder, among them those for old names and for flags of tools and packages.

The tables of the bindings decide whether a name was removed. The tests check each rule against them: its names are removed or
deprecated in the newest version, and the names in its sentence exist there.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from course_lib._util.toml_text import loads
from course_lib.migration.findings import Severity


def rows(file: str, table: str) -> list[dict[str, Any]]:
    """The rows of an array of tables, with tuples in place of lists."""
    found = _read(file)[table]
    return [{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()} for row in found]


@cache
def _read(file: str) -> dict[str, Any]:
    return loads((Path(__file__).parent / file).read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Rule:
    """Advice for one or several old names of TensorRT, from ``names.toml``.

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


@dataclass(frozen=True)
class ToolRule:
    """Flags of a tool, or a package, and their replacement, from ``tools.toml``.

    Attributes:
        tool: ``"trtexec"``, ``"polygraphy"``, ``"nsys"`` or ``"pip"``.
        flags: as written on the command line, without a value; ``"--flag=value"`` means only that value. For pip, the package.
        use: what to write instead.
        lecture: number of the lecture that teaches it.
        since: the TensorRT version, or the tool's version if the text begins with the tool's name.
    """

    tool: str
    flags: tuple[str, ...]
    severity: Severity
    use: str
    lecture: int
    since: str = ""


def _for_tool(tool: str) -> tuple[ToolRule, ...]:
    return tuple(ToolRule(tool, **row) for row in rows("tools.toml", tool))


TRTEXEC, POLYGRAPHY, NSYS = map(_for_tool, ("trtexec", "polygraphy", "nsys"))
QDREP = next(rule for rule in NSYS if rule.flags == (".qdrep",))  # a file name, wherever it is mentioned
PACKAGES = {rule.flags[0]: rule for rule in _for_tool("pip")}
