"""What older versions removed as a whole: modules, and keywords of Polygraphy's `CreateConfig` and `CreateNetwork`."""

from __future__ import annotations

import ast

from course_lib.migration.analysis.guards import is_reached
from course_lib.migration.analysis.uses import Use
from course_lib.migration.findings import Verdict
from course_lib.migration.rules.data import rows

MODULES = rows("gone.toml", "module")
KEYWORDS = {
    keyword: (row["since"], row["use"], row["lecture"])
    for row in rows("gone.toml", "polygraphy")
    for keyword in row["keywords"]
}


def judge_import(name: str, target: str) -> list[Verdict]:
    """The verdict on a module by its full name, such as ``"uff.model"``; none if nothing is wrong with it."""
    module = next((one for one in MODULES if f"{name}.".startswith(f"{one['name']}.")), None)
    if module is None or not is_reached(module["since"], target):
        return []
    return [Verdict(**{**module, "name": f"import {module['name']}"})]


def judge_polygraphy(use: Use, target: str) -> list[Verdict]:
    """The verdicts on a call of one of the two; a keyword with the value False or None does not count."""
    found = []
    for one in use.node.keywords if isinstance(use.node, ast.Call) else ():
        since, advice, lecture = KEYWORDS.get(one.arg or "", ("", "", 0))
        if since and is_reached(since, target) and not (isinstance(one.value, ast.Constant) and not one.value.value):
            found.append(Verdict(f"{use.name.rpartition('.')[2]}({one.arg}=)", "removed", since, advice, lecture))
    return found
