"""The API of one TensorRT version. `docs/make_tables.py` reads it from NVIDIA's bindings."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

TABLES = Path(__file__).parent / "api"


@dataclass(frozen=True)
class Parameter:
    """One parameter as the binding declares it; `default` is None if a value must be given."""

    name: str
    type: str
    default: str | None = None


@dataclass(frozen=True)
class Signature:
    """One overload of a function, without `self`."""

    parameters: tuple[Parameter, ...]
    returns: str


class Overload(TypedDict):
    """One signature without `self`.

    Types and defaults are texts without the names of their modules. A type that the docstring does not state is empty.

    Attributes:
        parameters: ``[name, type]`` or ``[name, type, default]`` each.
        returns: the type of the result.
    """

    parameters: list[list[str]]
    returns: str


class _Class(TypedDict):
    """One class as `docs/make_tables.py` writes it, without what it inherits."""

    bases: list[str]
    methods: dict[str, list[Overload]]
    properties: dict[str, str]
    types: dict[str, str]
    attributes: dict[str, str]


@dataclass(frozen=True, eq=False)  # there is one object for a version, so identity is equality, and it can be a key
class ApiTable:
    """The names of one version. A name is written as in user code after ``trt.``: ``"IExecutionContext.set_tensor_address"``.

    Methods, properties and members of base classes count as a class's own. Load one with `ApiTable.load`.
    """

    version: str
    _content: Mapping[str, Any] = field(repr=False)

    @staticmethod
    def versions() -> tuple[str, ...]:
        """The versions that have a table."""
        return tuple(sorted(file.name.removesuffix(".json.gz") for file in TABLES.glob("*.json.gz")))

    @staticmethod
    @cache
    def load(version: str) -> ApiTable:
        """The table of a version such as ``"11.4"``.

        Raises:
            ValueError: no such table.
        """
        file = TABLES / f"{version}.json.gz"
        if version not in ApiTable.versions():
            raise ValueError(f"no table of TensorRT {version!r}: there are {', '.join(ApiTable.versions())}")
        return ApiTable(version, json.loads(gzip.decompress(file.read_bytes())))

    @property
    def wheel(self) -> dict[str, str]:
        """File, name, version and SHA-256 of the wheel that was read."""
        return dict(self._content["wheel"])

    def classes(self) -> tuple[str, ...]:
        """Names of all classes that are more than an enum."""
        return tuple(self._content["classes"])

    def enums(self) -> tuple[str, ...]:
        """Names of all enums."""
        return tuple(self._content["enums"])

    def functions(self) -> tuple[str, ...]:
        """Names of the module's functions."""
        return tuple(self._content["functions"])

    def values(self) -> dict[str, str]:
        """The module's constants, such as ``float32``, and their values."""
        return dict(self._content["values"])

    def enum(self, name: str) -> dict[str, int]:
        """Members of an enum and their numbers; empty if this version has no such enum."""
        return dict(self._content["enums"].get(name, {}))

    def has(self, name: str) -> bool:
        """Whether ``trt.<name>`` exists: a class, an enum or its member, a method, a property, a function, a constant."""
        owner, _, last = name.rpartition(".")
        if name in self._content["classes"] or name in self._content["enums"]:
            return True
        if not owner:
            return name in self._content["functions"] or name in self._content["values"]
        found = self.signature(name) or self.access(name) or last in self.enum(owner)
        return bool(found) or any(last in kind["attributes"] for kind in self._lineage(owner))

    def signature(self, name: str) -> tuple[Signature, ...]:
        """The overloads of a function or method; empty if there is none of that name."""
        owner, _, last = name.rpartition(".")
        if not owner:
            return _signatures(self._content["functions"].get(name, ()))
        return next((_signatures(kind["methods"][last]) for kind in self._lineage(owner) if last in kind["methods"]), ())

    def access(self, name: str) -> str:
        """How a property may be used: ``"r"``, ``"w"`` or ``"rw"``; empty if there is none of that name."""
        owner, _, last = name.rpartition(".")
        return next((kind["properties"][last] for kind in self._lineage(owner) if last in kind["properties"]), "")

    def type_of(self, name: str) -> str:
        """The type of a property as the binding declares it, such as ``"ICudaEngine"``; empty if it does not declare one."""
        owner, _, last = name.rpartition(".")
        return next((kind["types"][last] for kind in self._lineage(owner) if last in kind["types"]), "")

    def deprecated(self, name: str) -> str:
        """The docstring's text about a deprecated name; empty if it is not deprecated. Docstrings of base classes count."""
        owner, _, last = name.rpartition(".")
        names = [f"{base}.{last}" for base in self.lineage(owner)] if owner else [name]
        return next((text for one in (name, *names) if (text := self._content["deprecated"].get(one))), "")

    def lineage(self, name: str) -> tuple[str, ...]:
        """A class and its bases, nearest first; empty if this version has no such class."""
        if name not in self._content["classes"]:
            return ()
        return (name, *(found for base in self.bases(name) for found in self.lineage(base)))

    def members(self, name: str) -> tuple[str, ...]:
        """Methods, properties and attributes of a class and its bases."""
        kinds = self._lineage(name)
        return tuple(sorted({key for one in kinds for key in (*one["methods"], *one["properties"], *one["attributes"])}))

    def bases(self, name: str) -> tuple[str, ...]:
        """The direct base classes of a class."""
        return tuple(self._content["classes"][name]["bases"])

    def _lineage(self, name: str) -> list[_Class]:
        return [self._content["classes"][one] for one in self.lineage(name)]


def _signatures(overloads: Sequence[Overload]) -> tuple[Signature, ...]:
    return tuple(Signature(tuple(Parameter(*p) for p in one["parameters"]), one["returns"]) for one in overloads)
