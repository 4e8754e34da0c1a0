"""Find calls in old code that a TensorRT version removed, deprecated or ignores: in scripts, notebooks, shell scripts and READMEs."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib._util.plain_text import plain
from course_lib.errors import CourseError
from course_lib.migration.analysis import naming, python2
from course_lib.migration.analysis import verdicts as judge
from course_lib.migration.analysis.commands import judge_command, judge_pin, judge_requirement, tool_variables
from course_lib.migration.analysis.guards import version_number
from course_lib.migration.analysis.sources import Place, Program, Source, find, not_read, read
from course_lib.migration.analysis.strings import commands_in
from course_lib.migration.analysis.uses import Use, collect
from course_lib.migration.findings import FAILING, SEVERITIES, Finding, Verdict
from course_lib.migration.rules import gone, torch_trt
from course_lib.migration.tables import known
from course_lib.migration.tables.api_table import ApiTable

NEWEST = known.RELEASES_IN_ORDER[-1]
_EVIDENCE = re.compile(r"tensorrt|\btrt\b|pycuda|trt_|_trt|trtorch|\buff\b|graphsurgeon|pytorch_quantization", re.I)
_CHAIN = re.compile(r"\b(?:trt|tensorrt)\.([A-Z]\w*(?:\.\w+)?|[a-z]\w*)")
_MEMBER = re.compile(r"(\w*)\.(\w+)")


# Every finding needs one of these words in its file; `_SHORT` are those that other words contain.
_WORDS = (b"tensorrt", b"pycuda", b"trtorch", b"trtexec", b"graphsurgeon", b"pytorch_quantization", b"pytorch-quantization")
_TOOL_WORDS = (b"polygraphy", b"createconfig", b"create_config", b"nsys", b"qdrep", b"pyindex")
_SHORT = re.compile(rb"\btrt\b|trt_|_trt|\buff\b|\\u00[4-7]")  # the last: letters of JSON that are written as numbers
_POLYGRAPHY = re.compile(r"create_?config|create_?network|network_?from_?onnx", re.I)
_IGNORE = re.compile(r"#\s*migrate:\s*ignore\b(?:\[([^\]]*)\])?")


@dataclass(frozen=True)
class Scan:
    """What a scan found.

    Attributes:
        target: the version whose table was used.
        files: number of files that were read.
        findings: the findings, ordered by file, cell and line.
        notes: one line for each program that could not be parsed completely, one for each folder with code in languages that are not
            read, and one if the table is not that of the requested version.
        unread: files that could not be read, one line each.
        silenced: number of findings that the comment ``# migrate: ignore`` suppresses.
    """

    target: str
    files: int
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    silenced: int = 0

    @property
    def fails(self) -> bool:
        """Whether something was removed, is ignored, or never existed."""
        return any(finding.verdict.severity in FAILING for finding in self.findings)

    def counts(self) -> dict[str, int]:
        """Findings by severity."""
        return {name: sum(one.verdict.severity == name for one in self.findings) for name in SEVERITIES}


def target_version(text: str) -> str:
    """The table for a version such as ``"11.4"``, ``"8.6"``, ``"11"`` or ``"rtx"``.

    A version without a table, such as ``"10.3"``, gets the nearest table of its major version: the newest one that is not newer,
    or else the oldest. NVIDIA removes names only in the first release of a major version.

    Raises:
        ValueError: there is no table of that major version.
    """
    versions = (*known.RELEASES_IN_ORDER, known.RTX)
    fitting = [one for one in versions if one == text or one.startswith((f"{text}.", f"{text}-"))]
    if text and fitting:
        return fitting[-1]
    same_major = [one for one in versions[:-1] if re.fullmatch(rf"{one.partition('.')[0]}(\.\d+)+", text)]
    if not same_major:
        raise ValueError(f"no table of TensorRT {text!r}: there are {', '.join(versions)}")
    older = [one for one in same_major if version_number(one) <= version_number(text)]
    return older[-1] if older else same_major[0]


def scan(paths: Sequence[str | Path], to: str = NEWEST, exclude: Sequence[str] = ()) -> Scan:
    """Read files and folders, and list what TensorRT `to` removed, deprecated, changed or ignores.

    Args:
        paths: Python programs (also Python 2), notebooks, shell scripts, Dockerfiles, Makefiles, READMEs, requirements files.
        to: a version that `target_version` knows.
        exclude: patterns of files in folders to leave out, as in `sources.find`.

    Raises:
        CourseError: a path does not exist.
        ValueError: no table of that version.
    """
    target = target_version(to)
    findings: list[Finding] = []
    notes: list[str] = []
    if to and not (target == to or target.startswith((f"{to}.", f"{to}-"))):
        notes.append(f"there is no table of TensorRT {to}: the one of {target} is used")
    unread: list[str] = []
    silenced = 0
    files = find([Path(path) for path in paths], exclude)
    for path in files:
        try:
            source = read(path, may_hold_findings)
            found, problem = scan_source(source, target)
        except CourseError as error:
            unread.append(str(error))
            continue
        except Exception as error:  # one odd file must not end the scan of all others
            unread.append(f"{path}: cannot be analyzed ({type(error).__name__}: {error}); please report it")
            continue
        texts = _lines(source) if found else {}
        quiet = _silenced(texts)
        kept = [(place, verdict) for place, verdict in found if not _is_silenced(verdict, quiet.get(place))]
        silenced += len(found) - len(kept)
        findings += [
            Finding(str(path), place.line, place.cell, verdict, plain(texts.get(place, ""), 200)) for place, verdict in kept
        ]
        if problem:
            notes.append(f"{path}: not Python 3 ({problem}): the lines that cannot be parsed were searched for names only")
    notes += not_read([Path(path) for path in paths], exclude)
    return Scan(target, len(files) - len(unread), tuple(findings), tuple(notes), tuple(unread), silenced)


def may_hold_findings(data: bytes) -> bool:
    """Whether a file mentions TensorRT or one of its tools. Otherwise it cannot have findings."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True  # UTF-16, where no word can be searched for
    text = data.lower()
    return any(word in text for word in (*_WORDS, *_TOOL_WORDS)) or _SHORT.search(text) is not None


def _lines(source: Source) -> dict[Place, str]:
    """The text at each place: lines of programs, and command lines, which are in no program."""
    programs = (
        (program.place(number), line) for program in source.programs for number, line in enumerate(program.text.split("\n"), 1)
    )
    return dict((*programs, *source.pins, *source.commands))


def _silenced(lines: Mapping[Place, str]) -> dict[Place, frozenset[str]]:
    """Places with a comment ``# migrate: ignore[name, ...]``, or with one alone on the line above, and its names (none: all)."""
    found: dict[Place, frozenset[str]] = {}
    for place, line in lines.items():
        if comment := _IGNORE.search(line):
            names = frozenset(name.strip() for name in (comment[1] or "").split(",")) - {""}
            below = Place(place.line + 1, place.cell)
            found[below if not line[: comment.start()].strip() else place] = names
    return found


def _is_silenced(verdict: Verdict, names: frozenset[str] | None) -> bool:
    return names is not None and (not names or verdict.name in names)


def scan_source(source: Source, target: str) -> tuple[list[tuple[Place, Verdict]], str]:
    """The verdicts on one file with their places, in order, and why it did not parse, if so."""
    found: dict[tuple[Place, Verdict], None] = {}
    variables = tool_variables(line for _, line in source.commands)
    for place, line in source.commands:
        verdicts = judge_requirement(line, target) if source.requirements else judge_command(line, target, variables)
        found.update(dict.fromkeys((place, verdict) for verdict in verdicts))
    for place, line in source.pins:
        found.update(dict.fromkeys((place, verdict) for verdict in judge_pin(line, target)))
    problem = ""
    evidence = any(_EVIDENCE.search(program.text) for program in source.programs)
    for program in source.programs:
        parsed = python2.parse(program.text)
        problem = problem or _located(parsed.problem, program)
        try:
            python = [
                *_python(parsed, program.text, target, evidence=evidence),
                *commands_in(parsed.tree, program.text, target),
            ]
        except RecursionError:
            problem, python = "an expression is nested too deeply", []
        found.update(dict.fromkeys((program.place(line), verdict) for line, verdict in python))
    order = sorted(found, key=lambda one: (one[0].cell or 0, one[0].line))
    return order, "" if source.excerpts else problem


def _located(problem: str, program: Program) -> str:
    """The complaint of the parser, with the line of the cell instead of that of all cells together."""
    match = re.match(r"line (\d+): ", problem)
    place = program.place(int(match[1])) if match else Place(0)
    return f"cell {place.cell}, line {place.line}: {problem[match.end() :]}" if match and place.cell else problem


def _python(parsed: python2.Parsed, text: str, target: str, *, evidence: bool) -> Iterator[tuple[int, Verdict]]:
    if not evidence and not _POLYGRAPHY.search(text):
        return
    table, comments = ApiTable.load(target), comments_of(text)
    uses = [*collect(parsed.tree, evidence=evidence), *_names_in_lost_lines(parsed.lost)]
    torch_tensorrt = any(use.name.startswith(("import:torch_tensorrt", "import:trtorch")) for use in uses)
    scripted = torch_trt.scripted(parsed.tree) if torch_tensorrt else frozenset()
    for use in uses:
        if use.name.startswith("torch") and torch_trt.takes_scripted(use.node, scripted):
            continue  # TorchScript's front end has other keywords, which no table holds
        for verdict in _judge(use, table, comments, torch_tensorrt=torch_tensorrt):
            yield use.line, verdict


def _judge(use: Use, table: ApiTable, comments: Mapping[int, str], *, torch_tensorrt: bool) -> list[Verdict]:
    if use.name.startswith("import:"):
        return gone.judge_import(use.name[7:], table.version)
    if use.name.startswith("torch_tensorrt"):
        return torch_trt.judge(use, table.version)
    if use.name.startswith("polygraphy."):
        return gone.judge_polygraphy(use, table.version)
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
            yield Use(name, line, "read", None, ast.Pass())


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
