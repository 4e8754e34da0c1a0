"""A walk over a program. At each place it knows the types of the variables and the version conditions that lead there."""

from __future__ import annotations

import ast
from collections import ChainMap
from collections.abc import Iterator, Sequence

from course_lib.migration.analysis import naming
from course_lib.migration.analysis.conditions import condition_of, holds_version, members_of
from course_lib.migration.analysis.guards import UNCLEAR, Condition, all_of, any_of, opposite, presumed
from course_lib.migration.analysis.inference import OTHER, Program, Scope, module_type
from course_lib.migration.tables import known

_EXITS = (ast.Return, ast.Continue, ast.Break, ast.Raise)
_PLAIN_TYPES = ("str", "int", "float", "bool", "bytes", "dict", "list")


class Walk(ast.NodeVisitor):
    """Visits a tree in the order of the text, which is mostly the order of execution.

    Args:
        program: results of earlier walks over the same tree; this walk adds to them.
        evidence: whether the text mentions TensorRT. Without it, names alone do not count.
    """

    def __init__(self, program: Program, *, evidence: bool) -> None:
        self.program, self.evidence = program, evidence
        self.scope = Scope(program, ChainMap(program.variables))
        self._sites_before, program.call_sites = program.call_sites, {}
        program.bound_before, program.bound = program.bound, {}
        self._conditions: list[Condition] = []
        self._functions: list[str] = []
        self._derived_from: tuple[str, ...] = ()  # the classes of TensorRT's that the class around is derived from
        self._seen: list[int] = []  # lines of uses, in the order they were met

    @property
    def condition(self) -> Condition | None:
        """What must be true of the version for this place to be reached."""
        return all_of(self._conditions) if self._conditions else None

    def found(self, name: str, node: ast.AST, how: str) -> None:
        """Called for each TensorRT name; `uses.collect` keeps it."""
        self._seen.append(getattr(node, "lineno", 0))

    # ---- statements that bind names

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            kind = module_type(alias.name if alias.asname else alias.name.partition(".")[0])
            self._declare(alias.asname or alias.name.partition(".")[0], kind)
            self.found(f"import:{alias.name}", node, "import")

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        holder = "" if node.level else module_type(node.module or "")
        if holder not in ("trt", OTHER) and any(alias.name == "*" for alias in node.names):
            self.program.shared.add("*")
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            if holder == "trt":
                self._declare(alias.asname or alias.name, self.scope._attribute("trt", alias.name))
                if alias.name != "*":
                    self.found(alias.name, node, "import")
                else:
                    self.scope.variables.update({name: f"class:{name}" for name in known.classes() if "." not in name})
                continue
            kind = f"{holder}.{alias.name}" if holder.startswith(("torch_tensorrt", "gone:")) else holder
            self._declare(alias.asname or alias.name, kind)
            self.found(f"import:{full}", node, "import")

    def _declare(self, name: str, kind: str) -> None:
        """Bind a name other than by an assignment. Its type is certain if it is known."""
        self.scope.variables[name] = kind
        self.program.note(self.scope.places[0], name, kind)

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.program.shared.update(node.names)

    visit_Nonlocal = visit_Global

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name):
            self.program.note(self.scope.places[0], node.target.id, "")

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
            self.scope.bind(node.target, annotated, self._certain(node.annotation, annotated))
        self.visit(node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._assign(node.target, node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, other in zip(target.elts, value.elts, strict=True):
                self._assign(one, other)
            return
        if isinstance(target, ast.Tuple) and holds_version(value, self.scope):
            self._unpack_version(target, value)
        kind = self.scope.type_of(value)
        if not kind and self.evidence and isinstance(value, ast.Call):
            # a method that TensorRT has, of what is called as if it were TensorRT's
            kind = "trt" if _imports_trt(value, target) else self.scope.guessed(value)[0]
        if isinstance(value, ast.Constant) and value.value is None and isinstance(target, ast.Name):
            self.scope.variables.setdefault(target.id, "")  # `engine = None` says nothing of what it will be
        else:
            self.scope.bind(target, kind, self.scope.exact(value))
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

    def _unpack_version(self, target: ast.Tuple, value: ast.expr) -> None:
        """``major, minor, *rest = trt.__version__.split(".")``: each name holds an element."""
        behind_star = False
        for index, one in enumerate(target.elts):
            behind_star = behind_star or isinstance(one, ast.Starred)
            if isinstance(one, ast.Name):
                place = index - len(target.elts) if behind_star else index
                self.program.version_values[one.id] = ast.Subscript(value, ast.Constant(place), ast.Load())

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            kind = self.scope.type_of(item.context_expr)
            if item.optional_vars is not None:
                exact = self.scope.exact(item.context_expr)
                self.scope.bind(item.optional_vars, kind, exact if exact in known.classes() else "")
            if kind in known.classes():
                self.found(f"{kind}.__enter__", item.context_expr, "with")
        suppressed = [_suppressed(item.context_expr) for item in node.items]
        probing = "AttributeError" in suppressed or ("Exception" in suppressed and _is_optional(node.body))
        self._under(UNCLEAR if probing else None, node.body)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self._bind_loop(node.target, node.iter)
        self._block(node.body)
        self._block(node.orelse)

    visit_AsyncWith = visit_With  # type: ignore[assignment]
    visit_AsyncFor = visit_For  # type: ignore[assignment]

    def _bind_loop(self, target: ast.expr, iterable: ast.expr) -> None:
        """The variables of a loop, also of one over ``enumerate(engine)`` or ``zip(names, engine)``."""
        called = iterable.func.id if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) else ""
        if isinstance(iterable, ast.Call) and isinstance(target, ast.Tuple):
            if called == "enumerate" and len(target.elts) == 2 and iterable.args:
                self.scope.bind(target.elts[0], OTHER)
                return self._bind_loop(target.elts[1], iterable.args[0])
            if _is_items(iterable) and isinstance(target.elts[0], ast.Name) and not naming.guess(target.elts[0].id):
                self.scope.bind(target, "")
                return self.scope.bind(target.elts[0], "key")  # what a dictionary of tensors goes by
            if called == "zip" and len(target.elts) == len(iterable.args):
                for one, part in zip(target.elts, iterable.args, strict=True):
                    self._bind_loop(one, part)
                return None
        return self.scope.bind(target, self._iterated(iterable))

    def _iterated(self, node: ast.expr) -> str:
        """The type of the elements in a loop over an expression. An engine, or a variable named like one, yields names."""
        kind = self.scope.type_of(node) or ("ICudaEngine" if self.scope.guessed(node)[0] == "ICudaEngine" else "")
        return self.scope.iterated(kind)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        outer, self.scope = self.scope, self.scope.inner()
        for generator in node.generators:
            self.visit(generator.iter)
            self._bind_loop(generator.target, generator.iter)
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
        self._annotated_result(full, node)
        body = [one for one in node.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
        if not self.scope.owner and len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
            self.program.results[node.name] = body[0].value
            if holds_version(body[0].value, self.scope):
                self.program.version_values[f"{node.name}()"] = body[0].value
        outer, conditions = self.scope, self._conditions
        self._conditions = [*conditions, *self._asked_of(full, node.decorator_list)]
        self.scope = outer.inner(full)
        self._parameters(node.args, self.program.bases.get(self.scope.owner, ()), node.name)
        self._functions.append(full)
        self._block(node.body)
        self._functions.pop()
        self.scope, self._conditions = outer, conditions

    visit_AsyncFunctionDef = visit_FunctionDef

    def _annotated_result(self, full: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """The annotated type of a function's result. A decorator, `async` or `yield` changes it."""
        said = self._annotated(node.returns)
        plain = isinstance(node, ast.FunctionDef) and not node.decorator_list
        if plain and said:
            self.program.returns[full] = said
        if not plain:
            self.program.note("()", full, "")
        if self.scope.owner:
            self.program.note(".", node.name, f"function:{full}" if plain else "")
        else:
            self.program.note(self.scope.places[0], node.name, f"function:{full}" if plain else "")

    def visit_Yield(self, node: ast.Yield | ast.YieldFrom) -> None:
        self.generic_visit(node)
        if self._functions:
            self.program.note("()", self._functions[-1], "")

    visit_YieldFrom = visit_Yield

    def _asked_of(self, function: str, decorators: Sequence[ast.expr]) -> Iterator[Condition]:
        """What must be true before a function runs: no test decorator skips it, and one of its callers in the program is reached."""
        for decorator in decorators:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("skipif") and decorator.args:
                skipped = condition_of(decorator.args[0], self.scope)
                yield from [opposite(skipped)] if skipped else []
        sites = self._sites_before.get(function, [])
        asked = tuple(site for site in sites if site is not None)
        if sites and len(asked) == len(sites):
            yield any_of(asked)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        outer, self.scope = self.scope, self.scope.inner(f"lambda {node.lineno}")
        self._parameters(node.args)
        self.visit(node.body)
        self.scope = outer

    def _parameters(self, arguments: ast.arguments, bases: Sequence[str] = (), function: str = "") -> None:
        """The parameters of a function; those of a method that overrides TensorRT's are what the base class declares."""
        declared = next((found for base in bases if (found := known.parameters_of(f"{base}.{function}"))), ())
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        for index, one in enumerate(argument for argument in every if argument is not None):
            if one.annotation is not None:
                self.visit(one.annotation)
            kind = self._annotated(one.annotation)
            exact = self._certain(one.annotation, kind)
            if index == 0 and one.arg in ("self", "cls") and self.scope.owner:
                kind = f"user:{self.scope.owner}"
                exact = kind if one.arg == "self" else ""
            elif 0 < index <= len(declared):
                kind = kind or declared[index - 1]
            if not kind and naming.guess(one.arg) == "trt":
                kind = "trt"
            if not kind and (self.scope.places[0], one.arg) in self.program.serialized:
                kind = OTHER
            self.scope.variables[one.arg] = kind
            self.program.note(self.scope.places[0], one.arg, exact)

    def _certain(self, annotation: ast.expr | None, kind: str) -> str:
        """The class of an unambiguous annotation: it names only one class, and no program derives from that class."""
        named = [part for part in ast.walk(annotation) if isinstance(part, ast.Name | ast.Constant)] if annotation else []
        names = {part.id if isinstance(part, ast.Name) else str(part.value) for part in named} - {"Optional", "typing", "None"}
        return kind if len(names) == 1 and known.is_final(kind) else ""

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
            return "str" if annotation.id == "str" else OTHER
        return named.replace("userclass:", "user:").removeprefix("class:")

    def visit_Return(self, node: ast.Return) -> None:
        self.generic_visit(node)
        if not self._functions or node.value is None:
            return
        if kind := self.scope.type_of(node.value):
            self.program.returns[self._functions[-1]] = kind
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self.program.note("()", self._functions[-1], self.scope.exact(node.value))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *(keyword.value for keyword in node.keywords)):
            self.visit(part)
        bases: list[str] = []
        for base in node.bases:
            self.visit(base)
            kind = self.scope.type_of(base)
            bases += [kind[6:]] if kind.startswith("class:") else self.program.bases.get(kind.removeprefix("userclass:"), ())
        self.program.bases[node.name] = tuple(bases)
        derived, self._derived_from = self._derived_from, (*self._derived_from, *bases)
        self._declare(node.name, f"userclass:{node.name}")
        places = (f"class {node.name}", *self.scope.places)
        outer, self.scope = self.scope, Scope(self.program, self.scope.variables.new_child(), node.name, places)
        self._block(node.body)
        for name, kind in self.scope.variables.maps[0].items():
            self.program.own_names.add(name)
            self.program.attributes.setdefault((node.name, name), kind)
            self.program.note(".", name, "")
        self.scope, self._derived_from = outer, derived

    # ---- what depends on the version

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        """A list of statements; those after ``if new: return ...`` run on other versions only."""
        depth = len(self._conditions)
        for statement in statements:
            before = len(self._seen)
            self.visit(statement)
            if isinstance(statement, ast.If) and not statement.orelse and isinstance(statement.body[-1], _EXITS):
                condition = condition_of(statement.test, self.scope)
                lines = range(statement.body[0].lineno, (statement.end_lineno or statement.lineno) + 1)
                if condition:
                    another_way = any(line in lines for line in self._seen[before:])
                    passed = opposite(condition) if another_way else presumed(opposite(condition))
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
        self._under(None if condition is None else opposite(condition), node.orelse)

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
                self._conditions = [*self._conditions, condition if isinstance(node.op, ast.And) else opposite(condition)]
        self._conditions = outer

    def visit_Try(self, node: ast.Try) -> None:
        caught = [ast.unparse(handler.type) if handler.type else "Exception" for handler in node.handlers]
        named = any("AttributeError" in text for text in caught)
        broad = any(text in ("Exception", "BaseException") for text in caught)
        # Whatever is caught, a handler that goes another way to TensorRT is there for another version, and one that does nothing
        # makes a single statement optional. Any other handler only reports the failure.
        silent = _is_optional(node.body) and all(isinstance(one.body[0], ast.Pass | ast.Continue) for one in node.handlers)
        probing = named or (broad and (silent or node.lineno in self.program.probes))
        self._under(UNCLEAR if probing else None, node.body)
        before = len(self._seen)
        for handler in node.handlers:
            if handler.name:
                self.program.note(self.scope.places[0], handler.name, "")
            self._under(UNCLEAR if probing else None, handler.body)
        if len(self._seen) > before:
            self.program.probes.add(node.lineno)
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


def _is_items(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr == "items" and not node.args


def _is_optional(statements: Sequence[ast.stmt]) -> bool:
    """Whether it is a single statement that sets an attribute or calls a method, so that no later code depends on it."""
    only = statements[0] if len(statements) == 1 else None
    if isinstance(only, ast.Expr) and isinstance(only.value, ast.Call):
        return isinstance(only.value.func, ast.Attribute)
    return isinstance(only, ast.Assign | ast.AugAssign) and isinstance(
        only.target if isinstance(only, ast.AugAssign) else only.targets[0], ast.Attribute
    )


def _suppressed(node: ast.expr) -> str:
    """The exception that ``contextlib.suppress(...)`` keeps quiet, as far as it matters here."""
    if not isinstance(node, ast.Call) or ast.unparse(node.func).rpartition(".")[2] != "suppress":
        return ""
    names = {ast.unparse(one) for one in node.args}
    return next((name for name in ("AttributeError", "Exception", "BaseException") if name in names), "").replace("Base", "")
