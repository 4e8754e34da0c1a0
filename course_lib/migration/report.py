"""The results of a scan: tables and lines for people, one JSON document, SARIF and GitHub annotations for machines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from course_lib.migration.findings import FAILING, Finding, Severity
from course_lib.migration.scanner import Scan

FORMATS = ("table", "lines", "json", "sarif", "github")
COLUMNS = ("line", "severity", "old", "since", "instead", "taught in")
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_MEANING: dict[Severity, str] = {
    "removed": "The line fails: this version of TensorRT no longer has the name.",
    "unknown": "The line fails in every version: none ever had the name.",
    "ignored": "The line is accepted and does nothing.",
    "changed": "The line works differently than before, or than is often believed.",
    "deprecated": "The line works, and a later version will remove the name.",
}


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


def tables(found: Scan) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """A title, columns and rows for each file with findings."""
    for file, findings in groupby(found.findings, key=lambda finding: finding.file):
        yield file, COLUMNS, [_row(finding) for finding in findings]


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


def sarif(found: Scan, version: str) -> dict[str, object]:
    """The findings as a SARIF 2.1.0 log, which code scanners and editors read.

    Args:
        version: version of the program that writes the log.
    """
    rules = [{"id": name, "shortDescription": {"text": text}} for name, text in _MEANING.items()]
    notifications = [{"level": "error", "message": {"text": text}} for text in found.unread]
    notifications += [{"level": "note", "message": {"text": text}} for text in found.notes]
    run = {
        "tool": {"driver": {"name": "course migrate", "version": version, "rules": rules}},
        "invocations": [{"executionSuccessful": not found.unread, "toolExecutionNotifications": notifications}],
        "results": [_result(one) for one in found.findings],
    }
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


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


def _row(finding: Finding) -> tuple[str, ...]:
    verdict = finding.verdict
    place = f"cell {finding.cell}, {finding.line}" if finding.cell else str(finding.line)
    return place, verdict.severity, verdict.name, verdict.since, verdict.use, f"lecture {verdict.lecture}"


def _result(finding: Finding) -> dict[str, object]:
    verdict, path = finding.verdict, Path(finding.file)
    physical: dict[str, Any] = {"artifactLocation": {"uri": path.as_uri() if path.is_absolute() else quote(path.as_posix())}}
    if not finding.cell:  # the lines of a cell are not those of the file
        physical["region"] = {"startLine": finding.line}
    where = f"cell {finding.cell}, line {finding.line}: " if finding.cell else ""
    return {
        "ruleId": verdict.severity,
        "ruleIndex": list(_MEANING).index(verdict.severity),
        "level": "error" if verdict.severity in FAILING else "warning",
        "message": {"text": f"{where}{verdict.name}: {_advice(finding)}"},
        "locations": [{"physicalLocation": physical}],
    }


def _github_level(finding: Finding) -> str:
    return "error" if finding.verdict.severity in FAILING else "warning"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
