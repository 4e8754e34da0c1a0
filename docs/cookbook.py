"""The cookbook of old code as a page: each old name, the version that removed it, its replacement, and the lecture that teaches it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from course_lib.migration.analysis.verdicts import read_only_since, verdict_on
from course_lib.migration.rules import data, torch_trt
from course_lib.migration.rules.data import RULES, Rule
from course_lib.migration.tables import known
from course_lib.migration.tables.api_table import ApiTable
from course_lib.migration.tables.known import RELEASES_IN_ORDER
from course_lib.migration.tables.release_history import names

_MOST_NAMES = 12  # a row of them all would be unreadable


def page(lectures: Mapping[int, str] | None = None) -> str:
    """Markdown, for the newest version that has a table.

    Args:
        lectures: links to lectures by number; other lectures appear as numbers.
    """
    links = {number: f"[{number}]({target})" for number, target in (lectures or {}).items()}
    newest = ApiTable.load(RELEASES_IN_ORDER[-1])
    tools = (*data.TRTEXEC, *data.POLYGRAPHY, *data.NSYS, *data.PACKAGES.values())
    text = [
        "# Cookbook of old code",
        "",
        f"Names that code for TensorRT 5 to 10 uses, seen from {newest.version}. Which version has which name is read from NVIDIA's own",
        f"Python bindings ({', '.join(RELEASES_IN_ORDER)}); `course migrate PATH...` finds them in your programs, notebooks and scripts.",
        "",
        "## Python",
        "",
        *_table(("old name, after `trt.`", "what became of it", "write instead", "lecture"), _api_rows(newest, links)),
        "",
        "## Torch-TensorRT",
        "",
        "Keywords of `torch_tensorrt.compile` that older releases read. Newer ones ignore unknown keywords silently.",
        "",
        *_table(("keyword", "write instead"), ((f"`{name}`", use) for name, use in torch_trt.INSTEAD.items())),
        "",
        "## Command lines and packages",
        "",
        *_table(
            ("tool", "flags or names", "what became of them", "use instead", "lecture"),
            (
                (
                    rule.tool,
                    _code(rule.flags),
                    f"{rule.severity} {rule.since}".strip(),
                    _plain(rule.use),
                    links.get(rule.lecture, str(rule.lecture)),
                )
                for rule in tools
            ),
        ),
    ]
    return "\n".join(text) + "\n"


def _api_rows(newest: ApiTable, links: Mapping[int, str]) -> Iterator[tuple[str, ...]]:
    for rule in RULES:
        matching = {name for pattern in rule.names for name in _matching(rule, pattern)}
        ordered = sorted(matching, key=lambda name: (name not in rule.names, name))  # those that a person wrote down come first
        fates: dict[str, list[str]] = {}
        for name in ordered:
            if fate := _fate(name, newest) or rule.severity:
                fates.setdefault(fate, []).append(name)
        for fate, of_fate in fates.items():
            more = f" and {len(of_fate) - _MOST_NAMES} more" if len(of_fate) > _MOST_NAMES else ""
            yield _code(of_fate[:_MOST_NAMES]) + more, fate, _plain(rule.use), links.get(rule.lecture, str(rule.lecture))


def _fate(name: str, table: ApiTable) -> str:
    if verdict := verdict_on(name, table):
        return f"{verdict.severity} {verdict.since}".strip()
    since = read_only_since(name, table)
    return f"read-only since {since}" if since else ""


def _matching(rule: Rule, pattern: str) -> Iterator[str]:
    if "*" not in pattern:
        yield pattern
    else:
        yield from (name for name in _all_names() if Rule((pattern,), rule.use, rule.lecture).matches(name))


@cache
def _all_names() -> frozenset[str]:
    """Every name of every version."""
    return frozenset(known.gone_before_8_6()).union(*(names(version) for version in (*RELEASES_IN_ORDER, known.RTX)))


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _plain(text: str) -> str:
    """Text with Markdown's table characters escaped."""
    return text.replace("|", r"\|").replace("<", "&lt;").replace("*", r"\*").replace("_", r"\_")
