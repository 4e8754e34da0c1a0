"""The readable output of the `course` command: tables with rich, one function for each subcommand."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from course_lib.cli.installation import INSTALL

if TYPE_CHECKING:
    from course_lib.engines import LayerTable
    from course_lib.grading.batch.grade import Grade
    from course_lib.grading.batch.intake import Rejected
    from course_lib.grading.judge.review import Review
    from course_lib.grading.reports.class_files import ClassFiles
    from course_lib.labs import Examination, Lab, Outcome

_WIDE = 190  # columns from which every part of a layer table has room
_BARS, _BAR = 100, 6  # columns from which there are bars, and the length of the longest one
_ITEM, _INDENT = 4 * " ", 6 * " "  # before what belongs to the line above, and before the rest of a line that is wrapped
_COLORS = {"passed": "green", "partly": "yellow", "open": "yellow", "inconclusive": "yellow"}  # by `Outcome.mark`


def _console() -> Console:
    out = Console(highlight=False)
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
    first, *others = Text.from_markup(markup).wrap(out, out.width - len(_INDENT))
    out.print(first)
    for line in others:
        out.print(Text(_INDENT).append_text(line))


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, one_line: bool = False) -> None:
    """Print one table. Cells are plain values, or rich's `Text` for colored ones; with `one_line` long cells end in dots."""
    drawn = Table(title=title, title_justify="left", title_style="bold", header_style="bold cyan", box=box.SIMPLE_HEAD)
    for column in columns:
        drawn.add_column(column, overflow="ellipsis" if one_line else "fold", no_wrap=one_line)
    for row in rows:
        drawn.add_row(*(value if isinstance(value, Text) else escape(str(value)) for value in row))
    _console().print(drawn)


def doctor(found: Mapping[str, Any]) -> None:
    """The machine and its backends."""
    print(found["ready"])
    print(f"course {found['course']}, Python {found['python']}, GPU: {found['gpu'] or 'none'}")
    print(f"engines are built with {found['builds_with'] or 'nothing'} and run with {found['runs_with'] or 'nothing'}")
    if found["missing"]:
        print(f"missing packages: {', '.join(found['missing'])}; {INSTALL}")
    print(f"sandbox for grading: {found['sandbox']}")
    rows = [(b["name"], b["version"] or "-", _can(b["no_build"]), _can(b["no_run"])) for b in found["backends"]]
    table("Backends", ("backend", "version", "builds here", "runs here"), rows)
    if any(backend["no_build"] or backend["no_run"] for backend in found["backends"]):
        print('why not, for each "no" above:')
    for backend in found["backends"]:
        reasons = dict.fromkeys(filter(None, (backend["no_build"], backend["no_run"])))
        if reasons:
            in_full(_console(), escape(f"{backend['name']}: {'; '.join(reasons)}"))


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
    columns: tuple[str, ...] = ("kernel", "onnx", "operators", "bytes", "reads", "weights", "writes", "shape", "format")
    if width < _WIDE:
        columns = ("kernel", "operators", "bytes", "types", "shape")
        rows = _narrow(rows, width)
    shown = [column for column in columns if any(row[column] for row in rows)]
    table(title, shown, [[row[c] for c in shown] for row in rows], one_line=True)
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


def _narrow(rows: list[dict[str, str]], width: int) -> list[dict[str, str]]:
    """Rows that fit: types and shapes are whole, and names of kernels and operators share what is left."""
    left = width - 17 - sum(max(len(row[column]) for row in rows) for column in ("bytes", "types", "shape"))
    kernel = max(left - max(len(row["operators"]) for row in rows), left // 2)
    operators = left - min(kernel, max(len(row["kernel"]) for row in rows))
    return [{**row, "kernel": _cut(row["kernel"], kernel), "operators": _cut(row["operators"], operators)} for row in rows]


def size(count: int) -> str:
    """A number of bytes with three digits, such as "2.49 MB"."""
    return f"{count / 1e6:.3g} MB" if count >= 999_500 else f"{count / 1e3:.3g} KB" if count >= 1000 else f"{count} B"


def _cut(text: str, most: int) -> str:
    most = max(most, 8)
    return text if len(text) <= most else text[: most - 1] + "…"


def bench(measured: Mapping[str, Any]) -> None:
    """Shapes of the inputs, kernels if the backend reports them, latencies, and speedups over the first subject."""
    inputs = ", ".join(f"{name}: {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in measured["shapes"].items())
    rows = [
        (
            *(name, measured["kernels"].get(name) or "-", f"{median:.3f}", f"{measured['p99_ms'][name]:.3f}"),
            _interval(measured["speedup"].get(name)),
        )
        for name, median in measured["median_ms"].items()
    ]
    table(
        f"{inputs}; {measured['rounds']} rounds in {measured['seconds']} s",
        ("engine", "kernels", "median ms", "p99 ms", "speedup"),
        rows,
    )


def _interval(values: Mapping[str, float] | None) -> str:
    return f"{values['median']:.2f}x [{values['low']:.2f}-{values['high']:.2f}]" if values else "1"


def outcomes(lab: Lab, examined: Examination) -> None:
    """Each task with what was found and a hint. A reason that several tasks share is printed with the first of them.

    If one task was examined alone, the first and the last line say so: its points are not those of the lab.
    """
    from course_lib.cli.checked_folder import written_points
    from course_lib.labs.framework.criteria import grouped

    out = _console()
    still = f", {examined.open_points:g} open until it is graded" if examined.open_points else ""
    alone = len(examined.outcomes) < len(lab.tasks)
    title = lab.title + (f", only the task {examined.outcomes[0].task.id}" if alone else "")
    written = 0.0 if alone else written_points(lab)
    more = f", and {written:g} for the written answer, read by the instructor" if written else ""
    in_full(out, f"[bold]{escape(title)}[/]: {examined.points:g} of {examined.max_points:g} points{still}{more}")
    for first, *others in grouped(examined.outcomes):
        for line in _findings(first):
            in_full(out, line)
        if first.hint:
            in_full(out, f"{_ITEM}[italic]Hint: {escape(first.hint)}[/]")
        for other in others:
            in_full(out, f'{_earned(other)}: for the same reason as "{escape(first.task.title)}"')
    if alone:
        in_full(
            out,
            f"This is not the result of the lab, which has {len(lab.tasks)} tasks. Without --task, all of them are checked.",
        )


def _findings(outcome: Outcome) -> Iterator[str]:
    """What was found, each value once: the message, or, if nothing is missed, each value with what all points need."""
    from course_lib.labs.framework.criteria import ALL

    if not (outcome.passed and outcome.criteria):
        yield f"{_earned(outcome)}: {escape(outcome.message)}"
        return
    yield _earned(outcome) + (": right so far, the grader compares it with the reference" if outcome.open else "")
    strictest = {one.name: one for one in sorted(outcome.criteria, key=lambda one: one.needed_for == ALL) if one.met}
    for one in strictest.values():
        yield escape(f"{_ITEM}- {one.name}" + (f": {one.found}, needed: {one.bound}" if one.has_value else ""))


def _earned(outcome: Outcome) -> str:
    """Points, mark and title of a task."""
    color = _COLORS.get(outcome.mark, "red")
    return f"[{color}]{outcome.points:g}/{outcome.task.points:g} {outcome.mark}[/] {escape(outcome.task.title)}"


def grades(lab: Lab, graded: Sequence[Grade], rejected: Sequence[Rejected] = ()) -> None:
    """Print one row per submission, then errors and the paths of the pages. In a column, a path would be split across lines."""
    from course_lib.grading.reports import attention

    rows = [
        (one.student, _points(one), f"{one.review.points.open:g}" if one.review.points.open else "", _reasons(one.review))
        for one in graded
    ]
    if rows:
        table(lab.title, ("student", "points", "open", "review because"), rows)
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


def _reasons(review: Review) -> str:
    return "; ".join(map(str, review.reasons))


def _points(one: Grade) -> Text:
    color = "green" if one.score == one.max_score else "yellow" if one.score else "red"
    return Text(f"{one.score:g} / {one.max_score:g}", color)


def class_report(made: ClassFiles) -> None:
    """Print the tables of a class and the paths of its pages."""
    from course_lib.grading.reports import attention

    report = made.report
    tasks = report.submissions[0].tasks
    rows = [
        (
            one.student,
            *(f"{task.points:g} {task.tier}" for task in one.tasks),
            f"{one.final:g} / {one.max_score:g}",
            f"-{one.penalty:g}" if one.penalty else "",
            one.speedup or "",
            _reasons(one.review),
        )
        for one in report.submissions
    ]
    table(report.title, ("student", *(task.id for task in tasks), "final", "late", "speedup", "review because"), rows)
    difficulty = report.difficulty()
    tiers = [tier for tier in next(iter(difficulty.values())) if any(shares[tier] for shares in difficulty.values())]
    shares = [(title, *(f"{100 * found[tier]:.0f} %" for tier in tiers)) for title, found in difficulty.items()]
    table("share of the class", ("task", *tiers), shares)
    if made.places:
        places = [(p.rank, p.student, p.name, f"{p.points:g}", p.speed or "") for p in made.places]
        table("leaderboard", ("rank", "student", "published as", "points", "of the reference's speed"), places)
    if report.missing:
        print(f"handed nothing in: {', '.join(report.missing)}")
    for said, needs in (
        ("not graded", attention.not_graded(report)),
        ("graded in part", attention.in_part(report)),
        ("note", attention.noted(report)),
        ("to review", attention.unlisted(report)),
        ("to review", attention.similar(report)),
        ("to review", attention.shared_instances(report)),
        ("points changed since the last grading", attention.changed(report)),
    ):
        for need in needs:
            in_full(_console(), escape(f"{said}: {need.named}: {need.why}"))
    for student, (before, now) in made.recharged.items():
        said = f"late penalty {before:g} to {now:g}: points or dates had changed. Generate the feedback again"
        in_full(_console(), f"{escape(student)}: {said}")
    if report.to_review:
        open_points = sum(one.review.points.open for one in report.to_review)
        print(f"{len(report.to_review)} to review, {open_points:g} points open: exported are the points earned so far")
    for path in made.files:
        print(path)


def demo(shown: Mapping[str, Any]) -> None:
    """Print the table of the demo and the paths of its pages."""
    speed, accuracy = shown["speedup"], shown["accuracy"]
    rows = [
        ("PyTorch eager", f"{100 * accuracy['eager']:.1f} %", "1", ""),
        (
            f"engine ({shown['backend']['run']})",
            f"{100 * accuracy['engine']:.1f} %",
            _interval(speed),
            f"{shown['ops']} ONNX nodes, {shown['kernels']} kernels ({shown['backend']['build']})",
        ),
    ]
    rows += [
        (
            f"submission: {one['student']}",
            "",
            "",
            f"{one['score']:g} of {one['max_score']:g} points, {one['review']['points']['open']:g} open",
        )
        for one in shown["submissions"]
    ]
    table("TensorRT course, demo", ("", "accuracy", "speedup", "result"), rows)
    print(f"layers   {shown['layers']}")
    for one in shown["submissions"]:
        if "report" in one:  # the learner's bundle checks without reports
            print(f"report   {one['report']}\nfeedback {one['feedback']}")
