"""What a scan found, as one JSON document and as tables for people."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from course_lib.migration.findings import Finding
from course_lib.migration.scanner import Scan

COLUMNS = ("line", "severity", "old", "since", "instead", "taught in")


def document(found: Scan) -> dict[str, Any]:
    """Plain values: ``target``, ``files``, ``counts`` by severity, ``findings`` as of `Finding.to_json`, ``notes``, ``unread``."""
    return {
        "target": found.target,
        "files": found.files,
        "counts": found.counts(),
        "findings": [finding.to_json() for finding in found.findings],
        "notes": list(found.notes),
        "unread": list(found.unread),
    }


def tables(found: Scan) -> Iterator[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """A title, columns and rows for each file with findings."""
    for file, findings in groupby(found.findings, key=lambda finding: finding.file):
        yield file, COLUMNS, [_row(finding) for finding in findings]


def summary(found: Scan) -> list[str]:
    """The notes, and one line that counts."""
    counted = [f"{count} {name}" for name, count in found.counts().items() if count]
    read = f"{found.files} file{'s' if found.files != 1 else ''} read for TensorRT {found.target}"
    return [
        *(f"note: {note}" for note in (*found.unread, *found.notes)),
        f"{read}: {', '.join(counted) or 'nothing to change'}",
    ]


def _row(finding: Finding) -> tuple[str, ...]:
    verdict = finding.verdict
    place = f"cell {finding.cell}, {finding.line}" if finding.cell else str(finding.line)
    return place, verdict.severity, verdict.name, verdict.since, verdict.use, f"lecture {verdict.lecture}"
