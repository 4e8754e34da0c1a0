"""Every place in a program that names something of TensorRT's, with what is known about the version it runs on there."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from course_lib.migration import known, naming
from course_lib.migration.guards import Condition
from course_lib.migration.inference import SUBMODULES, Program
from course_lib.migration.walk import Walk

_PASSES = 3  # a function used before its definition, a class used before its attributes are known


@dataclass(frozen=True)
class Use:
    """One name of TensorRT's or Torch-TensorRT's in a program.

    Attributes:
        name: as behind ``trt.``, such as ``"ICudaEngine.num_bindings"``; ``"torch_tensorrt.compile"``; ``"import:uff"`` for a module.
        how: ``"read"``, ``"write"``, ``"call"``, ``"base"``, ``"import"``, ``"with"``, ``"len"``, ``"index"`` or ``"compare"``.
        certain: the receiver's type is known, rather than told by a conventional name.
        condition: what must be true of the version for this place to be reached; None where nothing is asked.
        node: the expression.
        names: what variables and functions hold that come from the version, as `evaluate.outcomes` takes them.
        settings: dictionaries that are written out in the program, by the variable's name.
    """

    name: str
    line: int
    how: str
    certain: bool
    condition: Condition | None
    node: ast.AST
    names: Mapping[str, ast.expr] = field(default_factory=dict)
    settings: Mapping[str, ast.Dict] = field(default_factory=dict)


def collect(tree: ast.Module, *, evidence: bool = True) -> list[Use]:
    """The uses in a program, in the order of the lines.

    Args:
        evidence: the text speaks of TensorRT at all; without it, names alone count for nothing.
    """
    program = Program()
    for _ in range(_PASSES):
        collector = _Collector(program, evidence=evidence)
        collector.visit(tree)
    return sorted(collector.uses, key=lambda use: use.line)


class _Collector(Walk):
    def __init__(self, program: Program, *, evidence: bool) -> None:
        super().__init__(program, evidence=evidence)
        self.uses: list[Use] = []

    def found(self, name: str, node: ast.AST, how: str, *, certain: bool = True) -> None:
        super().found(name, node, how, certain=certain)
        values = (self.program.version_values, self.program.settings)
        self.uses.append(Use(name, getattr(node, "lineno", 0), how, certain, self.condition, node, *values))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        names, certain = self._named(node)
        how = "write" if isinstance(node.ctx, ast.Store) else "read"
        for name in names:
            self.found(name, node, how, certain=certain)
        if not names or not self._is_one_name(node.value):
            self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        kind = self.scope.type_of(node)
        if isinstance(node.ctx, ast.Load) and kind.startswith("class:"):
            self.found(kind[6:], node, "read")

    def visit_Call(self, node: ast.Call) -> None:
        names, certain = self._named(node.func) if isinstance(node.func, ast.Attribute | ast.Name) else ([], True)
        for name in names:
            self.found(name, node, "call", certain=certain)
        inner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        if not isinstance(node.func, ast.Name) and not self._is_one_name(inner):
            self.visit(inner)
        self._special_call(node)
        for part in (*node.args, *(keyword.value for keyword in node.keywords)):
            self.visit(part)
        self._note_site(node.func)

    def _is_one_name(self, node: ast.expr) -> bool:
        """Whether an expression and the attribute behind it are one use, as ``trt.Enum`` and ``MEMBER`` are."""
        return self.scope.type_of(node).startswith(("class:", "torch_tensorrt."))

    def _special_call(self, node: ast.Call) -> None:
        text = ast.unparse(node.func) if isinstance(node.func, ast.Attribute | ast.Name) else ""
        kind, certain = self.scope.guessed(node.args[0]) if node.args else ("", True)
        owner = kind.removeprefix("class:")
        named = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else ""
        if text == "len" and kind in known.classes():
            self.found(f"{kind}.__len__", node, "len", certain=certain)
        by_name = (text, len(node.args)) in (("getattr", 2), ("setattr", 3)) and isinstance(named, str) and named
        if by_name and (owner == "trt" or owner in known.classes()):
            full = f"{named!s}" if owner == "trt" else f"{owner}.{named!s}"
            self.found(full, node, "read" if text == "getattr" else "write", certain=certain)
        if text in ("torch.jit.save", "torch.compile"):
            self.found(text, node, "call")
        if text.rpartition(".")[2] in ("CreateConfig", "create_config"):
            self.found("polygraphy.CreateConfig", node, "call")

    def _note_site(self, function: ast.expr) -> None:
        kind = self.scope.type_of(function)
        if kind.startswith("function:") and not kind.startswith("function:trt."):
            self.program.call_sites.setdefault(kind[9:], []).append(self.condition)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        kind, certain = self.scope.guessed(node.value)
        if kind == "ICudaEngine" and self.scope.type_of(node.slice) == "str":
            self.found("ICudaEngine.__getitem__(str)", node, "index", certain=certain)
        self.generic_visit(node)

    def _named(self, node: ast.Attribute | ast.Name) -> tuple[list[str], bool]:
        """What an attribute or a name means in TensorRT, most likely one thing, and whether that is certain."""
        if isinstance(node, ast.Name):
            kind = self.scope.type_of(node)
            known_start = next((start for start in ("class:", "function:trt.") if kind.startswith(start)), "")
            return ([kind.removeprefix(known_start)] if known_start or kind.startswith("torch_tensorrt.") else []), True
        holder, certain = self.scope.guessed(node.value)
        if holder == "trt":
            return ([] if node.attr.startswith("__") or node.attr in ("tensorrt", *SUBMODULES) else [node.attr]), True
        if holder.startswith("class:"):
            return ([f"{holder[6:]}.{node.attr}"] if not node.attr.startswith("__") else [holder[6:]]), True
        if holder.startswith("torch_tensorrt"):
            return [f"{holder}.{node.attr}"], True
        if holder in known.classes():
            if node.attr.startswith("__") or (holder in known.enums() and node.attr in ("name", "value")):
                return [], certain
            if certain or (self.evidence and known.exists_anywhere(f"{holder}.{node.attr}")):
                return [f"{holder}.{node.attr}"], certain
        if holder.startswith("user:"):
            owner = holder[5:]
            own = (owner, node.attr) in self.program.attributes or f"{owner}.{node.attr}" in self.program.returns
            bases = self.program.bases.get(owner, ())
            return ([] if own else [f"{b}.{node.attr}" for b in bases if known.exists_anywhere(f"{b}.{node.attr}")][:1]), True
        return self._by_name_alone(node, holder, certain), False

    def _by_name_alone(self, node: ast.Attribute, holder: str, certain: bool) -> list[str]:
        """A member that only TensorRT has, of something that may be TensorRT's."""
        distinctive = node.attr in naming.DISTINCTIVE and node.attr not in self.program.own_names
        if not self.evidence or not distinctive or (holder and certain):
            return []
        receiver = getattr(node.value, "id", getattr(node.value, "attr", ""))
        return [] if naming.is_own_object(receiver) else [f"{owner}.{node.attr}" for owner in known.owners_of(node.attr)[:1]]
