"""The type of an expression, as far as TensorRT is concerned: simple type inference over Python's syntax tree.

A type is a text: ``"trt"`` for the module, ``"class:Builder"`` for a class or enum, ``"Builder"`` for an object of it,
``"list:ILayer"``, ``"list:str"``, ``"user:Name"`` for an object of a class of the program's own and ``"userclass:Name"`` for that class,
``"torch_tensorrt"`` and ``"torch_tensorrt.ts"`` for modules of Torch-TensorRT, ``"gone:infer"`` for a module of TensorRT 3,
``"compiled"`` for what its `compile` returns, ``"str"``, ``"key"`` for what a dictionary goes by, ``"container"`` for a list or
dictionary of anything, ``"other"`` for what is known not to be TensorRT's, and ``""`` for what is not known.

There are two queries. `Scope.type_of` gives the likely type, which is sufficient to report that a known name was removed. `Scope.exact`
gives the type only if nothing in the program contradicts it: every binding of every variable involved gives the same type. Only
then can a report say that no version ever had a name.
"""

from __future__ import annotations

import ast
from collections import ChainMap
from dataclasses import dataclass, field

from course_lib.migration.analysis import naming
from course_lib.migration.analysis.guards import Condition
from course_lib.migration.tables import known

OTHER = "other"
_IMPORTERS = ("import_module", "lazy_import", "__import__")
_TENSORRT = ("tensorrt", "tensorrt_rtx", "tensorrt_bindings", "tensorrt_dispatch", "tensorrt_lean", "tensorrt_rtx_bindings")
_NOT_TENSORRTS = "open bytes bytearray memoryview str int float bool len range sum min max abs repr hash id input print"
_BUILT_IN = frozenset(_NOT_TENSORRTS.split())
_BYTES = ("read", "read_bytes", "tobytes", "getvalue", "encode")  # methods whose result is text or bytes, whatever has them
SUBMODULES = ("plugin",)  # written in Python beside the bindings: no table lists what they hold
_TORCH_TENSORRT = ("torch_tensorrt", "trtorch")


@dataclass
class Program:
    """The knowledge about one file so far. Each pass over its tree adds to it."""

    variables: dict[str, str] = field(default_factory=dict)  # of the module
    attributes: dict[tuple[str, str], str] = field(default_factory=dict)  # of the program's classes: (class, name)
    returns: dict[str, str] = field(default_factory=dict)  # "function" or "Class.method"
    results: dict[str, ast.expr] = field(default_factory=dict)  # the expression of a function that is one return
    bases: dict[str, tuple[str, ...]] = field(default_factory=dict)  # TensorRT's classes that a class is derived from
    own_names: set[str] = field(default_factory=set)  # functions, methods and attributes that the program defines
    conditions: dict[str, Condition] = field(default_factory=dict)  # variables that hold the answer to a version check
    version_values: dict[str, ast.expr] = field(default_factory=dict)  # what variables hold that come from the version
    member_lists: dict[str, str] = field(default_factory=dict)  # variables that hold an enum's `__members__`
    settings: dict[str, ast.Dict] = field(default_factory=dict)  # variables that hold a dictionary written out
    call_sites: dict[str, list[Condition | None]] = field(default_factory=dict)
    probes: set[int] = field(default_factory=set)  # lines of `try` whose handlers go another way to TensorRT
    serialized: set[tuple[str, str]] = field(default_factory=set)  # (function, variable) that is deserialized, hence bytes
    speaks_of_versions: bool = True  # whether any name in it could hold one; most programs ask for no version
    shared: set[str] = field(default_factory=set)  # names that some function binds for others; "*" for any name
    # Exact types of all bindings, by (function, variable), (".", attribute) and ("()", function); those of the walk before decide.
    bound: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    bound_before: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    @property
    def bindings(self) -> dict[tuple[str, str], set[str]]:
        """The exact types found by the previous walk, or by this one if it is the first."""
        return self.bound_before or self.bound

    def note(self, place: str, name: str, kind: str) -> None:
        """Something is bound to a thing of an exact type; "" for a type that is not certain."""
        self.bound.setdefault((place, name), set()).add(kind)

    def only(self, place: str, name: str) -> str:
        """The exact type that every binding gives; empty if they differ or one is not certain.

        The first walk knows only the bindings above and assumes that there are no others. Each further walk corrects the errors of that.
        """
        kinds = self.bindings.get((place, name), set())
        return next(iter(kinds)) if len(kinds) == 1 else ""


@dataclass
class Scope:
    """The context of an expression: the visible variables and the class of the enclosing method."""

    program: Program
    variables: ChainMap[str, str]
    owner: str = ""
    places: tuple[str, ...] = ("",)  # the functions around the expression, innermost first; "" is the module

    def inner(self, function: str | None = None) -> Scope:
        """A scope nested in this one: a block's, or the body of `function`."""
        places = self.places if function is None else (function, *self.places)
        return Scope(self.program, self.variables.new_child(), self.owner, places)

    def exact(self, node: ast.expr | None) -> str:
        """The type of an expression if the program makes it certain; otherwise empty."""
        if isinstance(node, ast.Name) and not self.program.shared & {"*", node.id}:
            place = next((one for one in self.places if (one, node.id) in self.program.bindings), None)
            return "" if place is None else self.program.only(place, node.id)
        if isinstance(node, ast.Attribute):
            holder = self.exact(node.value)
            if holder.startswith("user:"):
                return self.program.only(".", node.attr)
            found = self._attribute(holder, node.attr) if holder == "trt" or holder in known.classes() else ""
            return found if found.startswith(("class:", "function:")) or known.is_final(found) else ""
        if isinstance(node, ast.Call):
            function = self.exact(node.func)
            if function.startswith("class:"):
                return function[6:]
            if function.startswith("userclass:"):
                return f"user:{function[10:]}"
            if function.startswith("function:trt."):
                found = known.result_of(function[13:])
                return found if known.is_final(found) else ""
            return self.program.only("()", function[9:]) if function.startswith("function:") else ""
        return ""

    def type_of(self, node: ast.expr | None) -> str:
        """The type of an expression, without guessing from names."""
        if isinstance(node, ast.Name):
            return self._name(node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(self.type_of(node.value), node.attr)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Subscript):
            return self._element(self.type_of(node.value))
        if isinstance(node, ast.NamedExpr | ast.Await | ast.Starred):
            return self.type_of(node.value)
        if isinstance(node, ast.IfExp):
            return self.type_of(node.body) or self.type_of(node.orelse)
        if isinstance(node, ast.BoolOp):
            return next((found for value in node.values if (found := self.type_of(value))), "")
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            inner = self.inner()
            for generator in node.generators:
                inner.bind(generator.target, self.iterated(self.type_of(generator.iter)))
            element = inner.type_of(node.elt)
            return f"list:{element}" if element in known.classes() else "container"
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            first = self.type_of(node.elts[0])
            return f"list:{first}" if first in known.classes() or first == "str" else "container"
        if isinstance(node, ast.Constant):
            return "" if node.value in (None, ...) else "str" if isinstance(node.value, str) else OTHER
        if isinstance(node, ast.Dict | ast.List | ast.Tuple | ast.Set | ast.DictComp):
            return "container"
        return "str" if isinstance(node, ast.JoinedStr) else ""

    def guessed(self, node: ast.expr | None) -> tuple[str, bool]:
        """The type of an expression, and whether it is certain rather than guessed from a conventional name."""
        if found := self.type_of(node):
            return found, True
        if isinstance(node, ast.Name):
            return naming.guess(node.id), naming.guess(node.id) == "trt"
        if isinstance(node, ast.Attribute):
            return naming.guess(node.attr), naming.guess(node.attr) == "trt"
        if isinstance(node, ast.Subscript):
            return self._element(self.guessed(node.value)[0]), False
        if isinstance(node, ast.Call):
            return self._call(node, guess=True), False
        return "", False

    def bind(self, target: ast.expr, kind: str, exact: str = "") -> None:
        """Record the type of a name or of an attribute of `self`. The type is certain if `exact` agrees."""
        if isinstance(target, ast.Name):
            self.program.note(self.places[0], target.id, exact)
            if kind or self.variables.get(target.id) not in known.classes():
                self.variables[target.id] = kind
        elif isinstance(target, ast.Attribute):
            self.program.note(".", target.attr, exact)
            if not isinstance(target.value, ast.Name):
                return
            self.program.own_names.update({target.attr} if target.value.id in ("self", "cls") else ())
            holder = self.type_of(target.value)
            if holder.startswith("user:") and (kind or not self.program.attributes.get((holder[5:], target.attr))):
                self._bind_attribute(holder[5:], target.attr, kind)
        elif isinstance(target, ast.Tuple | ast.List):
            for element in target.elts:
                self.bind(element, self._element(kind))
        elif isinstance(target, ast.Starred):
            self.bind(target.value, kind)

    def _bind_attribute(self, owner: str, name: str, kind: str) -> None:
        before = self.program.attributes.get((owner, name))
        if before in known.classes() and kind not in known.classes():
            return  # `self.engine = []` somewhere does not make another place's engine a list
        self.program.attributes[owner, name] = kind

    def iterated(self, kind: str) -> str:
        """The type of the elements in a loop over an object."""
        return "str" if kind == "ICudaEngine" else self._element(kind)

    def _element(self, kind: str) -> str:
        if kind.startswith("list:"):
            return kind[5:]
        if kind in known.classes():
            return known.result_of(f"{kind}.__getitem__")
        return OTHER if kind in (OTHER, "str") else ""

    def _name(self, name: str) -> str:
        if name in self.variables:
            return self.variables[name]
        if name in self.program.returns:
            return f"function:{name}"
        if name in _TORCH_TENSORRT:
            return "torch_tensorrt"  # a fragment of a program, without its imports
        return "trt" if naming.guess(name) == "trt" or name in _TENSORRT else ""

    def _attribute(self, holder: str, name: str) -> str:
        if holder == "trt":
            if name == "tensorrt":
                return "trt"
            if name in SUBMODULES:
                return OTHER
            if name in known.GONE_MODULES:
                return f"gone:{name}"
            if name in known.classes():
                return f"class:{name}"
            if value := known.value_of(name):
                return value.partition(".")[0]  # trt.float16 is a DataType
            return f"function:trt.{name}" if known.result_of(name) else OTHER if name.startswith("__") else ""
        if holder.startswith("class:"):
            if name.startswith("__"):
                return "container"  # __members__
            inner = f"{holder[6:]}.{name}"
            return f"class:{inner}" if inner in known.classes() else holder[6:] if holder[6:] in known.enums() else ""
        if holder.startswith("torch_tensorrt"):
            return f"{holder}.{name}"
        if holder.startswith("gone:"):
            return f"{holder}.{name}"
        if holder.startswith("user:"):
            owner = holder[5:]
            if (owner, name) in self.program.attributes:
                return self.program.attributes[owner, name]
            if f"{owner}.{name}" in self.program.returns:
                return f"function:{owner}.{name}"
            return next((found for base in self.program.bases.get(owner, ()) if (found := self._attribute(base, name))), "")
        if holder in known.classes():
            is_method = any(table.signature(f"{holder}.{name}") for table in known.all_tables())
            return f"function:trt.{holder}.{name}" if is_method else known.result_of(f"{holder}.{name}")
        return OTHER if holder in (OTHER, "str") else ""

    def _call(self, node: ast.Call, *, guess: bool = False) -> str:
        function = self.type_of(node.func)
        if guess and not function and isinstance(node.func, ast.Attribute):
            function = self._attribute(self.guessed(node.func.value)[0], node.func.attr)
        if function.startswith("class:"):
            return function[6:]
        if function.startswith("userclass:"):
            return f"user:{function[10:]}"
        if function.startswith("function:trt."):
            return known.result_of(function[13:])
        if function.startswith("gone:"):
            return known.result_of_gone(function[5:])
        if function.startswith("function:"):
            return self.program.returns.get(function[9:], "")
        if function in ("torch_tensorrt.compile", "torch_tensorrt.load", "torch_tensorrt.dynamo.compile"):
            return "compiled"
        called = (
            node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""
        )
        if called in (_BUILT_IN if isinstance(node.func, ast.Name) else _BYTES):
            return "str" if called in ("str", "repr", "input") else OTHER
        if called in _IMPORTERS and node.args:
            named = node.args[0]
            text = named.value if isinstance(named, ast.Constant) and isinstance(named.value, str) else ""
            return module_type(text.partition(">")[0].partition("=")[0]) if text else ""
        if called == "enter_context" and node.args:
            return self.type_of(node.args[0])
        if called == "getattr" and len(node.args) == 2 and isinstance(node.args[1], ast.Constant):
            return self._attribute(self.type_of(node.args[0]), str(node.args[1].value))
        return OTHER if function == OTHER else ""


def module_type(name: str) -> str:
    """The type of a module by its full name; empty for one that may be the program's own."""
    top, _, rest = name.partition(".")
    if top in _TENSORRT:
        if rest.startswith(known.GONE_MODULES):
            return f"gone:{rest}"
        return "trt" if not rest or rest == "tensorrt" else OTHER if rest.startswith(SUBMODULES) else f"class:{rest}"
    if top in _TORCH_TENSORRT:
        return ".".join(("torch_tensorrt", *rest.split("."))) if rest else "torch_tensorrt"
    return OTHER if naming.is_other_library(top) else ""
