"""Which calls in old code a version of TensorRT removed, deprecated or ignores: in scripts, notebooks, shell scripts and READMEs."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.migration import judge, known, modules, naming, polygraphy, python2, torch_trt
from course_lib.migration.api_table import ApiTable
from course_lib.migration.commands import judge_command, judge_requirement
from course_lib.migration.findings import FAILING, SEVERITIES, Finding, Verdict
from course_lib.migration.sources import Place, Program, Source, find, read
from course_lib.migration.uses import Use, collect

NEWEST = known.RELEASES_IN_ORDER[-1]
_EVIDENCE = re.compile(r"tensorrt|\btrt\b|pycuda|trt_|_trt|trtorch|\buff\b|graphsurgeon|pytorch_quantization", re.I)
_CHAIN = re.compile(r"\b(?:trt|tensorrt)\.([A-Z]\w*(?:\.\w+)?|[a-z]\w*)")
_MEMBER = re.compile(r"(\w*)\.(\w+)")


@dataclass(frozen=True)
class Scan:
    """What a scan found.

    Attributes:
        target: the version that was asked about.
        files: how many files were read.
        findings: by file, cell and line.
        notes: programs of which a part could not be parsed, one line each.
        unread: files that could not be read at all, one line each.
    """

    target: str
    files: int
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def fails(self) -> bool:
        """Whether something was removed or is ignored."""
        return any(finding.verdict.severity in FAILING for finding in self.findings)

    def counts(self) -> dict[str, int]:
        """Findings by severity."""
        return {name: sum(one.verdict.severity == name for one in self.findings) for name in SEVERITIES}


def target_version(text: str) -> str:
    """The table that a version such as ``"11.4"``, ``"8.6"``, ``"11"`` or ``"rtx"`` means.

    Raises:
        ValueError: there is no such table.
    """
    versions = (*known.RELEASES_IN_ORDER, known.RTX)
    fitting = [one for one in versions if one == text or one.startswith((f"{text}.", f"{text}-"))]
    if not text or not fitting:
        raise ValueError(f"no table of TensorRT {text!r}: there are {', '.join(versions)}")
    return fitting[-1]


def scan(paths: Sequence[str | Path], to: str = NEWEST) -> Scan:
    """Read files, and folders with all that is in them, and list what TensorRT `to` removed, deprecated, changed or ignores.

    Args:
        paths: Python programs (also Python 2), notebooks, shell scripts, Dockerfiles, Makefiles, READMEs, requirements files.
        to: a version that `target_version` knows.

    Raises:
        CourseError: a path does not exist.
        ValueError: no table of that version.
    """
    target = target_version(to)
    findings: list[Finding] = []
    notes: list[str] = []
    unread: list[str] = []
    files = find([Path(path) for path in paths])
    for path in files:
        try:
            source = read(path)
        except CourseError as error:
            unread.append(str(error))
            continue
        found, problem = scan_source(source, target)
        findings += [Finding(str(path), place.line, place.cell, verdict) for place, verdict in found]
        if problem:
            notes.append(f"{path}: not Python 3 ({problem}): the lines that cannot be parsed were searched for names only")
    return Scan(target, len(files) - len(unread), tuple(findings), tuple(notes), tuple(unread))


def scan_source(source: Source, target: str) -> tuple[list[tuple[Place, Verdict]], str]:
    """The verdicts on one file with their places, in order, and why it did not parse, if so."""
    found: dict[tuple[Place, Verdict], None] = {}
    judged = judge_requirement if source.requirements else judge_command
    for place, line in source.commands:
        found.update(dict.fromkeys((place, verdict) for verdict in judged(line, target)))
    problem = ""
    evidence = any(_EVIDENCE.search(program.text) for program in source.programs)
    for program in source.programs:
        parsed = python2.parse(program.text)
        problem = problem or _located(parsed.problem, program)
        try:
            verdicts = [*_python(parsed, program.text, target, evidence=evidence), *_strings(parsed.tree, target)]
        except RecursionError:
            problem, verdicts = "an expression is nested too deeply", []
        found.update(dict.fromkeys((program.place(line), verdict) for line, verdict in verdicts))
    order = sorted(found, key=lambda one: (one[0].cell or 0, one[0].line))
    return order, "" if source.excerpts else problem


def _located(problem: str, program: Program) -> str:
    """The complaint of the parser, with the line of the cell instead of that of all cells together."""
    match = re.match(r"line (\d+): ", problem)
    place = program.place(int(match[1])) if match else Place(0)
    return f"cell {place.cell}, line {place.line}: {problem[match.end() :]}" if match and place.cell else problem


def _python(parsed: python2.Parsed, text: str, target: str, *, evidence: bool) -> Iterator[tuple[int, Verdict]]:
    if not evidence and not any(name in text for name in naming.DISTINCTIVE):
        return
    table, comments = ApiTable.load(target), comments_of(text)
    uses = [*collect(parsed.tree, evidence=evidence), *_names_in_lost_lines(parsed.lost)]
    torch_tensorrt = any(use.name.startswith(("import:torch_tensorrt", "import:trtorch")) for use in uses)
    for use in uses:
        for verdict in _judge(use, table, comments, torch_tensorrt=torch_tensorrt):
            yield use.line, verdict


def _judge(use: Use, table: ApiTable, comments: dict[int, str], *, torch_tensorrt: bool) -> list[Verdict]:
    if use.name.startswith("import:"):
        return modules.judge_import(use.name[7:], table.version)
    if use.name.startswith("torch_tensorrt"):
        return torch_trt.judge(use, table.version)
    if use.name == "polygraphy.CreateConfig":
        return polygraphy.judge(use, table.version)
    if use.name.startswith("torch."):
        return torch_trt.judge_torch(use, table.version, compiled=torch_tensorrt and _is_compiled(use.node))
    return judge.judge(use, table, comments)


def _is_compiled(call: ast.AST) -> bool:
    first = call.args[0] if isinstance(call, ast.Call) and call.args else None
    name = first.id if isinstance(first, ast.Name) else ""
    return "trt" in name.lower() or "tensorrt" in name.lower()


def _names_in_lost_lines(lost: Sequence[tuple[int, str]]) -> Iterator[Use]:
    for line, text in lost:
        code = text.partition("#")[0]
        names = _CHAIN.findall(code)
        for receiver, member in _MEMBER.findall(code):
            if member in naming.DISTINCTIVE:
                owners = known.owners_of(member)
                names.append(f"{naming.guess(receiver) if naming.guess(receiver) in owners else owners[0]}.{member}")
        for name in dict.fromkeys(names):
            yield Use(name, line, "read", False, None, ast.Pass())


def comments_of(text: str) -> dict[int, str]:
    """Comments by line, as far as the text can be cut into tokens."""
    found: dict[int, str] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                found[token.start[0]] = token.string
    except (tokenize.TokenError, SyntaxError):
        pass
    return found


def _strings(tree: ast.Module, target: str) -> Iterator[tuple[int, Verdict]]:
    """Verdicts on command lines that a program holds as text or as a list of words; not those in docstrings."""
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Tuple):
            words = [part.value for part in node.elts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
            text = " ".join(word for word in words if " " not in word)
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            text = node.value
        else:
            continue
        for offset, line in enumerate(text.split("\n")):
            if re.search(r"trtexec|polygraphy|nsys|pip", line):
                yield from ((node.lineno + (offset if "\n" in text else 0), verdict) for verdict in judge_command(line, target))
