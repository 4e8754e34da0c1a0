"""Imports of modules that older TensorRT versions removed."""

from __future__ import annotations

from course_lib.migration.analysis.guards import version_number
from course_lib.migration.findings import Verdict
from course_lib.migration.rules.data import rows

MODULES = rows("gone.toml", "module")


def judge_import(name: str, target: str) -> list[Verdict]:
    """The verdict on a module by its full name, such as ``"uff.model"``; none if nothing is wrong with it."""
    for module in MODULES:
        if name == module["name"] or name.startswith(f"{module['name']}."):
            numbered = module["since"][:1].isdigit()
            if numbered and not target.startswith("rtx") and version_number(target) < version_number(module["since"]):
                return []
            return [Verdict(**{**module, "name": f"import {module['name']}"})]
    return []
