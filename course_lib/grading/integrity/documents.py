"""The parts of a submission that can be compared: code, written answers, graphs and weights, each as normalized tokens.

Names that a file defines become one token, and comments and docstrings none, so that a renamed copy has the tokens of its original. Names
of libraries stay, because they tell solutions apart. One expression splits Python and CUDA: a lexer of either language has no bound on
its time, and a submitted file may be anything.
"""

from __future__ import annotations

import ast
import hashlib
import json
import keyword
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

CODE, ANSWER, GRAPH, WEIGHTS = "code", "answer", "graph", "weights"
SUFFIXES = {".py": CODE, ".cu": CODE, ".cuh": CODE, ".cpp": CODE, ".onnx": GRAPH, ".npz": WEIGHTS, ".ipynb": ""}
GRAM = {CODE: 12, ANSWER: 4, GRAPH: 4, WEIGHTS: 1}  # tokens in a row that are compared as one
_MOST_BYTES, _MOST_TEXT = 64 << 20, 400_000  # of a file, and of its text: more is not compared
_SMALLEST_WEIGHT = 16  # numbers; smaller tensors are sizes, axes and scales
_STRING = r"""(?:"{3}(?:[^\\]|\\.)*?"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
_PYTHON = re.compile(
    rf"(?P<comment>\#[^\n]*|^[%!][^\n]*)|(?P<string>\b[rbfuRBFU]{{,2}}{_STRING}|{_STRING})|(?P<word>\w+)|\S", re.M | re.S
)
_CUDA = re.compile(rf"(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<string>{_STRING})|(?P<word>\w+)|\S", re.M | re.S)
_WORD = re.compile(r"\w+")
_C_KEYWORDS = frozenset(
    _WORD.findall(
        "auto bool break case char const constexpr continue default do double else enum extern float for if inline int long return "
        "short signed sizeof static struct switch template this typename union unsigned using void volatile while"
    )
)
_DEFINES: dict[type[ast.AST], str] = {  # the field that has a name, by the kind of a node
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler), "name"),
    **{ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg", ast.alias: "asname"},
}
_DECLARES = re.compile(r"(?:[\w>]\s+|[*&]\s*)([^\W\d]\w*)\s*(?=[=;,(){\[:])")

Token = tuple[str, int, int]  # normalized, and where it begins and ends in the text


@dataclass(frozen=True)
class Document:
    """A part of a submission.

    Attributes:
        name: the file's, of a notebook with what is compared of it.
        kind: `CODE`, `ANSWER`, `GRAPH` or `WEIGHTS`.
        text: as a person reads it.
    """

    name: str
    kind: str
    text: str = field(repr=False)
    tokens: tuple[Token, ...] = field(repr=False)

    @cached_property
    def grams(self) -> dict[int, list[int]]:
        """Hashes of all runs of tokens, each with the places where it begins. They hold in this process alone."""
        size, words = GRAM[self.kind], [word for word, _, _ in self.tokens]
        found: dict[int, list[int]] = {}
        for start in range(len(words) - size + 1):
            found.setdefault(hash(tuple(words[start : start + size])), []).append(start)
        return found


def read(folder: Path, released: Path | None = None) -> tuple[Document, ...]:
    """The documents of a submission, or of a folder with given files. Links, and files that cannot be read, are left out.

    Args:
        released: the notebook that learners get: its cells are left out where they are unchanged.
    """
    documents: list[Document] = []
    for path in sorted(folder.iterdir()):
        if path.suffix not in SUFFIXES or path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST_BYTES:
            continue
        try:
            documents += _of_file(path, released)
        except Exception:  # whatever a learner's file does to a parser
            continue
    return tuple(one for one in documents if one.tokens)


def _of_file(path: Path, released: Path | None) -> Iterable[Document]:
    if path.suffix == ".ipynb":
        return notebook(json.loads(path.read_bytes()), json.loads(released.read_bytes()) if released else None, path.name)
    if path.suffix == ".onnx":
        return (graph(path),)
    if path.suffix == ".npz":
        text = f"{path.stat().st_size:,} bytes, SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}"
        return (Document(path.name, WEIGHTS, text, ((text, 0, len(text)),)),)
    return (code(path.read_text(encoding="utf-8", errors="replace"), path.name),)


def notebook(document: dict[str, Any], released: dict[str, Any] | None, name: str) -> Iterator[Document]:
    """The code of a notebook as one document, and each written answer, without what was released."""
    known = {_source(cell).strip() for cell in released["cells"]} if released else set()
    own = [cell for cell in document["cells"] if _source(cell).strip() not in known]
    yield code("\n\n".join(_source(cell) for cell in own if cell.get("cell_type") == "code"), f"{name}, code")
    for cell in own:
        marks = cell.get("metadata", {}).get("nbgrader", {})
        if cell.get("cell_type") == "markdown" and marks.get("solution"):
            yield answer(_source(cell), f"{name}, answer {marks.get('grade_id', '')}")


def answer(text: str, name: str) -> Document:
    """A written answer: its words, without case and punctuation."""
    text = text[:_MOST_TEXT]
    return Document(name, ANSWER, text, tuple((found[0].casefold(), *found.span()) for found in _WORD.finditer(text)))


def code(text: str, name: str) -> Document:
    """Code in Python, or in CUDA C++ by the name's ending."""
    text = text[:_MOST_TEXT]
    in_python = not name.endswith((".cu", ".cuh", ".cpp"))
    own = _defined(text) if in_python else set(_DECLARES.findall(text)) - _C_KEYWORDS
    tokens = []
    for found in (_PYTHON if in_python else _CUDA).finditer(text):
        if found["comment"] or (found["string"] and _is_statement(text, *found.span())):
            continue
        word = found["word"]
        is_own = word and not word[0].isdigit() and (word in own if own is not None else not keyword.iskeyword(word))
        tokens.append(("name" if is_own else "text" if found["string"] else found[0], *found.span()))
    return Document(name, CODE, text, tuple(tokens))


def graph(path: Path) -> Document:
    """A graph, one line for each node: operator, attributes, and digests of its weights, without names."""
    import onnx

    model = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name: _weight(tensor) for tensor in model.initializer}
    lines = []
    for node in model.node:
        attributes = sorted(f"{one.name}={_value(one)}" for one in node.attribute)
        lines.append(" ".join([node.op_type, *attributes, *filter(None, (weights.get(name, "") for name in node.input))]))
    text, tokens, start = "\n".join(lines), list[Token](), 0
    for line in lines:
        tokens.append((line, start, start + len(line)))
        start += len(line) + 1
    return Document(path.name, GRAPH, text, tuple(tokens))


def _weight(tensor: Any) -> str:
    from onnx import numpy_helper

    values = numpy_helper.to_array(tensor)
    return (
        f"{list(values.shape)}:{hashlib.sha256(values.tobytes()).hexdigest()[:10]}" if values.size >= _SMALLEST_WEIGHT else ""
    )


def _value(attribute: Any) -> str:
    from onnx import helper

    value = helper.get_attribute_value(attribute)
    shown = str(value).replace("\n", " ")
    return shown if len(shown) <= 40 else hashlib.sha256(shown.encode()).hexdigest()[:10]


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)


def _is_statement(text: str, start: int, end: int) -> bool:
    """Whether a string is a statement of its own, which is a docstring or a comment."""
    line = text.rfind("\n", 0, start) + 1
    return not text[line:start].strip() and text[end : end + 1] in ("", "\n")


def _defined(text: str) -> set[str] | None:
    """Names that Python code defines: variables, parameters, functions, classes, attributes that it sets, and imports under other names.

    None if the text cannot be parsed: then every name counts as defined.
    """
    try:
        tree = ast.parse(re.sub(r"^[%!].*$", "", text, flags=re.M))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    written = (node for node in ast.walk(tree) if not isinstance(getattr(node, "ctx", None), ast.Load))
    names = (getattr(node, _DEFINES[type(node)]) for node in written if type(node) in _DEFINES)
    return {name for name in names if name}
