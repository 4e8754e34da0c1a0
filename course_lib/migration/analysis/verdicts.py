"""Decide from the tables whether a name in a program is removed, deprecated or without effect in one TensorRT version."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping
from functools import cache

from course_lib.migration.analysis.evaluate import outcomes
from course_lib.migration.analysis.guards import version_number
from course_lib.migration.analysis.uses import Use
from course_lib.migration.findings import Severity, Verdict
from course_lib.migration.rules.data import RULES, Rule, rule_for
from course_lib.migration.tables import known
from course_lib.migration.tables.api_table import ApiTable

_SAID_SINCE = re.compile(r"TensorRT (\d+\.\d+)")
_LECTURE_OF = (  # where a name without a rule of its own is taught
    ("IPlugin", 9),
    ("ICudaEngine", 10),
    ("IExecutionContext", 10),
    ("Runtime", 10),
    ("Refitter", 10),
    ("IOptimizationProfile", 8),
    ("IBuilderConfig", 2),
)


def judge(use: Use, table: ApiTable, comments: Mapping[int, str]) -> list[Verdict]:
    """The verdicts on a use in the version of `table`; none if the code is not reached there or nothing is wrong.

    Args:
        comments: comments of the program by line; some rules check the comment next to a call.
    """
    if use.condition is not None and use.condition.holds(table) is not True:
        return []
    if use.how == "compare":
        return _comparison(use, table)
    if use.how in ("with", "len") and not table.has(use.name.rpartition(".")[0]):
        return []  # the class itself is gone, and said to be where it is named
    said = verdict_on(use.name, table)
    if not table.has(use.name):
        return [said] if said else _unknown(use)
    if use.how == "write" and (since := read_only_since(use.name, table)):
        return [_verdict(f"{use.name} (assignment)", "removed", since, rule_for(use.name))]
    return [*([said] if said else []), *_keywords(use, table), *_folklore(use, comments)]


@cache
def verdict_on(name: str, table: ApiTable) -> Verdict | None:
    """The verdict on a name by itself, in whatever way it is used; None if nothing is wrong with it."""
    if table.has(name):
        return _deprecated(name, table)
    if table.has(declared := _as_declared(name)):
        return None  # the class is gone, and said to be where it is named; what it inherited is still there
    if name in known.NEVER_EXISTED:
        return _verdict(name, "unknown", "never existed", rule_for(name))
    return _removed(declared, table) if _is_gone(name, table) else None


def _unknown(use: Use) -> list[Verdict]:
    """The verdict on a name that no version has, if the program makes its owner certain."""
    if not use.exact or known.exists_anywhere(use.name):
        return []
    owner, _, member = use.name.rpartition(".")
    near = difflib.get_close_matches(member, known.names_of(owner), n=1, cutoff=0.75)
    holder = f"trt.{owner}" if owner else "trt"
    advice = f"{holder} has {near[0]}" if near else f"{holder} has no such name from {known.RELEASES_IN_ORDER[0]} on"
    return [_verdict(use.name, "unknown", "", None, f"{advice}: look up its members" if not near else advice)]


def _comparison(use: Use, table: ApiTable) -> list[Verdict]:
    """A version check whose result differs from what its author meant."""
    differs = isinstance(use.node, ast.expr) and len(outcomes(use.node, table.wheel["version"], use.names)) == 2
    return [_verdict(use.name, "changed", "10.0", rule_for(use.name))] if differs else []


def _is_gone(name: str, table: ApiTable) -> bool:
    if name == "ICudaEngine.__getitem__(str)":
        return version_number(table.version) >= (10,)
    return known.existed(name, table.version)


def _removed(name: str, table: ApiTable) -> Verdict:
    return _verdict(name, "removed", removed_in(name, table.version), rule_for(name) or rule_for(name.partition(".")[0]))


@cache
def _as_declared(name: str) -> str:
    """The name of a member in the class that declares it: a layer's `precision` is ``ILayer.precision``."""
    owner, _, member = name.rpartition(".")
    bases = {base for table in known.all_tables() for base in table.lineage(owner)[1:]}
    declared = next((base for base in known.owners_of(member) if base in bases), owner) if owner else ""
    return f"{declared}.{member}" if declared else name


def removed_in(name: str, target: str) -> str:
    """The version that removed a name. NVIDIA removes with the first release of a major version only."""
    if since := known.gone_early(name):
        return since
    order = [*(version for version in known.RELEASES_IN_ORDER if version != target), target]
    had = [index for index, version in enumerate(order[:-1]) if ApiTable.load(version).has(name)]
    if target == known.RTX:
        newest = known.RELEASES_IN_ORDER[-1]
        return removed_in(name, newest) if not ApiTable.load(newest).has(name) else "TensorRT for RTX"
    without = order[max(had) + 1] if had else "10"
    return f"{without.partition('.')[0]}.0"


def read_only_since(name: str, table: ApiTable) -> str:
    """The version from which on a property cannot be assigned any more; empty if it can, or never could."""
    now = table.access(name)
    if not now or "w" in now:
        return ""
    writable = [older.version for older in known.older_than(table.version) if "w" in older.access(name)]
    if not writable:
        return ""
    after = known.RELEASES_IN_ORDER[known.RELEASES_IN_ORDER.index(writable[-1]) + 1]
    return f"{after.partition('.')[0]}.0"


def _deprecated(name: str, table: ApiTable) -> Verdict | None:
    rule = rule_for(name)
    said = table.deprecated(name)
    if said:
        found = _SAID_SINCE.search(said)
        return _verdict(name, "deprecated", found[1] if found else rule.deprecated if rule else "", rule, said)
    if (
        rule
        and rule.deprecated
        and version_number(table.version) >= version_number(rule.deprecated)
        and table.version != known.RTX
    ):
        return _verdict(name, "deprecated", rule.deprecated, rule)
    return None


def _keywords(use: Use, table: ApiTable) -> list[Verdict]:
    """Keywords that an older version's function had and this one's has not."""
    if not isinstance(use.node, ast.Call):
        return []
    function = use.name if table.signature(use.name) else f"{use.name}.__init__"
    now = _parameters(function, table)
    before = {name for older in known.older_than(table.version) for name in _parameters(function, older)}
    gone = [keyword.arg for keyword in use.node.keywords if keyword.arg and keyword.arg in before - now]
    return (
        [_verdict(f"{use.name}({one}=)", "removed", "", None, f"it takes {', '.join(sorted(now))}") for one in gone]
        if now
        else []
    )


def _parameters(function: str, table: ApiTable) -> set[str]:
    return {parameter.name for overload in table.signature(function) for parameter in overload.parameters}


def _folklore(use: Use, comments: Mapping[int, str]) -> list[Verdict]:
    rules = [rule for rule in RULES if rule.mention and rule.matches(use.name)]
    said = " ".join(comments.get(line, "") for line in (use.line - 1, use.line)) if rules else ""
    return [_verdict(use.name, "changed", "", rule) for rule in rules if re.search(rule.mention, said, re.I)]


def _verdict(name: str, severity: Severity, since: str, rule: Rule | None, said: str = "") -> Verdict:
    use = rule.use if rule else said or "delete the line: nothing takes its place"
    lecture = rule.lecture if rule else next((number for start, number in _LECTURE_OF if name.startswith(start)), 2)
    return Verdict(name, severity, since, use, lecture)
