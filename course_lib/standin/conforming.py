"""Turns the stand-in's classes into those of one TensorRT version, with the table of NVIDIA's bindings as the judge.

A method or property that the version lacks is left out; one that no version has is rejected. Arguments are bound to the names and
checked against the types that the bindings declare, so that a wrong call raises the TypeError of pybind11. Values of enums and
the enums themselves come from the table.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib.migration.tables.api_table import ApiTable, Signature

VERSIONS = ("10.16", "11.4")  # of TensorRT that have a stand-in

_MAY_BE_NONE = ("IOutputAllocator", "IProfiler", "IProgressMonitor")


def make_enum(name: str, members: dict[str, int]) -> type:
    """An enum as pybind11 makes it: neither iterable nor subscriptable, equal only to its own kind, no arithmetic."""
    name = name.rpartition(".")[2]

    class Member:
        __slots__ = ("value",)
        __members__: dict[str, Any]

        def __init__(self, value: int) -> None:
            self.value = value

        @property
        def name(self) -> str:
            return next((key for key, number in members.items() if number == self.value), "???")

        def __repr__(self) -> str:
            return f"<{name}.{self.name}: {self.value}>"

        def __str__(self) -> str:
            return f"{name}.{self.name}"

        def __eq__(self, other: object) -> bool:
            return type(other) is type(self) and other.value == self.value

        def __hash__(self) -> int:
            return hash(self.value)

        def __int__(self) -> int:
            return self.value

        __index__ = __int__

    Member.__name__ = Member.__qualname__ = name
    Member.__members__ = {}
    for key, number in members.items():
        member = Member(number)
        Member.__members__[key] = member
        setattr(Member, key, member)
    return Member


class Template:
    """What the stand-in's classes are written as. `conform` makes a version's class of it; these attributes come with that."""

    _trt: Any
    _table: ApiTable


def kept(place: str, kind: str) -> Any:
    """A property of a template that is only kept.

    Args:
        place: the attribute that holds it.
        kind: its type, as in the bindings: the table tells no types of properties.
    """

    def read(self: Any) -> Any:
        return getattr(self, place)

    def write(self: Any, value: Any) -> None:
        setattr(self, place, value)

    write.__annotations__ = {"value": kind, "return": "None"}
    return property(read, write)


class BoundType(type):
    """The metaclass of pybind11: no object without its base's `__init__`, no constructor where TensorRT makes the objects."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """An object, if the constructor of the bound base ran."""
        thing = super().__call__(*args, **kwargs)
        if not thing.__dict__.get("_initialized"):
            bound = next(kind for kind in cls.__mro__ if "_is_bound" in vars(kind))
            raise TypeError(f"tensorrt.{bound.__name__}.__init__() must be called when overriding __init__")
        return thing


class Bound(metaclass=BoundType):
    """Base of all classes of the stand-in. The module that a class belongs to is its attribute `_trt`."""

    _trt: Any
    _table: ApiTable
    _setup: Any  # of the classes whose objects TensorRT makes

    @classmethod
    def _make(cls, *args: Any, **kwargs: Any) -> Any:
        """An object that TensorRT makes, not the user."""
        thing = object.__new__(cls)
        thing._initialized = True
        thing._setup(*args, **kwargs)
        return thing

    def __setattr__(self, name: str, value: Any) -> None:
        of_user = "_is_bound" not in vars(type(self))
        if not of_user and not name.startswith("_") and not isinstance(getattr(type(self), name, None), property):
            raise AttributeError(f"'tensorrt.{type(self).__name__}' object has no attribute '{name}'")
        object.__setattr__(self, name, value)


def conform(template: type, bases: tuple[type, ...], trt: Any, table: ApiTable) -> type:
    """The class of one version.

    Raises:
        AssertionError: the template has a public name that no version knows.
    """
    name = template.__name__
    namespace: dict[str, Any] = {"_trt": trt, "_table": table, "_is_bound": True, "__doc__": template.__doc__}
    for key, value in vars(template).items():
        if key.startswith("_") and key != "__init__":
            if key not in ("__dict__", "__weakref__", "__doc__", "__module__"):
                namespace[key] = value
            continue
        full = f"{name}.{key}"
        assert any(ApiTable.load(version).has(full) for version in VERSIONS), f"no TensorRT has {full}"
        if isinstance(value, property):
            if access := table.access(full):
                setter = _checked_setter(full, value.fset, trt) if value.fset and "w" in access else None
                namespace[key] = property(value.fget if "r" in access else None, setter)
        elif overloads := table.signature(full):
            namespace[key] = checked(full, value, overloads, trt)
    if "__init__" not in namespace:
        namespace["__init__"] = _no_constructor
    return BoundType(name, bases or (Bound,), namespace)


def _no_constructor(self: Any, *args: Any, **kwargs: Any) -> None:
    raise TypeError(f"tensorrt.{type(self).__name__}: No constructor defined!")


def checked(full: str, function: Callable[..., Any], overloads: Sequence[Signature], trt: Any) -> Callable[..., Any]:
    """A method that takes what the first fitting overload takes. `__wrapped__` is the function as it is written."""
    known = tuple(inspect.signature(function).parameters)[1:]
    name = full.rpartition(".")[2]

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if name == "__init__":
            object.__setattr__(self, "_initialized", True)
        for overload in overloads:
            bound = _bind(overload, args, kwargs, trt)
            if bound is not None:
                if unknown := bound.keys() - set(known):
                    raise NotImplementedError(f"the stand-in for {full} does not know {', '.join(unknown)}")
                return function(self, **bound)
        raise _rejection(full, name, overloads, args)

    method.__name__, method.__wrapped__ = name, function  # type: ignore[attr-defined]
    return method


def _bind(overload: Signature, args: tuple[Any, ...], kwargs: dict[str, Any], trt: Any) -> dict[str, Any] | None:
    """The arguments that were given, by name, converted; None if they do not fit. Defaults are the function's own."""
    names = [parameter.name for parameter in overload.parameters]
    given = dict(zip(names, args, strict=False))
    if len(args) > len(names) or given.keys() & kwargs.keys() or kwargs.keys() - set(names):
        return None
    given.update(kwargs)
    bound = {}
    for parameter in overload.parameters:
        if parameter.name not in given:
            if parameter.default is None:
                return None
            continue
        fits, value = convert(given[parameter.name], parameter.type, trt)
        if not fits:
            return None
        bound[parameter.name] = value
    return bound


def _rejection(full: str, name: str, overloads: Sequence[Signature], args: tuple[Any, ...]) -> TypeError:
    constructor = name == "__init__"
    shown = full.rpartition(".")[0] if constructor else ""
    lines = [
        f"    {i}. {shown}({', '.join(f'{p.name}: {p.type}' + (f' = {p.default}' if p.default else '') for p in one.parameters)})"
        for i, one in enumerate(overloads, 1)
    ]
    what = "constructor" if constructor else "function"
    supported = "The following argument types are supported:\n" + "\n".join(lines)
    invoked = ", ".join(repr(argument)[:80] for argument in args)
    return TypeError(f"{name}(): incompatible {what} arguments. {supported}\n\nInvoked with: {invoked}")


def _checked_setter(full: str, setter: Callable[[Any, Any], None], trt: Any) -> Callable[[Any, Any], None]:
    (kind,) = (text for parameter, text in setter.__annotations__.items() if parameter != "return")

    def set_value(self: Any, value: Any) -> None:
        fits, converted = convert(value, kind, trt)
        if not fits:
            raise TypeError(f"(): incompatible function arguments. {full} takes a {kind}\n\nInvoked with: {value!r}"[:400])
        setter(self, converted)

    return set_value


def convert(value: Any, kind: str, trt: Any) -> tuple[bool, Any]:
    """Whether pybind11 would take a value for a parameter of a type, and what it makes of it."""
    if kind.startswith("Sequence["):
        if isinstance(value, str | bytes) or not hasattr(value, "__len__") or not hasattr(value, "__getitem__"):
            return False, None
        parts = [convert(part, kind[len("Sequence[") : -1], trt) for part in value]
        return all(fits for fits, _ in parts), [part for _, part in parts]
    if kind in _PLAIN:
        return _PLAIN[kind](value)
    if kind == "Dims":
        if isinstance(value, trt.Dims):
            return True, value
        fits, sizes = convert(value, "Sequence[SupportsInt]", trt)
        return fits, trt.Dims(sizes) if fits else None
    if value is None:
        return kind in _MAY_BE_NONE, None
    expected: Any = trt
    for part in kind.split("."):
        expected = getattr(expected, part, None)
    return expected is not None and isinstance(value, expected), value


def _integer(value: Any) -> tuple[bool, Any]:
    if isinstance(value, str | bytes | float | np.floating) or not (hasattr(value, "__int__") or hasattr(value, "__index__")):
        return False, None
    return True, int(value)


def _real(value: Any) -> tuple[bool, Any]:
    fits = isinstance(value, int | float | np.number)
    return fits, float(value) if fits else None


def _buffer(value: Any) -> tuple[bool, Any]:
    try:
        return True, memoryview(value).cast("B")
    except TypeError:
        return False, None


_PLAIN: dict[str, Callable[[Any], tuple[bool, Any]]] = {
    "": lambda value: (True, value),
    "object": lambda value: (True, value),
    "str": lambda value: (isinstance(value, str), value),
    "bool": lambda value: (isinstance(value, bool | np.bool_), value),
    "tuple": lambda value: (isinstance(value, tuple), value),
    "list": lambda value: (isinstance(value, list), value),
    "numpy.ndarray": lambda value: (isinstance(value, np.ndarray), value),
    "SupportsInt": _integer,
    "SupportsFloat": _real,
    "Buffer": _buffer,
}
