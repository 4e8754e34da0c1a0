"""The tests in a program that depend on the TensorRT version, as a `Condition`: `hasattr`, enum members, version checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

from course_lib.migration.analysis import naming
from course_lib.migration.analysis.evaluate import asks_the_installer
from course_lib.migration.analysis.guards import Condition, all_of, any_of, has, opposite, partly, version_test
from course_lib.migration.analysis.inference import Scope
from course_lib.migration.tables import known

_ENUM_LISTS = ("__members__", "__dict__")


def condition_of(test: ast.expr, scope: Scope) -> Condition | None:
    """The condition of a test on the version; None for any other test."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = condition_of(test.operand, scope)
        return None if inner is None else opposite(inner)
    if isinstance(test, ast.BoolOp):
        return _joined(test, scope)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.In | ast.NotIn):
        found = _member(test.left, test.comparators[0], scope)
        if found:
            return opposite(found) if isinstance(test.ops[0], ast.NotIn) else found
    if isinstance(test, ast.Name | ast.Attribute) and (text := ast.unparse(test)) in scope.program.conditions:
        return scope.program.conditions[text]
    if isinstance(test, ast.Call) and (asked := _call(test, scope)):
        return asked
    if scope.program.speaks_of_versions and (holds_version(test, scope) or _names_a_version(test)):
        return version_test(test, scope.program.version_values)
    return None


def holds_version(node: ast.expr, scope: Scope) -> bool:
    """Whether the value of an expression depends on TensorRT's version."""
    if not scope.program.speaks_of_versions:
        return False
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr == "__version__" and scope.guessed(part.value)[0] == "trt":
            return True
        if asks_the_installer(part):
            return True
        if isinstance(part, ast.Name | ast.Attribute) and ast.unparse(part) in scope.program.version_values:
            return True
        if (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Name)
            and f"{part.func.id}()" in scope.program.version_values
        ):
            return True
    return False


def members_of(node: ast.expr, scope: Scope) -> str:
    """The enum whose ``__members__`` an expression is; empty for anything else."""
    if isinstance(node, ast.Attribute) and node.attr in _ENUM_LISTS:
        return scope.guessed(node.value)[0].removeprefix("class:")
    return ""


def speaks_of_versions(tree: ast.AST) -> bool:
    """Whether any name in a program could hold a version. Otherwise no test needs to be checked."""
    names = set()
    for part in ast.walk(tree):
        if isinstance(part, ast.Name):
            names.add(part.id)
        elif isinstance(part, ast.Attribute):
            names.add(part.attr)
        elif isinstance(part, ast.FunctionDef | ast.alias):
            names.add(part.name)
    return any("version" in name.lower() or "distribution" in name or naming.names_a_version(name) for name in names)


def _names_a_version(node: ast.expr) -> bool:
    names = (part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "") for part in ast.walk(node))
    return any(naming.names_a_version(name) for name in names)


def _joined(test: ast.BoolOp, scope: Scope) -> Condition | None:
    parts = [condition_of(value, scope) for value in test.values]
    asked = tuple(part for part in parts if part is not None)
    if not asked:
        return None
    if len(asked) == len(parts):
        return all_of(asked) if isinstance(test.op, ast.And) else any_of(asked)
    return partly(all_of(asked)) if isinstance(test.op, ast.And) else opposite(partly(all_of(map(opposite, asked))))


def _member(left: ast.expr, right: ast.expr, scope: Scope) -> Condition | None:
    """``"NAME" in trt.Enum.__members__`` and ``"name" in dir(trt.Class)``."""
    if not (isinstance(left, ast.Constant) and isinstance(left.value, str)):
        return None
    if isinstance(right, ast.Call) and isinstance(right.func, ast.Attribute) and right.func.attr == "keys":
        right = right.func.value
    if isinstance(right, ast.Attribute) and right.attr in _ENUM_LISTS:
        return _has(right.value, left.value, scope)
    if isinstance(right, ast.Call) and isinstance(right.func, ast.Name) and right.func.id in ("dir", "vars") and right.args:
        return _has(right.args[0], left.value, scope)
    owner = scope.program.member_lists.get(ast.unparse(right))  # known = trt.Enum.__members__
    return has(f"{owner}.{left.value}") if owner else None


def _has(holder: ast.expr, name: str, scope: Scope) -> Condition | None:
    kind, _ = scope.guessed(holder)
    if kind == "trt":
        return has(name)
    owner = kind.removeprefix("class:")
    if owner in known.classes():
        return has(f"{owner}.{name}")
    return has(f"*.{name}") if not kind and known.owners_of(name) else None


def _call(test: ast.Call, scope: Scope) -> Condition | None:
    called = test.func.attr if isinstance(test.func, ast.Attribute) else getattr(test.func, "id", "")
    if called == "hasattr" and len(test.args) == 2 and isinstance(test.args[1], ast.Constant):
        return _has(test.args[0], str(test.args[1].value), scope)
    if called in ("bool", "callable") and test.args:
        return condition_of(test.args[0], scope)
    if isinstance(test.func, ast.Name) and (body := scope.program.results.get(called)) is not None:
        with _opened(called, scope):
            return condition_of(body, scope)
    return None


@contextmanager
def _opened(function: str, scope: Scope) -> Iterator[None]:
    """Marks a function whose body is being checked, because it may call itself."""
    body = scope.program.results.pop(function)
    try:
        yield
    finally:
        scope.program.results[function] = body
