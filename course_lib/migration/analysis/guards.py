"""Conditions that old code puts around a call so that it runs on several versions: ``hasattr``, enum members, version checks.

Each condition can be evaluated for one TensorRT version with that version's table. If a check does not do what it means, it both
holds and fails, and both of its branches count as reached.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from course_lib.migration.analysis.evaluate import outcomes
from course_lib.migration.tables.api_table import ApiTable
from course_lib.migration.tables.known import RTX

Question = Callable[[ApiTable], bool | None]  # true, false or unclear (None) in one version


@dataclass(frozen=True)
class Condition:
    """A test on the version.

    Attributes:
        holds: whether the code under the condition is reached.
        fails: whether the code under its opposite is reached.
    """

    holds: Question
    fails: Question


# It depends on the version in a way that only running the code would show.
UNCLEAR = Condition(lambda _: None, lambda _: None)


def has(name: str) -> Condition:
    """A name exists; ``"*.member"`` means in any class."""
    owner, _, member = name.rpartition(".")

    def holds(table: ApiTable) -> bool:
        return member in member_names(table.version) if owner == "*" else table.has(name)

    return Condition(holds, lambda table: not holds(table))


def version_test(test: ast.expr, names: Mapping[str, ast.expr]) -> Condition:
    """An expression about ``trt.__version__``; `names` as `outcomes` takes them."""

    def gives(wanted: bool, table: ApiTable) -> bool | None:
        found = outcomes(test, table.wheel["version"], names)
        return wanted in found if found else None

    return Condition(lambda table: gives(True, table), lambda table: gives(False, table))


def opposite(condition: Condition) -> Condition:
    """``not condition``"""
    return Condition(condition.fails, condition.holds)


def presumed(condition: Condition) -> Condition:
    """A condition that holds unless the version contradicts it."""
    return Condition(lambda table: condition.holds(table) is not False, condition.fails)


def partly(condition: Condition) -> Condition:
    """``new and wanted``: false if the version makes it false. Otherwise `wanted` decides, and both branches are reached."""
    return Condition(condition.holds, lambda _: True)


def all_of(parts: Iterable[Condition]) -> Condition:
    """Every part holds; with no part it does."""
    every = tuple(parts)

    def holds(table: ApiTable) -> bool | None:
        held = [part.holds(table) for part in every]
        return False if False in held else None if None in held else True

    def fails(table: ApiTable) -> bool | None:
        failed = [part.fails(table) for part in every]
        return True if True in failed else None if None in failed else False

    return Condition(holds, fails)


def any_of(parts: Iterable[Condition]) -> Condition:
    """At least one part holds."""
    return opposite(all_of(map(opposite, parts)))


def version_number(version: str) -> tuple[int, ...]:
    """A version such as ``"8.6.1"`` or ``"rtx-1.7.1"`` as numbers."""
    return tuple(int(part) for part in version.rpartition("-")[2].split(".") if part.isdigit())


def is_reached(since: str, target: str) -> bool:
    """Whether a version has what changed in `since`. RTX has it, and so has every version if `since` names none of TensorRT."""
    return not since[:1].isdigit() or target == RTX or version_number(target) >= version_number(since)


@cache
def member_names(version: str) -> frozenset[str]:
    """Names of the members of all classes and enums of a version, and of what the module itself holds."""
    table = ApiTable.load(version)
    owners = (*table.classes(), *table.enums())
    inner = (member for owner in owners for member in (*table.members(owner), *table.enum(owner)))
    return frozenset((*inner, *owners, *table.functions(), *table.values()))
