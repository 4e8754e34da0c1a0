"""Conditions that old code puts around a call so that it runs on several versions: ``hasattr``, enum members, version checks.

Each condition can be evaluated for one TensorRT version with that version's table. If a check does not do what it means, it both
holds and fails, and both of its branches count as reached.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from typing_extensions import override

from course_lib.migration.analysis.evaluate import outcomes
from course_lib.migration.tables.api_table import ApiTable


class Condition(ABC):
    """Something that is true, false or unclear (None) in one version."""

    @abstractmethod
    def holds(self, table: ApiTable) -> bool | None:
        """Whether the code under the condition is reached."""

    def fails(self, table: ApiTable) -> bool | None:
        """Whether the code under its opposite is reached."""
        held = self.holds(table)
        return None if held is None else not held


@dataclass(frozen=True)
class Has(Condition):
    """A name exists; ``"*.member"`` means in any class."""

    name: str

    @override
    def holds(self, table: ApiTable) -> bool | None:
        owner, _, member = self.name.rpartition(".")
        return member in member_names(table.version) if owner == "*" else table.has(self.name)


@dataclass(frozen=True, eq=False)
class VersionTest(Condition):
    """An expression about ``trt.__version__``; `names` as `outcomes` takes them."""

    test: ast.expr
    names: Mapping[str, ast.expr]

    @override
    def holds(self, table: ApiTable) -> bool | None:
        found = outcomes(self.test, table.wheel["version"], self.names)
        return True in found if found else None

    @override
    def fails(self, table: ApiTable) -> bool | None:
        found = outcomes(self.test, table.wheel["version"], self.names)
        return False in found if found else None


@dataclass(frozen=True)
class Unclear(Condition):
    """It depends on the version in a way that only running the code would show."""

    @override
    def holds(self, table: ApiTable) -> bool | None:
        return None


@dataclass(frozen=True)
class Not(Condition):
    """The inner condition fails."""

    inner: Condition

    @override
    def holds(self, table: ApiTable) -> bool | None:
        return self.inner.fails(table)

    @override
    def fails(self, table: ApiTable) -> bool | None:
        return self.inner.holds(table)


@dataclass(frozen=True)
class Presumed(Condition):
    """A condition that holds unless the version contradicts it."""

    inner: Condition

    @override
    def holds(self, table: ApiTable) -> bool | None:
        return self.inner.holds(table) is not False

    @override
    def fails(self, table: ApiTable) -> bool | None:
        return self.inner.fails(table)


@dataclass(frozen=True)
class All(Condition):
    """Every part holds; with no part it does."""

    parts: tuple[Condition, ...]

    @override
    def holds(self, table: ApiTable) -> bool | None:
        return _all([part.holds(table) for part in self.parts])

    @override
    def fails(self, table: ApiTable) -> bool | None:
        return _any([part.fails(table) for part in self.parts])


@dataclass(frozen=True)
class AnyOf(Condition):
    """At least one part holds."""

    parts: tuple[Condition, ...]

    @override
    def holds(self, table: ApiTable) -> bool | None:
        return _any([part.holds(table) for part in self.parts])

    @override
    def fails(self, table: ApiTable) -> bool | None:
        return _all([part.fails(table) for part in self.parts])


def _all(held: list[bool | None]) -> bool | None:
    return False if False in held else None if None in held else True


def _any(held: list[bool | None]) -> bool | None:
    return True if True in held else None if None in held else False


def version_number(version: str) -> tuple[int, ...]:
    """A version such as ``"8.6.1"`` or ``"rtx-1.7.1"`` as numbers."""
    return tuple(int(part) for part in version.rpartition("-")[2].split(".") if part.isdigit())


@cache
def member_names(version: str) -> frozenset[str]:
    """Names of the members of all classes and enums of a version, and of what the module itself holds."""
    table = ApiTable.load(version)
    owners = (*table.classes(), *table.enums())
    inner = (member for owner in owners for member in (*table.members(owner), *table.enum(owner)))
    return frozenset((*inner, *owners, *table.functions(), *table.values()))
