"""Packages that import each name from its module on first use, so that importing the package is fast."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package, and its ``__all__``.

    The names are those that its ``__init__.py`` imports for type checkers, under ``if TYPE_CHECKING:``; names of the package that
    it imports at once are public too.

    Args:
        package: its ``__name__``.
    """
    body = ast.parse(Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8")).body
    modules = {name: module for block in body if isinstance(block, ast.If) for name, module in _imported(block.body, package)}

    def getattr_(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name]), name)

    def dir_() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return getattr_, dir_, sorted({*modules, *(name for name, _ in _imported(body, package))})


def _imported(body: list[ast.stmt], package: str) -> list[tuple[str, str]]:
    """The names that statements import from modules of the package, each with its module."""
    found = [node for node in body if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{package}.")]
    return [(alias.name, str(node.module)) for node in found for alias in node.names]
