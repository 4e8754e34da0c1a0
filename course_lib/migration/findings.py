"""One place in old code that a version of TensorRT removed, deprecated, ignores, changed or never had."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["removed", "unknown", "ignored", "deprecated", "changed"]
SEVERITIES: tuple[Severity, ...] = ("removed", "unknown", "ignored", "changed", "deprecated")
FAILING: tuple[Severity, ...] = ("removed", "unknown", "ignored")  # what a continuous integration should stop at


@dataclass(frozen=True)
class Verdict:
    """The problem with a name.

    Attributes:
        name: the old name or flag.
        severity: ``"removed"``: the line fails. ``"unknown"``: it fails in every version, because none has this name.
            ``"ignored"``: it is accepted and has no effect. ``"deprecated"``: it works and will be removed. ``"changed"``: it works
            but differs from its old behavior or from a common belief.
        since: the version, such as ``"10.0"``; empty if it is not recorded.
        use: what to write instead.
        lecture: number of the lecture that teaches it.
    """

    name: str
    severity: Severity
    since: str
    use: str
    lecture: int


@dataclass(frozen=True)
class Finding:
    """A verdict and where it was found; `cell` counts the cells of a notebook from 1, `line` the lines in it, `source` is that line."""

    file: str
    line: int
    cell: int | None
    verdict: Verdict
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values for ``course migrate --json``."""
        verdict = asdict(self.verdict)
        return {
            "file": self.file,
            "line": self.line,
            "cell": self.cell,
            "source": self.source,
            **verdict,
            "lecture": f"lecture {self.verdict.lecture}",
        }
