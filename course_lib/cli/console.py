"""The readable output of the `course` command: tables with rich, one function for each subcommand."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from course_lib._util.html import with_entries
from course_lib.cli.installation import INSTALL
from course_lib.errors import MISSING_FILE

if TYPE_CHECKING:
    from course_lib.engines import LayerTable
    from course_lib.grading.batch.grade import Grade
    from course_lib.grading.batch.intake import Rejected
    from course_lib.grading.judge.review import Points
    from course_lib.grading.reports.class_files import ClassFiles
    from course_lib.labs import Examination, Lab, Outcome
    from course_lib.migration.findings import Finding

_WIDE = 190  # columns from which every part of a layer table has room
_BARS, _BAR = 100, 6  # columns from which there are bars, and the length of the longest one
_NARROW = 10  # columns of a cell that is wrapped, at least
_INDENT = 6 * " "  # before the rest of a line that is wrapped
_NUMBER = re.compile(r"[-\d.,]*")
_COLORS = {"passed": "green", "partly": "yellow", "open": "yellow", "inconclusive": "yellow"}  # by `Outcome.mark`


def _console() -> Console:
    out = Console(highlight=False, emoji=False, force_jupyter=False)  # plain text in a notebook, which has its own colors
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = 200  # a file or a pipe has no width, and a cut table is of little use there
    return out


def in_full(out: Console, markup: str) -> None:
    """Print a text that a learner may have a part in. On a terminal all of its lines but the first are indented.

    Without that, a long text could have a part that looks like a line about another learner.
    """
    if not out.is_terminal:
        out.print(markup, soft_wrap=True)
        return
    text = Text.from_markup(markup)
    text.expand_tabs(8)
    first = text.wrap(out, out.width)[0]
    out.print(first)
    rest = len(text.plain) - len(text.plain[len(first.plain) :].lstrip())
    for line in text[rest:].wrap(out, max(out.width - len(_INDENT), 1)) if rest < len(text.plain) else ():
        out.print(Text(_INDENT).append_text(line))


def complain(text: str) -> None:
    """Print one line on standard error, which a terminal wraps between words."""
    in_full(Console(stderr=True, highlight=False, emoji=False), escape(f"course: {' '.join(text.split())}"))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], wrapped: Collection[str] | None = None) -> None:
    """Print one table without its empty columns. Cells are plain values, or rich's `Text` for colored ones.

    Args:
        wrapped: columns whose cells may be wrapped; default: all.
    """
    out = _console()
    columns, rows = with_entries(columns, rows)
    if title:
        in_full(out, f"[bold]{escape(title)}[/]")
    drawn = Table(header_style="bold cyan", box=box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        numbers = all(_NUMBER.fullmatch(str(row[index])) for row in rows)
        wraps = not numbers and (wrapped is None or column in wrapped)
        drawn.add_column(
            column,
            overflow="fold" if wraps else "ellipsis",
            no_wrap=not wraps,
            min_width=_NARROW if wraps else None,
            justify="right" if numbers else "left",
        )
    for row in rows:
        drawn.add_row(*(value if isinstance(value, Text) else escape(str(value)) for value in row))
    out.print(drawn)


def doctor(found: Mapping[str, Any]) -> None:
    """The machine and its backends. Commands have lines of their own, which are not wrapped, so that they can be copied."""
    print(found["ready"])
    print(f"course {found['course']}, Python {found['python']}, GPU: {found['gpu'] or 'none'}")
    print(f"engines are built with {found['builds_with'] or 'nothing'} and run with {found['runs_with'] or 'nothing'}")
    if found["missing"]:
        print(f"missing packages: {', '.join(found['missing'])}; {INSTALL}")
    print(f"sandbox for grading: {found['sandbox']}")
    rows = []
    for backend in found["backends"]:
        # one that runs and does not build is not made for it
        no_build = Text("-", "dim") if backend["no_build"] and not backend["no_run"] else _can(backend["no_build"])
        builds = Text("modules", "green") if backend["modules"] else no_build
        rows.append((backend["name"], backend["version"] or "-", builds, _can(backend["no_run"])))
    table("", ("backend", "version", "builds", "runs"), rows, ())
    for backend in found["backends"]:
        if backend["no_run"]:
            in_full(_console(), escape(f"{backend['name']}: {backend['no_run']}"))
        for command in backend["commands"]:
            print(f"    {command}")
        if backend["modules"]:
            in_full(
                _console(), escape(f"{backend['name']}: `course layers MODULE.py` compiles a module, with or without a GPU")
            )


def _can(reason: str) -> Text:
    return Text("no", "dim") if reason else Text("yes", "green")


def layers(layer_table: LayerTable, title: str, notes: Sequence[str], drawing: str = "") -> None:
    """A layer table: one line per kernel with a bar for the bytes it moves, on a narrow terminal without the ONNX nodes' names.

    Args:
        drawing: the page that was written; "" says how to write one.
    """
    rows = layer_table.rows()
    if not rows:
        print(f"{title}: kernels are not reported; build with tensorrt or tensorrt_rtx to see them")
        return
    width = _console().width
    most = max(kernel.bytes for kernel in layer_table.kernels)
    for row, kernel in zip(rows, layer_table.kernels, strict=True):
        bar = "▆" * round(_BAR * kernel.bytes / most) if most and width >= _BARS else ""
        row["bytes"] = f"{size(kernel.bytes):>7} {bar}".rstrip() if kernel.bytes else ""
        if width < _WIDE:
            row["operators"] = row["operators"].replace("DequantizeLinear", "DQ").replace("QuantizeLinear", "Q")
    columns: tuple[str, ...] = ("kernel", "onnx", "operators", "bytes", "reads", "weights", "writes", "shape", "format")
    if width < _WIDE:
        columns = ("kernel", "operators", "bytes", "types", "shape")
    shown = [column for column in columns if column != "types" or len({row[column] for row in rows}) > 1]
    table(title, shown, [[row[c] for c in shown] for row in rows], ("kernel", "onnx", "operators", "types", "shape"))
    in_full(_console(), escape(layer_table.caption()))
    if most:
        moved = size(sum(kernel.bytes for kernel in layer_table.kernels))
        dynamic = " for N = 1 (batch 1)" * any("N" in row["shape"] for row in rows)
        print(f"they read and write {moved}{dynamic}, weights included")
    print(f"drawing: {drawing}" if drawing else "add --html FILE for the drawing, ONNX nodes and formats")
    for line in notes:
        note(line)


def note(text: str) -> None:
    """Print a remark on what a command did."""
    in_full(_console(), escape(f"note: {text}"))


def size(count: int) -> str:
    """A number of bytes with three digits, such as "2.49 MB"."""
    return f"{count / 1e6:.3g} MB" if count >= 999_500 else f"{count / 1e3:.3g} KB" if count >= 1000 else f"{count} B"


def bench(measured: Mapping[str, Any], recipe: str) -> None:
    """Shapes of the inputs, kernels if the backend reports them, latencies, and speedups over the first subject."""
    inputs = ", ".join(f"{name}: {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in measured["shapes"].items())
    rows = [
        (
            *(name, measured["kernels"].get(name) or "", f"{median:.3f}", f"{measured['p99_ms'][name]:.3f}"),
            _interval(measured["speedup"].get(name)),
        )
        for name, median in measured["median_ms"].items()
    ]
    table(
        f"run by {measured['backend']}; {inputs}; {measured['rounds']} rounds in {measured['seconds']} s{recipe}",
        ("engine", "kernels", "median ms", "p99 ms", "speedup"),
        rows,
    )


def _interval(values: Mapping[str, float] | None) -> str:
    return f"{values['median']:.2f}x [{values['low']:.2f}-{values['high']:.2f}]" if values else "1"


def outcomes(lab: Lab, examined: Examination, points: Points) -> None:
    """A table of the tasks, then the learner's numbers, and where points are missing the requirements and a hint.

    A reason that several tasks share is printed once. If one task was examined alone, the first and the last line say so: its
    points are not those of the lab.

    Args:
        points: those of `checked_folder.points_of`.
    """
    from course_lib.labs.framework.criteria import grouped

    out = _console()
    alone = len(examined.outcomes) < len(lab.tasks)
    title = lab.title + (f", only the task {examined.outcomes[0].task.id}" if alone else "")
    in_full(out, f"[bold]{escape(title)}[/]: {points}")
    groups = grouped(examined.outcomes)
    one_reason = len(groups) == 1 and not alone
    rows = [_row(one, one if one_reason else group[0]) for group in groups for one in group]
    if written := points.maximum - examined.max_points:
        rows.append((f"- / {written:g}", Text("open", "yellow"), "Written question: an instructor will read it"))
    table("", ("points", "result", "task"), rows, ("task",))
    for first, *_ in groups:
        _details(out, first, "All tasks" if one_reason else first.task.title)
    if alone:
        in_full(
            out,
            f"This is not the result of the lab, which has {len(lab.tasks)} tasks. Without --task, all of them are checked.",
        )


def _row(outcome: Outcome, first: Outcome) -> tuple[str | Text, ...]:
    """Points, mark and title of a task, and the first of its group if that is another one."""
    shared = "" if outcome is first else f', for the same reason as "{first.task.title}"'
    waits = ": right so far, the grader compares it with the reference" if outcome.open and outcome.passed else ""
    mark = Text(outcome.mark, _COLORS.get(outcome.mark, "red"))
    return f"{outcome.points:g} / {outcome.task.points:g}", mark, f"{outcome.task.title}{shared}{waits}"


def _details(out: Console, outcome: Outcome, title: str) -> None:
    """Print the learner's numbers of a task under its title: a line if it passed, otherwise its requirements."""
    from course_lib.labs import requirements

    text = outcome.message if outcome.passed else outcome.remark
    in_full(out, ": ".join(filter(None, (f"[bold]{escape(title)}[/]", escape(text)))))
    if not outcome.passed and (rows := requirements.rows(outcome.criteria)):
        table("", requirements.COLUMNS, rows)
    if outcome.hint:
        in_full(out, f"[italic]{'Next' if outcome.code == MISSING_FILE else 'Hint'}: {escape(outcome.hint)}[/]")
        out.print()


def grades(lab: Lab, graded: Sequence[Grade], rejected: Sequence[Rejected] = ()) -> None:
    """Print one row per submission, then errors and the paths of the pages. In a column, a path would be split across lines."""
    from course_lib.grading.reports import attention

    rows = [
        (
            one.student,
            _points(one),
            f"{one.review.points.open:g}" if one.review.points.open else "",
            "; ".join(map(str, one.review.reasons)),
        )
        for one in graded
    ]
    if rows:
        table(lab.title, ("student", "points", "open", "review because"), rows, ("student", "review because"))
    out = _console()
    for one in graded:
        if one.error:
            in_full(out, f"[red]{escape(one.student)}[/]: {escape(one.error)}")
        for line in one.notes:
            in_full(out, f"{escape(one.student)}: {escape(line)}")
    for one in graded:
        if one.changed:
            in_full(out, f"points changed since the last grading: {escape(one.student)}: {attention.spelled(one.changed)}")
    for folder in rejected:
        in_full(out, f"[red]not graded: {escape(folder.shown)}[/]: {escape(folder.reason)}")
    if graded:
        out.print(f"reports: {escape(str(graded[0].report.parent.parent))}/STUDENT/{lab.name}.html", soft_wrap=True)


def _points(one: Grade) -> Text:
    color = "green" if one.score == one.max_score else "yellow" if one.score else "red"
    return Text(f"{one.score:g} / {one.max_score:g}", color)


def class_report(made: ClassFiles) -> None:
    """Print the tables of a class and the paths of its pages. A dash stands for a task whose points are all open."""
    from course_lib.grading.reports import attention
    from course_lib.profiling.layer_tables.table_diff import listed

    report = made.report
    tasks = report.submissions[0].tasks
    rows = [
        (
            one.student,
            *one.tasks,
            f"{one.final:g} / {one.max_score:g}",
            f"-{one.penalty:g}" if one.penalty else "",
            one.speedup or "",
        )
        for one in report.by_need
    ]
    table(report.title, ("student", *(task.id for task in tasks), "final", "late", "speedup"), rows, ("student",))
    if made.places:
        places = [(p.rank or "pending", p.student, p.name, f"{p.points:g}", p.speed or "") for p in made.places]
        of_most = f"points of {sum(task.max_points for task in tasks):g}"
        columns = ("rank", "student", "published as", of_most, "of the reference's speed")
        table("leaderboard (points of written answers are not published)", columns, places, ("student", "published as"))
    if report.missing:
        print(f"handed nothing in: {', '.join(report.missing)}")
    for title, needs in attention.sections(report).items():
        for need in needs:
            in_full(_console(), escape(f"{title.lower()}: {listed(need.who, attention.NAMED)}: {need.why}"))
    for student, (before, now) in made.recharged.items():
        said = f"late penalty {before:g} to {now:g}: points or dates had changed. Generate the feedback again"
        in_full(_console(), f"{escape(student)}: {said}")
    if report.to_review:
        open_points = sum(one.review.points.open for one in report.to_review)
        print(f"{len(report.to_review)} to review, {open_points:g} points open: exported are the points earned so far")
    for path in made.files:
        print(path)


def migrate(findings: Iterable[Finding]) -> None:
    """Each finding in three lines: its place and what happened to the old name, the line itself, and what to write instead."""
    from course_lib.migration import report

    out = _console()
    for one in findings:
        place, source, advice = map(escape, report.block(one))
        marked = re.sub("`[^`]*`", r"[green]\g<0>[/]", advice)
        for line in (f"[bold]{place}[/]", f"    [red]{source}[/]" * bool(source), f"    instead: {marked}"):
            in_full(out, line)
        out.print()


def demo(shown: Mapping[str, Any]) -> None:
    """Print the table of the demo, the points of both submissions, and the paths of the pages."""
    accuracy = {name: f"{100 * share:.1f} %" for name, share in shown["accuracy"].items()}
    engine = (f"engine ({shown['backend']['run']})", accuracy["engine"], _interval(shown["speedup"]))
    table("TensorRT course, demo", ("", "accuracy", "speedup"), [("PyTorch eager", accuracy["eager"], "1"), engine])
    print(f"{shown['ops']} ONNX nodes became {shown['kernels']} kernels of {shown['backend']['build']}")
    print(f"layers     {shown['layers']}")
    for one in shown["submissions"]:
        print(f"{one['student']:9}  {one['points']}")
        if "report" in one:  # the learner's bundle checks without reports
            print(f"report     {one['report']}\nfeedback   {one['feedback']}")
