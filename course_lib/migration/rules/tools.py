"""Removed flags of trtexec, Polygraphy and Nsight Systems, and removed packages. The rules are data, in ``tools.toml``."""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.migration.findings import Severity
from course_lib.migration.rules.data import rows


@dataclass(frozen=True)
class ToolRule:
    """Flags of a tool and their replacement.

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


def _rules(tool: str) -> tuple[ToolRule, ...]:
    return tuple(ToolRule(tool, **row) for row in rows("tools.toml", tool))


TRTEXEC, POLYGRAPHY, NSYS = map(_rules, ("trtexec", "polygraphy", "nsys"))
QDREP = next(rule for rule in NSYS if rule.flags == (".qdrep",))  # a file name, wherever it is mentioned
PACKAGES = {rule.flags[0]: rule for rule in _rules("pip")}
