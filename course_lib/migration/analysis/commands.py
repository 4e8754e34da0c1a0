"""Command lines that run trtexec, Polygraphy, Nsight Systems or pip, in scripts, READMEs, notebooks and strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from course_lib.migration.analysis.guards import is_reached, version_number
from course_lib.migration.findings import Verdict
from course_lib.migration.rules.data import NSYS, PACKAGES, POLYGRAPHY, QDREP, TRTEXEC, ToolRule
from course_lib.migration.tables.known import RTX

_TOOLS = re.compile(
    r"""(?:^|[\s/\\;&|(`"'\[!=,@])(trtexec|polygraphy|nsys|pip3?)(?i:\.exe)?(?=[\s"',)\]]|$)"""
    r"""|(?:\$[({]?(\w+)[)}]?|%(\w+)%)(?=[\s"',)\]]|$)"""
)
_NAMED_TOOL = re.compile(
    r"""^\s*(?:export\s+|set\s+"?|ENV\s+|ARG\s+|readonly\s+|local\s+|\$)?(\w+)\s*[:?]?=\s*["'(]?\s*(?:[A-Z]:[^"'=]*?|[^\s"'=]*?)\b(trtexec|polygraphy|nsys)(?:\.exe)?["')]?\s*$""",
    re.I,
)
# A variable of a script that is set elsewhere, by its usual names.
VARIABLES = {"trtexec": "trtexec", "trt": "trtexec", "trt_exec": "trtexec", "nsys": "nsys", "polygraphy": "polygraphy"}
_END_OF_COMMAND = re.compile(r"&&|\|\|?|;|(?<![\w$])`")
_CONTINUED = re.compile(r"(?:\\|(?<=\s)[\^`])\s*$")
_COMMENT = re.compile(r"(?:^|\s)#|^\s*@?(?:rem\s|::)", re.I)
_WORD = re.compile(r"[^\s\"'\[\],`]+")
_REQUIRED = re.compile(r"""(?:^\s*(?:-\s+)?|["'])(?:[\w-]+::)?([A-Za-z][\w.-]*)(?=["'\s=<>~!\[;,]|$)""")
_PACKAGE = r"(?:nvidia-)?tensorrt(?:[-_](?:cu\d+|bindings|libs|lean|dispatch))*"
_PINNED = re.compile(rf"(?<![\w-])({_PACKAGE})(?:\[\w+\])?\s*(?:===?|~=|<=|<|=(?=\d))\s*v?(\d+(?:\.\d+)*)")
_IN_TABLE = re.compile(
    rf"""^\s*["']?({_PACKAGE})["']?\s*=\s*(?:\{{.*?version\s*=\s*)?["'](?:===?|~=|<=|<|\^|~)?\s*v?(\d+(?:\.\d+)*)"""
)
_FILE_OF_NSYS = re.compile(r"[\w$}*)]\.qdrep\b")
_RULES = {"trtexec": TRTEXEC, "polygraphy": POLYGRAPHY, "nsys": NSYS}


def join_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their numbers from 1, one that is continued joined with the next: a backslash, ``^`` in a batch file, or PowerShell's
    backtick."""
    start, parts = 1, [""]
    for number, line in enumerate(text.split("\n"), 1):
        if parts == [""]:
            start, parts = number, []
        continued = _CONTINUED.search(line)
        parts.append(line[: continued.start()] if continued else line.rstrip("\r"))
        if not continued:
            yield start, " ".join(parts)
            parts = [""]
    if parts != [""]:
        yield start, " ".join(parts)


def tool_variables(lines: Iterable[str]) -> dict[str, str]:
    """Variables of a script that hold a tool, in lower case: ``TRT=/usr/src/tensorrt/bin/trtexec`` gives ``{"trt": "trtexec"}``."""
    found = (match for line in lines if (match := _NAMED_TOOL.match(line)))
    return VARIABLES | {match[1].lower(): match[2].lower() for match in found}


def judge_command(line: str, target: str, variables: Mapping[str, str] = VARIABLES) -> list[Verdict]:
    """The verdicts on one command line; none if it does not run a TensorRT tool.

    Args:
        variables: result of `tool_variables` for the surrounding script.
    """
    found: list[Verdict] = []
    line = _without_comment(line)
    for match in _TOOLS.finditer(line):
        tool = (match[1] or variables.get((match[2] or match[3]).lower(), "")).lower().rstrip("3")
        if not tool:
            continue
        rest = _END_OF_COMMAND.split(line[match.end() :], maxsplit=1)[0]
        words = _WORD.findall(rest)
        if tool == "pip":
            found += _pip(rest, words, target)
        else:
            found += [one for word in _flags(words) for one in _flag(tool, word, target)]
    if _FILE_OF_NSYS.search(line):
        found.append(_verdict(QDREP, ".qdrep"))
    return list(dict.fromkeys(found))


def tool_in(text: str) -> str:
    """The first of TensorRT's tools that a command line runs; "" if there is none."""
    return next((match[1].lower() for match in _TOOLS.finditer(text) if match[1] and not match[1].startswith("pip")), "")


def judge_requirement(line: str, target: str) -> list[Verdict]:
    """The verdict on one line of a requirements file."""
    line = _without_comment(line)
    return _pip(line, _WORD.findall(line), target, installs=True)


def judge_pin(line: str, target: str) -> list[Verdict]:
    """The verdicts on packages and TensorRT versions that a project file requires: ``"tensorrt==8.6.1"``, ``- nvidia-pyindex``."""
    line = _without_comment(line)
    return [*_packages(_REQUIRED.findall(line), target), *_pinned(_IN_TABLE.search(line) or _PINNED.search(line), target)]


def _without_comment(text: str) -> str:
    return _COMMENT.split(text, maxsplit=1)[0]


def _flags(words: Sequence[str]) -> Iterator[str]:
    """Flags with their values; a value in the next word is joined with an equals sign."""
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        if word.startswith("-") and "=" not in word and following and not following.startswith("-"):
            yield f"{word}={following}"
        else:
            yield word


def _flag(tool: str, word: str, target: str) -> list[Verdict]:
    name, _, value = word.partition("=")
    name = f"-{name}" if tool == "trtexec" and re.fullmatch(r"-\w{3,}", name) else name  # trtexec takes one dash as well
    for rule in _RULES[tool]:
        for flag in rule.flags:
            wanted, has_value, part = flag.partition("=")
            fits = name == wanted and (not has_value or part.lower() in re.split(r"[,+\-]", value.lower()) or part in value)
            fits = fits or (tool == "nsys" and not flag.startswith("-") and wanted in re.split(r"[,=]", word))
            if fits and is_reached(rule.since, target):
                return [_verdict(rule, f"{tool} {flag if has_value else wanted}")]
    return []


def _pip(text: str, words: Sequence[str], target: str, *, installs: bool = False) -> list[Verdict]:
    if not installs and "install" not in words:
        return []
    named = [re.split(r"[=<>~!\[;]", word, maxsplit=1)[0] for word in words]
    return [*_packages(named, target), *_pinned(_PINNED.search(text), target)]


def _packages(names: Iterable[str], target: str) -> list[Verdict]:
    rules = {name: PACKAGES.get(name) for name in (name.lower().replace("_", "-") for name in names)}
    return [_verdict(rule, f"pip install {name}") for name, rule in rules.items() if rule and is_reached(rule.since, target)]


def _pinned(pin: re.Match[str] | None, target: str) -> list[Verdict]:
    if pin is None or target == RTX or version_number(pin[2])[:1] >= version_number(target)[:1]:
        return []
    advice = f"pip install '{pin[1].removeprefix('nvidia-')}=={version_number(target)[0]}.*', with the replacements above"
    return [Verdict(f"pip install {pin[1]}=={pin[2]}", "changed", "", advice, 14)]


def _verdict(rule: ToolRule, name: str) -> Verdict:
    return Verdict(name, rule.severity, rule.since, rule.use, rule.lecture)
