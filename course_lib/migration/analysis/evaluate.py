"""The result of a version check in one version: a small interpreter for expressions about ``trt.__version__``.

Old code compares versions as text, which was right up to 9: as text, "11.4" is less than "8.6". Each check is therefore evaluated
twice, as Python does it and as the author meant it, with numbers compared as numbers.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, SupportsIndex

from course_lib.migration.analysis import naming

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.In: lambda value, group: value in group,
    ast.NotIn: lambda value, group: value not in group,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_NUMBERS = ("Version", "LooseVersion", "StrictVersion", "parse", "parse_version", "version")
_PARTS = ("major", "minor", "micro", "release")  # of a Version of packaging
_TEXT_METHODS = ("split", "startswith", "strip", "rstrip", "lstrip", "replace", "partition", "rpartition", "rsplit", "lower")
_BUILT_IN: dict[str, Callable[..., Any]] = {
    "int": int, "float": float, "str": str, "tuple": tuple, "list": list, "len": len, "bool": bool, "min": min, "max": max,
}  # fmt: skip
_DEEPEST = 30
_LARGEST_MAJOR = 100  # a larger number is a version in some encoding, such as 8601


class Unknown(Exception):
    """The expression depends on something else than the version."""


# What an odd expression, such as ``int("x")`` or a number of a million digits, may end in.
_NO_ANSWER = (Unknown, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, MemoryError, RecursionError)


class _Meant(str):
    """The version as text, of which the first character is meant to be the major number, whatever its length."""

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if isinstance(key, slice) and not key.start:
            return ".".join(self.split(".")[:2])
        return self.partition(".")[0] if key == 0 else str.__getitem__(self, key)


def outcomes(test: ast.expr, version: str, names: Mapping[str, ast.expr]) -> set[bool]:
    """The possible results of a test in a version: one value, both if text and meaning differ, none if it cannot be determined.

    Args:
        version: the text of ``trt.__version__``.
        names: values of variables by their text, and return values of functions by their name and ``"()"``.
    """
    found = set()
    for meant in (False, True):
        try:
            found.add(bool(_Evaluation(version, names, meant=meant).value(test)))
        except _NO_ANSWER:
            return set()
    return found


def asks_the_installer(node: ast.AST) -> bool:
    """``importlib.metadata.version("tensorrt")`` and ``pkg_resources.get_distribution("tensorrt").version``"""
    if isinstance(node, ast.Attribute) and node.attr == "version":
        node = node.value
        names: tuple[str, ...] = ("get_distribution", "distribution")
    else:
        names = ("version",)
    if not (isinstance(node, ast.Call) and len(node.args) == 1 and isinstance(node.args[0], ast.Constant)):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    asked = str(node.args[0].value).replace("-", "_").lower()
    return called in names and asked.startswith("tensorrt") and not asked.startswith("tensorrt_llm")


class _Evaluation:
    def __init__(self, version: str, names: Mapping[str, ast.expr], *, meant: bool) -> None:
        self.version: str = _Meant(version) if meant else version
        self.names, self.meant = names, meant
        self.bound: dict[str, Any] = {}
        self.depth = 0

    def value(self, node: ast.expr) -> Any:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Unknown
        try:
            return self._value(node)
        finally:
            self.depth -= 1

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if (isinstance(node, ast.Attribute) and node.attr == "__version__") or asks_the_installer(node):
            return self.version
        if isinstance(node, ast.Attribute) and node.attr in _PARTS and isinstance(numbers := self.value(node.value), list):
            return numbers if node.attr == "release" else [*numbers, 0, 0][_PARTS.index(node.attr)]
        if isinstance(node, ast.Name) and node.id in self.bound:
            return self.bound[node.id]
        if isinstance(node, ast.Name | ast.Attribute) and (text := ast.unparse(node)) in self.names:
            return self.value(self.names[text])
        if isinstance(node, ast.Tuple | ast.List):
            return [self.value(element) for element in node.elts]
        if isinstance(node, ast.Subscript):
            return self.value(node.value)[self._index(node.slice)]
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            left, right = self.value(node.left), self.value(node.right)
            if isinstance(node.op, ast.Mult) and not (isinstance(left, int | float) and isinstance(right, int | float)):
                raise Unknown  # a repeated text or list is not a version
            return _ARITHMETIC[type(node.op)](left, right)
        if isinstance(node, ast.UnaryOp):
            inner = self.value(node.operand)
            return not inner if isinstance(node.op, ast.Not) else -inner
        if isinstance(node, ast.BoolOp):
            values = [self.value(part) for part in node.values]
            return all(values) if isinstance(node.op, ast.And) else any(values)
        if isinstance(node, ast.Compare):
            return self._compare(node)
        if isinstance(node, ast.IfExp):
            return self.value(node.body if self.value(node.test) else node.orelse)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self._each(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        raise Unknown

    def _index(self, node: ast.expr) -> Any:
        if not isinstance(node, ast.Slice):
            return self.value(node)
        return slice(*(None if part is None else self.value(part) for part in (node.lower, node.upper, node.step)))

    def _each(self, node: ast.ListComp | ast.GeneratorExp) -> list[Any]:
        if len(node.generators) != 1 or not isinstance(node.generators[0].target, ast.Name):
            raise Unknown
        generator, values = node.generators[0], []
        for item in self.value(generator.iter):
            self.bound[node.generators[0].target.id] = item
            if all(self.value(test) for test in generator.ifs):
                values.append(self.value(node.elt))
        return values

    def _compare(self, node: ast.Compare) -> bool:
        left = self._side(node.left, node.comparators[0])
        for comparison, right_node in zip(node.ops, node.comparators, strict=True):
            right = self._side(right_node, node.left)
            if type(comparison) not in _COMPARISONS:
                raise Unknown
            one, other = _comparable(left, right, meant=self.meant)
            if not _COMPARISONS[type(comparison)](one, other):
                return False
            left = right
        return True

    def _side(self, node: ast.expr, other: ast.expr) -> Any:
        """A side of a comparison. An unknown name that suggests a version is the version under test, in the type of the other side."""
        try:
            return self.value(node)
        except Unknown:
            called = node.func if isinstance(node, ast.Call) else node
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            like = self.value(other) if naming.names_a_version(name) else None
        if isinstance(like, str):
            return self.version
        if isinstance(like, list):
            return _numbers(self.version)
        if isinstance(like, int | float) and not isinstance(like, bool) and like < _LARGEST_MAJOR:
            return _numbers(self.version)[0] if isinstance(like, int) else float(".".join(self.version.split(".")[:2]))
        raise Unknown

    def _call(self, node: ast.Call) -> Any:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if isinstance(node.func, ast.Name) and f"{name}()" in self.names:
            return self.value(self.names[f"{name}()"])
        if isinstance(node.func, ast.Attribute) and name in _TEXT_METHODS:
            return getattr(str(self.value(node.func.value)), name)(*map(self.value, node.args))
        if name == "map" and len(node.args) == 2 and isinstance(node.args[0], ast.Name):
            return [_BUILT_IN[node.args[0].id](one) for one in self.value(node.args[1])]
        if name in _NUMBERS and len(node.args) == 1:
            return _numbers(str(self.value(node.args[0])))
        if name in _BUILT_IN and isinstance(node.func, ast.Name):
            return _BUILT_IN[name](*map(self.value, node.args))
        raise Unknown


def _numbers(text: str) -> list[int]:
    parts = [part for part in text.split(".") if part.isdigit()]
    if not parts:
        raise Unknown
    return [int(part) for part in parts]


def _comparable(left: Any, right: Any, *, meant: bool) -> tuple[Any, Any]:
    """Both sides of a comparison as the same type: two lists, or numbers for version texts if `meant`."""
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return list(left), list(right)
    if meant and isinstance(left, str) and isinstance(right, str) and right.replace(".", "").isdigit():
        return _numbers(left), _numbers(right)
    return left, right
