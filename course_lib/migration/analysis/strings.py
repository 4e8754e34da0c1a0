"""Command lines that a Python program holds as text: in strings, in lists of words, and in variables that it adds words to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from course_lib.migration.analysis.commands import judge_command, tool_in
from course_lib.migration.findings import Verdict

_TOOL_IN_TEXT = re.compile(r"trtexec|polygraphy|nsys|pip|qdrep", re.I)
_ENDS_WITH_TOOL = re.compile(r"(?:^|[/\\])(trtexec|polygraphy|nsys)(?:\.exe)?$", re.I)
_PLACEHOLDER = re.compile(r"%[-\d.]*\w|\{[^{}]*\}")
_ADDING = ("append", "extend", "insert")
_Function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class _Piece:
    """A part of a command line, and the line of the program in which it begins."""

    line: int
    text: str


def commands_in(tree: ast.Module, text: str, target: str) -> Iterator[tuple[int, Verdict]]:
    """The verdicts on the command lines in a program, with their lines. Docstrings are not command lines.

    Args:
        text: the text of the program.
    """
    if not _TOOL_IN_TEXT.search(text):
        return
    visitor = _Commands(target)
    visitor.run(tree.body)
    yield from visitor.found


class _Commands(ast.NodeVisitor):
    """Follows the statements in order. `held` has the text, or only the name of the tool, in each variable."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.held: dict[str, str] = {}
        self.found: list[tuple[int, Verdict]] = []
        self._later: list[ast.AST] = []

    def run(self, body: Sequence[ast.AST]) -> None:
        """Visit statements, and then the bodies of their functions, which see the variables around them."""
        for statement in body:
            self.visit(statement)
        while self._later:
            function = self._later.pop(0)
            later, self._later = self._later, []
            outside = self.held
            self.held = dict(outside)
            self.run(list(ast.iter_child_nodes(function)))
            outside.update({name: held for name, held in self.held.items() if "." in name})  # self.command
            self.held, self._later = outside, later

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, _Function):
            self._later.append(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            pass
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            self.visit(node.value)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._hold(target, node.value)
        elif isinstance(node, ast.AugAssign):
            self._judge(node.value, self._tool(node.target))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDING:
            for argument in node.args:
                self._judge(argument, self._tool(node.func.value))
        elif isinstance(node, ast.expr) and self._is_command(node):
            self._judge(node)
        else:
            self.generic_visit(node)

    def _is_command(self, node: ast.expr) -> bool:
        return isinstance(node, ast.List | ast.Tuple | ast.JoinedStr | ast.Constant | ast.BinOp) or _is_format(node)

    def _hold(self, target: ast.expr, value: ast.expr) -> None:
        name = ast.unparse(target) if isinstance(target, ast.Name | ast.Attribute) else ""
        words = [part.value for part in ast.walk(value) if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        named = next((match[1].lower() for word in words if (match := _ENDS_WITH_TOOL.search(word))), "")
        text = self._text(value)
        if name:
            self.held[name] = tool_in(text) or named or (text if isinstance(value, ast.Constant) else "")

    def _tool(self, node: ast.expr) -> str:
        return tool_in(self.held.get(ast.unparse(node), ""))

    def _text(self, node: ast.expr) -> str:
        return "".join(piece.text for piece in self._pieces(node))

    def _judge(self, node: ast.expr, tool: str = "") -> None:
        """Judge an expression as the command line of the tool, or of the one in it."""
        pieces = list(self._pieces(node))
        whole = "".join(piece.text for piece in pieces)
        if tool or _TOOL_IN_TEXT.search(whole):
            for offset, line in enumerate(whole.split("\n")):
                for verdict in judge_command(f"{tool} {line}" if tool else line, self.target):
                    self.found.append((_line_of(verdict, pieces) + offset, verdict))
        if isinstance(node, ast.List | ast.Tuple):  # a word with spaces is a command line by itself: sh -c "..."
            for part in node.elts:
                self.visit(part)

    def _pieces(self, node: ast.expr) -> Iterator[_Piece]:
        if isinstance(node, ast.Constant):
            yield _Piece(node.lineno, node.value if isinstance(node.value, str) else "")
        elif isinstance(node, ast.Name | ast.Attribute):
            yield _Piece(node.lineno, self.held.get(ast.unparse(node), ""))
        elif isinstance(node, ast.JoinedStr):
            for part in node.values:
                known = self._text(part.value) if isinstance(part, ast.FormattedValue) else self._text(part)
                yield _Piece(part.lineno, known or "X")
        elif isinstance(node, ast.List | ast.Tuple):
            for part in node.elts:
                word = [piece for piece in self._pieces(part) if " " not in piece.text or isinstance(part, ast.JoinedStr)]
                if " " not in "".join(piece.text for piece in word):
                    yield from (_Piece(part.lineno, " "), *word)
        elif isinstance(node, ast.Starred):
            yield from self._pieces(node.value)
        elif isinstance(node, ast.IfExp):
            yield from (*self._pieces(node.body), _Piece(node.lineno, " "), *self._pieces(node.orelse))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            yield from (*self._pieces(node.left), *self._pieces(node.right))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
            yield from self._filled(node.left, values)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_format(node):
            yield from self._filled(node.func.value, node.args)

    def _filled(self, template: ast.expr, values: Sequence[ast.expr]) -> Iterator[_Piece]:
        """A text with its placeholders replaced, in their order, by the texts of the values."""
        texts = iter([self._text(value) or "X" for value in values])
        for piece in self._pieces(template):
            yield _Piece(piece.line, _PLACEHOLDER.sub(lambda _: next(texts, "X"), piece.text))


def _is_format(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format"


def _line_of(verdict: Verdict, pieces: Sequence[_Piece]) -> int:
    """The line of the flag or package that a verdict is about."""
    word = re.split(r"[=<>]", verdict.name.rpartition(" ")[2])[0]
    holding = [piece for piece in pieces if word in piece.text or word.removeprefix("-") in piece.text]
    return (holding or pieces)[0].line
