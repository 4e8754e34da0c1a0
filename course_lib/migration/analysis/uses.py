"""Every place in a program that uses a TensorRT name, with what is known about the version at that place."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from course_lib.migration.analysis import naming
from course_lib.migration.analysis.conditions import speaks_of_versions
from course_lib.migration.analysis.guards import Condition
from course_lib.migration.analysis.inference import SUBMODULES, Program
from course_lib.migration.analysis.walk import Walk
from course_lib.migration.tables import known

_MOST_PASSES = 4  # a function used before its definition, a class used before its attributes are known


_PACKAGES = ("tensorrt_bindings", "tensorrt_lean", "tensorrt_dispatch")
# Polygraphy's calls with keywords that became TensorRT flags, as classes and as functions.
POLYGRAPHY = {
    "CreateConfig": "CreateConfig",
    "create_config": "CreateConfig",
    "CreateNetwork": "CreateNetwork",
    "create_network": "CreateNetwork",
    "NetworkFromOnnxBytes": "NetworkFromOnnxBytes",
    "network_from_onnx_bytes": "NetworkFromOnnxBytes",
    "NetworkFromOnnxPath": "NetworkFromOnnxPath",
    "network_from_onnx_path": "NetworkFromOnnxPath",
}
_SPECIAL = ("len", "getattr", "setattr", "save", "compile", "deserialize_cuda_engine", *POLYGRAPHY)
_OF_ANY_OBJECT = ("name", "value", "mro")  # of enum members, and of classes


@dataclass(frozen=True)
class Use:
    """One use of a TensorRT or Torch-TensorRT name in a program.

    Attributes:
        name: the name after ``trt.``, such as ``"ICudaEngine.num_bindings"``; ``"torch_tensorrt.compile"``; ``"import:uff"`` for a module.
        how: ``"read"``, ``"write"``, ``"call"``, ``"base"``, ``"import"``, ``"with"``, ``"len"``, ``"index"`` or ``"compare"``.
        derived_from: TensorRT's base classes of the enclosing class. Without them its methods are not reached.
        exact: nothing in the program contradicts the receiver's type (`Scope.exact`).
        condition: what must be true of the version for this place to be reached; None if there is no condition.
        node: the expression.
        names: variables and functions that depend on the version, in the form that `evaluate.outcomes` takes.
        settings: literal dictionaries of the program, by the variable's name.
    """

    name: str
    line: int
    how: str
    condition: Condition | None
    node: ast.AST
    names: Mapping[str, ast.expr] = field(default_factory=dict)
    settings: Mapping[str, ast.Dict] = field(default_factory=dict)
    exact: bool = False
    derived_from: tuple[str, ...] = ()


def collect(tree: ast.Module, *, evidence: bool = True) -> list[Use]:
    """The uses in a program, in the order of the lines.

    Args:
        evidence: whether the text mentions TensorRT. Without it, names alone do not count.
    """
    program = Program(speaks_of_versions=speaks_of_versions(tree))
    before: object = None
    for _ in range(_MOST_PASSES):
        collector = _Collector(program, evidence=evidence)
        collector.visit(tree)
        if not collector.uses:
            break  # nothing of TensorRT's to follow
        now = collector.state()
        if now == before:
            break
        before = now
    else:  # not at rest: what looked certain may not be
        return sorted((replace(use, exact=False) for use in collector.uses), key=lambda use: use.line)
    return sorted(collector.uses, key=lambda use: use.line)


class _Collector(Walk):
    def __init__(self, program: Program, *, evidence: bool) -> None:
        super().__init__(program, evidence=evidence)
        self.uses: list[Use] = []
        self._assigned = ""  # the type of the value of the assignment around

    def visit_Assign(self, node: ast.Assign) -> None:
        self._assigned = self.scope.type_of(node.value)
        super().visit_Assign(node)
        self._assigned = ""

    def state(self) -> object:
        """The results of this walk. If they stay the same, a further walk is not needed."""
        program = self.program
        sites = {name: [site is not None for site in found] for name, found in program.call_sites.items()}
        learned = (program.variables, program.attributes, program.returns, program.bases)
        return (
            sites,
            [dict(one) for one in learned],
            len(self.uses),
            set(program.probes),
            set(program.serialized),
            program.bound,
        )

    def found(self, name: str, node: ast.AST, how: str, *, exact: bool = False) -> None:
        super().found(name, node, how)
        values = (self.program.version_values, self.program.settings)
        self.uses.append(Use(name, getattr(node, "lineno", 0), how, self.condition, node, *values, exact, self._derived_from))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        names = self._named(node)
        how = "write" if isinstance(node.ctx, ast.Store) else "read"
        for name in names:
            self.found(name, node, how, exact=self._is_exact(node))
        if how == "write" and not names:
            names = self._by_what_it_is_assigned(node)
        if not names or not self._is_one_name(node.value):
            self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        kind = self.scope.type_of(node)
        if isinstance(node.ctx, ast.Load) and kind.startswith("class:"):
            self.found(kind[6:], node, "read")

    def visit_Call(self, node: ast.Call) -> None:
        names = self._named(node.func) if isinstance(node.func, ast.Attribute | ast.Name) else []
        for name in names:
            self.found(name, node, "call", exact=self._is_exact(node.func))
        inner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        if not isinstance(node.func, ast.Name) and not self._is_one_name(inner):
            self.visit(inner)
        self._special_call(node)
        for part in (*node.args, *(keyword.value for keyword in node.keywords)):
            self.visit(part)
        self._note_site(node.func)

    def _is_one_name(self, node: ast.expr) -> bool:
        """Whether an expression and the attribute after it are one use, as ``trt.Enum`` and ``MEMBER`` are."""
        return self.scope.type_of(node).startswith(("class:", "torch_tensorrt.", "gone:"))

    def _special_call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called not in _SPECIAL:
            return
        text = ast.unparse(node.func)
        kind, certain = self.scope.guessed(node.args[0]) if node.args else ("", True)
        owner = kind.removeprefix("class:")
        named = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else ""
        if text == "len" and kind in known.classes() and (certain or self.evidence):
            self.found(f"{kind}.__len__", node, "len")
        by_name = (text, len(node.args)) in (("getattr", 2), ("setattr", 3)) and isinstance(named, str) and named
        if by_name and (owner == "trt" or owner in known.classes()):
            full = f"{named!s}" if owner == "trt" else f"{owner}.{named!s}"
            self.found(full, node, "read" if text == "getattr" else "write")
        if text.endswith("deserialize_cuda_engine") and node.args and isinstance(node.args[0], ast.Name):
            self.program.serialized.add((self.scope.places[0], node.args[0].id))
        if text in ("torch.jit.save", "torch.compile"):
            self.found(text, node, "call")
        if (loader := POLYGRAPHY.get(text.rpartition(".")[2])) and node.keywords:
            self.found(f"polygraphy.{loader}", node, "call")

    def _note_site(self, function: ast.expr) -> None:
        kind = self.scope.type_of(function)
        if kind.startswith("function:") and not kind.startswith("function:trt."):
            self.program.call_sites.setdefault(kind[9:], []).append(self.condition)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        kind, certain = self.scope.guessed(node.value)
        if kind == "ICudaEngine" and self._is_name(node.slice, guess=certain or self._is_one_engine(node.value)):
            self.found("ICudaEngine.__getitem__(str)", node, "index")
        self.generic_visit(node)

    def _is_name(self, node: ast.expr, *, guess: bool) -> bool:
        """Whether an engine is indexed with a tensor's name, rather than with its number, which still works.

        Args:
            guess: a variable that is called like a name counts; not for `self.engine`, which may hold several engines by name.
        """
        kind = self.scope.type_of(node)
        called = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        return kind == "str" or (guess and kind == "key") or (guess and not kind and naming.names_a_tensor(called))

    def _is_one_engine(self, node: ast.expr) -> bool:
        """Whether an expression named like an engine can be one by its form: a variable, or the engine of a context."""
        of_context = isinstance(node, ast.Attribute) and self.scope.guessed(node.value)[0] == "IExecutionContext"
        return isinstance(node, ast.Name) or of_context

    def _is_exact(self, node: ast.expr) -> bool:
        """Whether the tables contain every name that may follow the dot, according to this program."""
        if not isinstance(node, ast.Attribute) or (isinstance(node.ctx, ast.Store) and self.scope.exact(node.value) == "trt"):
            return False
        if (".", node.attr) in self.program.bindings and self.scope.exact(node.value).startswith(("trt", "class:")):
            return False  # the program adds such an attribute to something
        holder = self.scope.exact(node.value)
        if holder == "trt":
            accident = naming.is_other_library(node.attr)  # `trt.os`
            return not accident and not node.attr.startswith("_")
        return known.knows_all_members(holder.removeprefix("class:")) and not (
            node.attr in _OF_ANY_OBJECT or node.attr.startswith("_")
        )

    def _named(self, node: ast.Attribute | ast.Name) -> list[str]:
        """The possible meanings of an attribute or a name in TensorRT, usually one."""
        if isinstance(node, ast.Name):
            kind = self.scope.type_of(node)
            known_start = next((start for start in ("class:", "function:trt.") if kind.startswith(start)), "")
            return [kind.removeprefix(known_start)] if known_start or kind.startswith("torch_tensorrt.") else []
        holder, certain = self.scope.guessed(node.value)
        if holder == "trt":
            return [] if node.attr.startswith("__") or node.attr in ("tensorrt", *SUBMODULES, *_PACKAGES) else [node.attr]
        if holder.startswith("gone:"):
            return [f"{holder[5:]}.{node.attr}"] if isinstance(node.value, ast.Attribute) else []
        if holder.startswith("class:"):
            return [f"{holder[6:]}.{node.attr}"] if not node.attr.startswith("__") else [holder[6:]]
        if holder.startswith("torch_tensorrt"):
            return [f"{holder}.{node.attr}"]
        if holder in known.classes():
            if node.attr.startswith("__") or (holder in known.enums() and node.attr in ("name", "value")):
                return []
            if certain or (self.evidence and known.exists_anywhere(f"{holder}.{node.attr}")):
                return [f"{holder}.{node.attr}"]
        if holder.startswith("user:"):
            owner = holder[5:]
            own = (owner, node.attr) in self.program.attributes or f"{owner}.{node.attr}" in self.program.returns
            bases = self.program.bases.get(owner, ())
            return [] if own else [f"{b}.{node.attr}" for b in bases if known.exists_anywhere(f"{b}.{node.attr}")][:1]
        return self._by_name_alone(node, holder, certain)

    def _by_name_alone(self, node: ast.Attribute, holder: str, certain: bool) -> list[str]:
        """A member that only TensorRT has, on an object that may be TensorRT's."""
        distinctive = node.attr in naming.DISTINCTIVE and node.attr not in self.program.own_names
        if not self.evidence or not distinctive or (holder and certain):
            return []
        receiver = getattr(node.value, "id", getattr(node.value, "attr", ""))
        return [] if naming.is_own_object(receiver) else [f"{owner}.{node.attr}" for owner in known.owners_of(node.attr)[:1]]

    def _by_what_it_is_assigned(self, node: ast.Attribute) -> list[str]:
        """``anything.precision = trt.float16``: only a layer has a precision that is one of TensorRT's types."""
        receiver = getattr(node.value, "id", getattr(node.value, "attr", ""))
        typed = self._assigned == "DataType" and not self.scope.type_of(node.value)
        if not self.evidence or node.attr != "precision" or not typed or naming.is_own_object(receiver):
            return []
        self.found("ILayer.precision", node, "write")
        return ["ILayer.precision"]
