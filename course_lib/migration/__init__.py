"""TensorRT's API by version, what changed between versions, and a scanner for old code: `scan`, `ApiTable`.

Importing this package is light: each name is imported from its module the first time it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib.lazy import lazy

if TYPE_CHECKING:
    from course_lib.migration.api_table import ApiTable
    from course_lib.migration.findings import Finding, Verdict
    from course_lib.migration.scanner import Scan, scan

__all__ = ["ApiTable", "Finding", "Scan", "Verdict", "scan"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ApiTable": "api_table",
        "Finding": "findings",
        "Verdict": "findings",
        "Scan": "scanner",
        "scan": "scanner",
    },
)
