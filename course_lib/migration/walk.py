"""A walk over a program that knows at each place which variables hold what, and what was asked about the version to get there."""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Iterator, Sequence

from course_lib.migration import known, naming
from course_lib.migration.conditions import condition_of, holds_version, members_of
from course_lib.migration.guards import All, AnyOf, Condition, Not, Presumed, Unclear
from course_lib.migration.inference import OTHER, Program, Scope, module_type

_EXITS = (ast.Return, ast.Continue, ast.Break, ast.Raise)
_PLAIN_TYPES = ("str", "int", "float", "bool", "bytes", "dict", "list")


class Walk(ast.NodeVisitor):
    """Visits a tree in the order of execution as far as that is the order of the text.

    Args:
        program: what earlier walks over the same tree have found; this one adds to it.
        evidence: the text speaks of TensorRT at all; without it, names alone count for nothing.
    """

    def __init__(self, program: Program, *, evidence: bool) -> None:
        self.program, self.evidence = program, evidence
        self.scope = Scope(program, ChainMap(program.variables))
        self._sites_before, program.call_sites = program.call_sites, {}
        self._conditions: list[Condition] = []
        self._functions: list[str] = []
        self._seen: list[int] = []  # lines of uses, in the order they were met

    @property
    def condition(self) -> Condition | None:
        """What must be true of the version for this place to be reached."""
        return All(tuple(self._conditions)) if self._conditions else None

    def found(self, name: str, node: ast.AST, how: str, *, certain: bool = True) -> None:
        """A name of TensorRT's is met; `uses.collect` keeps it."""
        self._seen.append(getattr(node, "lineno", 0))

    # ---- statements that bind names

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            kind = module_type(alias.name if alias.asname else alias.name.partition(".")[0])
            self.scope.variables[alias.asname or alias.name.partition(".")[0]] = kind
            self.found(f"import:{alias.name}", node, "import")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        holder = "" if node.level else module_type(node.module or "")
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            if holder == "trt":
                self.scope.variables[alias.asname or alias.name] = self.scope._attribute("trt", alias.name)
                if alias.name != "*":
                    self.found(alias.name, node, "import")
                else:
                    self.scope.variables.update({name: f"class:{name}" for name in known.classes() if "." not in name})
                continue
            kind = f"{holder}.{alias.name}" if holder.startswith("torch_tensorrt") else holder
            self.scope.variables[alias.asname or alias.name] = kind
            self.found(f"import:{full}", node, "import")

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._assign(target, node.value)
            self.visit(target)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.annotation)
        if node.value is not None:
            self.visit(node.value)
            self._assign(node.target, node.value)
        if annotated := self._annotated(node.annotation):
            self.scope.bind(node.target, annotated)
        self.visit(node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._assign(node.target, node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, other in zip(target.elts, value.elts, strict=True):
                self._assign(one, other)
            return
        kind = self.scope.type_of(value)
        if not kind and self.evidence and isinstance(value, ast.Call):
            # a method that TensorRT has, of what is called as if it were TensorRT's
            kind = "trt" if _imports_trt(value, target) else self.scope.guessed(value)[0]
        self.scope.bind(target, kind)
        if isinstance(target, ast.Name | ast.Attribute):
            text = ast.unparse(target)
            if holds_version(value, self.scope) and self.scope.type_of(value) not in known.classes():
                self.program.version_values[text] = value
            elif found := condition_of(value, self.scope):
                self.program.conditions[text] = found
            if owner := members_of(value, self.scope):
                self.program.member_lists[text] = owner
            if isinstance(value, ast.Dict):
                self.program.settings[text] = value

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            kind = self.scope.type_of(item.context_expr)
            if item.optional_vars is not None:
                self.scope.bind(item.optional_vars, kind)
            if kind in known.classes():
                self.found(f"{kind}.__enter__", item.context_expr, "with")
        self._block(node.body)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.scope.bind(node.target, self._iterated(node.iter))
        self._block(node.body)
        self._block(node.orelse)

    visit_AsyncWith = visit_With  # type: ignore[assignment]
    visit_AsyncFor = visit_For  # type: ignore[assignment]

    def _iterated(self, node: ast.expr) -> str:
        """What a loop over an expression yields; an engine, even one only called so, yields names."""
        kind = self.scope.type_of(node) or ("ICudaEngine" if self.scope.guessed(node)[0] == "ICudaEngine" else "")
        return self.scope.iterated(kind)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        outer, self.scope = self.scope, self.scope.inner()
        for generator in node.generators:
            self.visit(generator.iter)
            self.scope.bind(generator.target, self._iterated(generator.iter))
            for test in generator.ifs:
                self.visit(test)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(part)
        self.scope = outer

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension

    # ---- functions and classes

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for part in (*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            self.visit(part)
        full = f"{self.scope.owner}.{node.name}" if self.scope.owner else node.name
        self.program.own_names.add(node.name)
        self.program.returns.setdefault(full, "")
        body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
        if not self.scope.owner and len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
            self.program.results[node.name] = body[0].value
            if holds_version(body[0].value, self.scope):
                self.program.version_values[f"{node.name}()"] = body[0].value
        outer, conditions = self.scope, self._conditions
        self._conditions = [*conditions, *self._asked_of(full, node.decorator_list)]
        self.scope = outer.inner()
        self._parameters(node.args)
        self._functions.append(full)
        self._block(node.body)
        self._functions.pop()
        self.scope, self._conditions = outer, conditions

    visit_AsyncFunctionDef = visit_FunctionDef

    def _asked_of(self, function: str, decorators: Sequence[ast.expr]) -> Iterator[Condition]:
        """What must be true before a function runs: no test decorator skips it, and one of its callers in the program is reached."""
        for decorator in decorators:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("skipif") and decorator.args:
                skipped = condition_of(decorator.args[0], self.scope)
                yield from [Not(skipped)] if skipped else []
        sites = self._sites_before.get(function, [])
        asked = tuple(site for site in sites if site is not None)
        if sites and len(asked) == len(sites):
            yield AnyOf(asked)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        outer, self.scope = self.scope, self.scope.inner()
        self._parameters(node.args)
        self.visit(node.body)
        self.scope = outer

    def _parameters(self, arguments: ast.arguments) -> None:
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        for index, one in enumerate(argument for argument in every if argument is not None):
            if one.annotation is not None:
                self.visit(one.annotation)
            kind = self._annotated(one.annotation)
            if index == 0 and one.arg in ("self", "cls") and self.scope.owner:
                kind = f"user:{self.scope.owner}"
            if not kind and naming.guess(one.arg) == "trt":
                kind = "trt"
            self.scope.variables[one.arg] = kind

    def _annotated(self, annotation: ast.expr | None) -> str:
        """The class an annotation names, also within ``Optional[...]``, ``X | None`` or quotes; "other" for a plain type."""
        if annotation is None:
            return ""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                return self._annotated(ast.parse(annotation.value, mode="eval").body)
            except SyntaxError:
                return ""
        found = [self.scope.type_of(part) for part in ast.walk(annotation) if isinstance(part, ast.Name | ast.Attribute)]
        named = next((kind for kind in found if kind.startswith(("class:", "userclass:"))), "")
        if isinstance(annotation, ast.Name) and annotation.id in _PLAIN_TYPES:
            return OTHER
        return named.replace("userclass:", "user:").removeprefix("class:")

    def visit_Return(self, node: ast.Return) -> None:
        self.generic_visit(node)
        if self._functions and node.value is not None and (kind := self.scope.type_of(node.value)):
            self.program.returns[self._functions[-1]] = kind

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *(keyword.value for keyword in node.keywords)):
            self.visit(part)
        bases: list[str] = []
        for base in node.bases:
            self.visit(base)
            kind = self.scope.type_of(base)
            bases += [kind[6:]] if kind.startswith("class:") else self.program.bases.get(kind.removeprefix("userclass:"), ())
        self.program.bases[node.name] = tuple(bases)
        self.scope.variables[node.name] = f"userclass:{node.name}"
        outer, self.scope = self.scope, Scope(self.program, self.scope.variables.new_child(), node.name)
        self._block(node.body)
        for name, kind in self.scope.variables.maps[0].items():
            self.program.own_names.add(name)
            self.program.attributes.setdefault((node.name, name), kind)
        self.scope = outer

    # ---- what depends on the version

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        """A list of statements; what stands behind ``if new: return ...`` runs on other versions only."""
        depth = len(self._conditions)
        for statement in statements:
            before = len(self._seen)
            self.visit(statement)
            if isinstance(statement, ast.If) and not statement.orelse and isinstance(statement.body[-1], _EXITS):
                condition = condition_of(statement.test, self.scope)
                lines = range(statement.body[0].lineno, (statement.end_lineno or statement.lineno) + 1)
                if condition:
                    another_way = any(line in lines for line in self._seen[before:])
                    passed = Not(condition) if another_way else Presumed(Not(condition))
                    self._conditions = [*self._conditions, passed]
        self._conditions = self._conditions[:depth]

    def _under(self, condition: Condition | None, statements: Sequence[ast.stmt] | ast.expr) -> None:
        outer = self._conditions
        self._conditions = outer if condition is None else [*outer, condition]
        if isinstance(statements, ast.expr):
            self.visit(statements)
        else:
            self._block(statements)
        self._conditions = outer

    def visit_Module(self, node: ast.Module) -> None:
        self._block(node.body)

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        self.visit(node.test)
        condition = condition_of(node.test, self.scope)
        self._under(condition, node.body)
        self._under(None if condition is None else Not(condition), node.orelse)

    visit_IfExp = visit_If

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        self._block(node.body)
        self._block(node.orelse)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        outer = self._conditions
        for value in node.values:
            self.visit(value)
            condition = condition_of(value, self.scope)
            if condition:
                self._conditions = [*self._conditions, condition if isinstance(node.op, ast.And) else Not(condition)]
        self._conditions = outer

    def visit_Try(self, node: ast.Try) -> None:
        caught = [ast.unparse(handler.type) for handler in node.handlers if handler.type is not None]
        probing = any("AttributeError" in text for text in caught)
        self._under(Unclear() if probing else None, node.body)
        for handler in node.handlers:
            self._under(Unclear() if probing else None, handler.body)
        self._block(node.orelse)
        self._block(node.finalbody)

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        if holds_version(node, self.scope):
            self.found("__version__", node, "compare")


def _imports_trt(call: ast.Call, target: ast.expr) -> bool:
    """``gpu_trt = importlib.import_module(name)``"""
    name = target.id if isinstance(target, ast.Name) else ""
    return name.endswith("trt") and ast.unparse(call.func).endswith("import_module")
