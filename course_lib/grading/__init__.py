"""Grading: sandbox, judge, verdict, report, and the bridge to nbgrader."""

import sys

# jsonschema, which nbformat imports, compiles a grammar of internationalized addresses at import where this optional package is
# installed: two seconds of every process that touches a notebook. No notebook is checked for such an address.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
