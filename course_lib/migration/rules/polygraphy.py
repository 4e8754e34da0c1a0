"""Keywords of Polygraphy's `CreateConfig` and `CreateNetwork` that ask for what TensorRT no longer has."""

from __future__ import annotations

import ast

from course_lib.migration.analysis.guards import version_number
from course_lib.migration.analysis.uses import Use
from course_lib.migration.findings import Verdict
from course_lib.migration.rules.data import rows
from course_lib.migration.tables.known import RTX

GONE = {
    keyword: (row["since"], row["use"], row["lecture"])
    for row in rows("gone.toml", "polygraphy")
    for keyword in row["keywords"]
}


def judge(use: Use, target: str) -> list[Verdict]:
    """The verdicts on a call of one of the two; a keyword with the value False or None does not count."""
    given = use.node.keywords if isinstance(use.node, ast.Call) else []
    asked = [one.arg for one in given if one.arg in GONE and not (isinstance(one.value, ast.Constant) and not one.value.value)]
    rules = [(name, *GONE[name]) for name in asked if name]
    return [
        Verdict(f"{use.name.rpartition('.')[2]}({name}=)", "removed", since, advice, lecture)
        for name, since, advice, lecture in rules
        if target == RTX or version_number(target) >= version_number(since)
    ]
