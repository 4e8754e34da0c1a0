"""Run as a script by `bindings`: imports one binding module and prints its content as JSON, with unparsed docstrings.

It is a separate process, because a process can import only one TensorRT. This one ends without calling anything,
because the libraries behind it are empty.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from types import ModuleType
from typing import Any

# Of the special methods, those that change how a user writes code; the rest comes with every class.
_SPECIAL = ("__init__", "__len__", "__getitem__", "__setitem__", "__iter__", "__call__", "__enter__", "__exit__")
_OF_EVERY_ENUM = ("name", "value")
_MACHINERY = ("attr", "value")  # loop variables that the package leaves in its namespace


def describe_module(module: ModuleType) -> dict[str, object]:
    """Classes, enums, functions and constants of a binding module, and the docstrings that mention deprecation."""
    found: dict[str, Any] = {"classes": {}, "enums": {}, "functions": {}, "values": {}, "docs": {}}
    for name in sorted(vars(module)):
        thing = getattr(module, name)
        if name.startswith("_") or name in _MACHINERY or isinstance(thing, ModuleType):
            continue
        if isinstance(thing, type):
            _describe_class(name, thing, found)
        elif callable(thing):
            found["functions"][name] = _text(thing)
            _keep_doc(name, thing, found)
        else:
            found["values"][name] = str(thing)
    return found


def _describe_class(name: str, kind: type, found: dict[str, Any]) -> None:
    members = getattr(kind, "__members__", None)
    if members is not None:
        found["enums"][name] = {member: int(value) for member, value in members.items()}
        for member, (_, doc) in getattr(kind, "__entries").items():
            _keep_doc(f"{name}.{member}", doc, found)
    _keep_doc(name, kind, found)
    methods, properties, attributes, types = {}, {}, {}, {}
    for key, value in sorted(vars(kind).items()):
        if key.startswith("_") and key not in _SPECIAL:
            continue
        if members is not None and key in (*members, *_OF_EVERY_ENUM, "__init__"):
            continue
        if isinstance(value, property):
            properties[key] = ("r" if value.fget else "") + ("w" if value.fset else "")
            types[key] = inspect.getdoc(value.fget) or "" if value.fget else ""
            _keep_doc(f"{name}.{key}", value, found)
        elif isinstance(value, type):
            if value.__module__ == kind.__module__ and value.__qualname__ == f"{name}.{key}":
                _describe_class(f"{name}.{key}", value, found)
            else:
                attributes[key] = value.__qualname__
        elif callable(value) or isinstance(value, staticmethod):
            methods[key] = _text(value)
            if not key.startswith("_"):
                _keep_doc(f"{name}.{key}", value, found)
        else:
            attributes[key] = str(value)
    if methods or properties or attributes or members is None:
        bases = [base.__name__ for base in kind.__bases__ if base.__module__ == kind.__module__]
        content = {"methods": methods, "properties": properties, "types": types, "attributes": attributes}
        found["classes"][name] = {"bases": bases, **content}


def _keep_doc(name: str, thing: Any, found: dict[str, Any]) -> None:
    doc = thing if isinstance(thing, str) else inspect.getdoc(thing)
    if doc and "deprecated" in doc.lower():
        found["docs"][name] = doc


def _text(function: Any) -> str:
    """The docstring of an object. With pybind11 it begins with the signature; for a Python function, the signature is added."""
    function = function.__func__ if isinstance(function, staticmethod) else function
    if inspect.isfunction(function):
        return f"{function.__name__}{inspect.signature(function)}"
    return inspect.getdoc(function) or ""


if __name__ == "__main__":
    json.dump(describe_module(importlib.import_module(sys.argv[1])), sys.stdout)
