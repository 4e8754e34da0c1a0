"""TensorRT's API by version, what changed between versions, and a scanner for old code: `scan`, `ApiTable`.

Importing this package is light: each name is imported from its module the first time it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from course_lib._util.lazy_names import lazy

if TYPE_CHECKING:
    from course_lib.migration.findings import Finding, Verdict
    from course_lib.migration.scanner import Scan, scan
    from course_lib.migration.tables.api_table import ApiTable

__getattr__, __dir__, __all__ = lazy(__name__)
