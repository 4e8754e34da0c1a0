"""The keywords that Torch-TensorRT reads, from the source of the installed package.

Its functions end in ``**kwargs``, so a keyword that is not read is accepted silently. The source is parsed, never imported. The scanner of
old code has a table of them for other releases, which `docs/make_keywords.py` writes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCES = ("_compile", "_Input", "dynamo/_compiler", "dynamo/_tracer")

# How the source itself says that an argument does nothing.
_SAID_TO_DO_NOTHING = (
    r"`(\w+)` is deprecated and has no effect",
    r"Detected (\w+) was non-empty",
    r"(\w+) \(bool\): [^\n]*only applicable to torch\.compile",
)
Keywords = dict[str, list[str]]  # what a function reads, by the function's name


def read_package(folder: Path) -> Keywords:
    """The keywords of an installed package, from the source in its folder. See `of_sources`.

    Raises:
        ValueError: its functions have moved.
    """
    return of_sources({name: ast.parse((folder / f"{name}.py").read_bytes()) for name in SOURCES})


def of_sources(sources: Mapping[str, ast.Module]) -> Keywords:
    """The keywords by function.

    ``compile``: read when a module is compiled with ``ir="dynamo"``. ``ignored``: accepted there by name, without effect.
    ``save`` and ``load``: those of the function. ``save_executorch``: read by ``save`` only for that output format. ``Input``:
    those of that class.
    """
    front, dynamo = _function(sources["_compile"], "compile"), _function(sources["dynamo/_compiler"], "compile")
    save, load = (_function(sources["_compile"], name) for name in ("save", "load"))
    traced = set(_read_from_kwargs(_function(sources["dynamo/_tracer"], "trace")))
    shared = {"module", "ir", "inputs", "arg_inputs", "kwarg_inputs"}
    lost = set(_named(front)) - set(_named(dynamo)) - shared  # the front takes them and hands them to the older frontends alone
    said = {name for pattern in _SAID_TO_DO_NOTHING for name in re.findall(pattern, _texts(dynamo))}
    only_executorch = set(_read_from_kwargs(save)) - {"inductor_configs"}
    return {
        "compile": sorted({*_named(front), *_named(dynamo), *traced} - {"module", "ir", "exported_program"}),
        "ignored": sorted(lost | said),
        "save": sorted({*_named(save), "inductor_configs"} - {"module", "file_path"}),
        "save_executorch": sorted(only_executorch),
        "load": sorted(set(_named(load)) - {"file_path"}),
        "Input": sorted(set(_read_from_kwargs(_function(sources["_Input"], "__init__")))),
    }


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    """The last definition of that name, also within a class: earlier ones are overloads."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    if not found:
        raise ValueError(f"torch_tensorrt no longer defines {name}() where it did")
    return found[-1]


def _named(function: ast.FunctionDef) -> Iterator[str]:
    arguments = function.args
    yield from (argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs))


def _read_from_kwargs(function: ast.FunctionDef) -> Iterator[str]:
    """Names in ``kwargs["name"]``, ``kwargs.get("name")`` and ``kwargs.pop("name")``."""
    for node in ast.walk(function):
        key: ast.expr | None = None
        if isinstance(node, ast.Subscript):
            place, key = node.value, node.slice
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("get", "pop")
            and node.args
        ):
            place, key = node.func.value, node.args[0]
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and ast.unparse(place) == "kwargs":
            yield key.value


def _texts(function: ast.FunctionDef) -> str:
    return "\n".join(
        node.value for node in ast.walk(function) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
