"""The advice: every old name has some, and what each rule says is true of the tables."""

import re

import pytest

from course_lib.migration.analysis import naming
from course_lib.migration.analysis.verdicts import removed_in
from course_lib.migration.rules.data import NSYS, PACKAGES, POLYGRAPHY, RULES, TRTEXEC, Rule, rule_for
from course_lib.migration.rules.gone import KEYWORDS, MODULES
from course_lib.migration.tables import known
from course_lib.migration.tables.api_table import ApiTable

NEWEST = known.RELEASES_IN_ORDER[-1]
LECTURES = range(1, 15)
OVERRIDDEN = {"IGpuAllocator.free", "IOutputAllocator.notify_shape", "IOutputAllocator.reallocate_output",
              "IOutputAllocator.tensorrt_version", "IPluginCreator.tensorrt_version"}  # fmt: skip


def all_names(table: ApiTable) -> set[str]:
    owners = (*table.classes(), *table.enums())
    members = {f"{owner}.{member}" for owner in owners for member in (*table.members(owner), *table.enum(owner))}
    return {*members, *owners, *table.functions(), *table.values()}


EVERY = {name for table in known.all_tables() for name in all_names(table)}
EVERY |= {*known.gone_before_8_6(), *known.NEVER_EXISTED, "__version__", "ICudaEngine.__getitem__(str)"}


def gone() -> list[str]:
    newest = ApiTable.load(NEWEST)
    tables = [ApiTable.load(version) for version in known.RELEASES_IN_ORDER[:-1]]
    removed = {name for table in tables for name in all_names(table) if not newest.has(name)}
    return sorted({*removed, *known.gone_before_8_6(), *known.NEVER_EXISTED} - OVERRIDDEN)


def test_every_name_that_is_gone_has_advice() -> None:
    names = gone()
    assert len(names) > 400
    assert [name for name in names if not rule_for(name) and not rule_for(name.partition(".")[0])] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.names[0])
def test_what_a_rule_tells_to_use_exists(rule: Rule) -> None:
    newest = ApiTable.load(NEWEST)
    assert [name for name in rule.new if not newest.has(name)] == []
    told = [name for name in rule.new if name.rpartition(".")[2] in rule.use]
    assert told or not rule.new or any(word in rule.use for word in ("the same name", "Q/DQ", "one memory")), (
        "says nothing of it"
    )
    assert rule.lecture in LECTURES and 10 < len(rule.use) < 160


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.names[0])
def test_what_a_rule_calls_old_is_old(rule: Rule) -> None:
    newest = ApiTable.load(NEWEST)
    for pattern in rule.names:
        matched = [name for name in EVERY if Rule((pattern,), "", 1).matches(name)]
        assert matched, f"{pattern} is the name of nothing"
        old = [name for name in matched if not newest.has(name) or newest.deprecated(name) or "w" not in newest.access(name)]
        assert old or rule.deprecated or rule.severity == "changed", f"{pattern} is neither gone nor deprecated"


def test_names_that_were_gone_before_the_oldest_table_are_in_none() -> None:
    for name in (*known.gone_before_8_6(), *known.NEVER_EXISTED):
        assert not any(table.has(name) for table in known.all_tables()), name


def test_distinctive_members_belong_to_no_class_of_today() -> None:
    newest = ApiTable.load(NEWEST)
    members = {member for owner in (*newest.classes(), *newest.enums()) for member in newest.members(owner)}
    assert naming.DISTINCTIVE & members == {"execute_async"}  # of plugins, which TensorRT calls and no program
    assert [name for name in naming.DISTINCTIVE if not known.owners_of(name)] == []


@pytest.mark.parametrize(
    ("name", "target", "since"),
    [
        ("ICudaEngine.num_bindings", "11.4", "10.0"),
        ("BuilderFlag.FP16", "11.0", "11.0"),
        ("Builder.build_cuda_engine", "8.6.1", "8.0"),
        ("BuilderFlag.FP16", "rtx-1.7.1", "11.0"),
        ("ICudaEngine.num_bindings", "rtx-1.7.1", "10.0"),
    ],
)
def test_since_when_a_name_is_gone(name: str, target: str, since: str) -> None:
    assert removed_in(name, target) == since


def test_rules_for_tools_are_complete_and_distinct() -> None:
    for rules in (TRTEXEC, POLYGRAPHY, NSYS):
        flags = [flag for rule in rules for flag in rule.flags]
        assert len(flags) == len(set(flags))
        for rule in rules:
            assert rule.lecture in LECTURES and rule.use and rule.flags
            assert not set(rule.flags) & set(re.findall(r"--?\w[\w-]*", rule.use)), rule
    assert all(rule.tool == "pip" and rule.flags == (name,) for name, rule in PACKAGES.items())
    assert {module["lecture"] for module in MODULES} | {lecture for *_, lecture in KEYWORDS.values()} <= set(LECTURES)
