"""The results of a scan: blocks and lines for people, one JSON document and GitHub annotations for machines."""

from __future__ import annotations

import re

from course_lib.migration.findings import FAILING, Finding
from course_lib.migration.scanner import Scan

FORMATS = ("table", "lines", "json", "github")
_ARGUMENTS = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_CODE = re.compile(  # what is code in the advice of a rule: commands and flags, calls, assignments, dotted names, other names of a program
    rf"pip install [\w-]+|--[\w-]+(?:=\S*\w)?|(?:\w+\.)*\w+{_ARGUMENTS}(?:\.\w+(?:{_ARGUMENTS})?)*"
    r"|[a-z_]\w*(?:\.\w+)+(?: = \w+)?|\w+=\w*|\w+_\w+|[A-Z]\w*\.\w+|(?!TensorRT)[A-Z]+[a-z]+[A-Z]\w+"
)


def document(found: Scan) -> dict[str, object]:
    """Plain values: ``target``, ``files``, ``counts`` by severity, ``findings`` as of `Finding.to_json`, ``notes``, ``unread``,
    ``silenced``."""
    return {
        "target": found.target,
        "files": found.files,
        "counts": found.counts(),
        "findings": [finding.to_json() for finding in found.findings],
        "notes": list(found.notes),
        "unread": list(found.unread),
        "silenced": found.silenced,
    }


def block(finding: Finding) -> tuple[str, str, str]:
    """The place with what happened to the old name, the line that has it, and what to write instead, its code between backticks."""
    verdict = finding.verdict
    since = f" {'in' if verdict.severity == 'removed' else 'since'} {verdict.since}" if verdict.since else ""
    advice = _CODE.sub(r"`\g<0>`", verdict.use) + f" (lecture {verdict.lecture})"
    return f"{_place(finding)} {verdict.name}: {verdict.severity}{since}", finding.source, advice


def lines(found: Scan) -> list[str]:
    """``path:line: severity name: advice``, one finding each, as compilers write; a notebook has ``path:cell 3:line``."""
    return [f"{_place(one)}: {one.verdict.severity} {one.verdict.name}: {_advice(one)}" for one in found.findings]


def github(found: Scan) -> list[str]:
    """Commands that GitHub Actions shows next to the lines of a pull request."""
    said = []
    for one in found.findings:
        title = _property(f"{one.verdict.severity} {one.verdict.name}")
        line = "" if one.cell else f",line={one.line}"
        text = f"{f'cell {one.cell}, line {one.line}: ' if one.cell else ''}{_advice(one)}"
        said.append(f"::{_github_level(one)} file={_property(one.file)}{line},title={title}::{_data(text)}")
    return [*said, *(f"::error::{_data(text)}" for text in found.unread)]


def summary(found: Scan) -> list[str]:
    """The notes, and one line that counts."""
    counted = [f"{count} {name}" for name, count in found.counts().items() if count]
    read = f"{found.files} file{'s' if found.files != 1 else ''} read for TensorRT {found.target}"
    silenced = f"; {found.silenced} suppressed by comments" if found.silenced else ""
    return [
        *(f"note: {note}" for note in (*found.unread, *found.notes)),
        f"{read}: {', '.join(counted) or ('nothing to change' if found.files else 'nothing was checked')}{silenced}",
    ]


def _place(finding: Finding) -> str:
    return f"{finding.file}:cell {finding.cell}:{finding.line}" if finding.cell else f"{finding.file}:{finding.line}"


def _advice(finding: Finding) -> str:
    verdict = finding.verdict
    return f"{verdict.use} ({f'since {verdict.since}, ' if verdict.since[:1].isdigit() else ''}lecture {verdict.lecture})"


def _github_level(finding: Finding) -> str:
    return "error" if finding.verdict.severity in FAILING else "warning"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
