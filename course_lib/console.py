"""What the `course` command prints for people: tables with rich, one function a subcommand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from course_lib.installation import INSTALL

if TYPE_CHECKING:
    from course_lib.engines import Plan
    from course_lib.grading.class_files import ClassFiles
    from course_lib.grading.classroom import Grade
    from course_lib.labs import Examination, Lab

_COLOURS = {"full": "green", "partial": "yellow", "inconclusive": "yellow"}


def _console() -> Console:
    out = Console(highlight=False)
    if not out.is_terminal:
        out.width = 200  # a file or a pipe has no width, and a cut table is no use there
    return out


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print one table."""
    drawn = Table(title=title, title_justify="left", title_style="bold", header_style="bold")
    for column in columns:
        drawn.add_column(column, overflow="fold")
    for row in rows:
        drawn.add_row(*(escape(str(value)) for value in row))
    _console().print(drawn)


def doctor(found: Mapping[str, Any]) -> None:
    """The machine and its backends."""
    print(f"course {found['course']}, Python {found['python']}, GPU: {found['gpu'] or 'none'}")
    print(f"engines are built with {found['builds_with'] or 'nothing'} and run with {found['runs_with'] or 'nothing'}")
    if found["missing"]:
        print(f"missing packages: {', '.join(found['missing'])}; {INSTALL}")
    print(f"sandbox for grading: {found['sandbox']}")
    rows = [(b["name"], b["version"] or "-", b["no_build"] or "yes", b["no_run"] or "yes") for b in found["backends"]]
    table("backends", ("backend", "version", "builds here", "runs here"), rows)


def layers(plan: Plan) -> None:
    """The layer table of a plan."""
    rows = plan.layers.rows()
    if not rows:
        print(f"{plan.backend} does not tell which kernels it runs; build with tensorrt or tensorrt_rtx to see them")
        return
    columns = ("kernel", "kind", "onnx", "operators", "reads", "weights", "writes", "shape", "format")
    shown = [column for column in columns if any(row[column] for row in rows)]
    table(f"{plan.backend} {plan.version} for {', '.join(plan.targets)}", shown, [[row[c] for c in shown] for row in rows])
    counts = ", ".join(f"{n} compute with {dtype}" for dtype, n in plan.layers.dtype_counts().most_common())
    print(f"{len(plan.layers.operators) or '?'} ONNX nodes became {len(rows)} kernels; {counts}")
    for note in plan.notes:
        print(f"note: {note}")


def bench(measured: Mapping[str, Any]) -> None:
    """Latencies, and speedups over the first subject."""
    rows = [
        (name, f"{median:.3f}", f"{measured['p99_ms'][name]:.3f}", _interval(measured["speedup"].get(name)))
        for name, median in measured["median_ms"].items()
    ]
    table(f"{measured['rounds']} rounds in {measured['seconds']} s", ("engine", "median ms", "p99 ms", "speedup"), rows)


def _interval(values: Mapping[str, float] | None) -> str:
    return f"{values['median']:.2f}x [{values['low']:.2f}-{values['high']:.2f}]" if values else "1"


def outcomes(lab: Lab, examined: Examination) -> None:
    """Each task with what was found and a hint; a reason that several tasks share is printed once, after the last of them."""
    from course_lib.labs.base import grouped

    out = _console()
    out.print(f"[bold]{escape(lab.title)}[/]: {examined.points:g} of {examined.max_points:g} points")
    for group in grouped(examined.outcomes):
        one, colour = group[-1], _COLOURS.get(group[-1].tier, "red")
        for task in (each.task for each in group):
            said = f" {escape(one.message)}" if task == one.task else ""
            out.print(f"[{colour}]{one.points:g}/{task.points:g} {one.mark}[/] {escape(task.title)}:{said}")
        for criterion in one.criteria:
            out.print(f"      {escape(str(criterion))}")
        if one.hint:
            out.print(f"      [italic]Hint: {escape(one.hint)}[/]")


def grades(lab: Lab, graded: Sequence[Grade]) -> None:
    """One row a hand-in."""
    rows = [(one.student, f"{one.score:g} / {one.max_score:g}", f"{one.waiting:g}", one.error or one.report) for one in graded]
    table(lab.title, ("student", "points", "by hand", "report"), rows)


def class_report(made: ClassFiles) -> None:
    """The tables of a class, and where its pages are."""
    report = made.report
    tasks = report.hand_ins[0].tasks
    rows = [
        (
            one.student,
            *(f"{task.points:g} {task.tier}" for task in one.tasks),
            f"{one.final:g} / {one.max_score:g}",
            f"-{one.penalty:g}" if one.penalty else "",
            one.speedup or "",
            "; ".join(one.waiting),
        )
        for one in report.hand_ins
    ]
    table(report.title, ("student", *(task.id for task in tasks), "final", "late", "speedup", "needs you because"), rows)
    difficulty = report.difficulty()
    tiers = [tier for tier in next(iter(difficulty.values())) if any(shares[tier] for shares in difficulty.values())]
    shares = [(title, *(f"{100 * found[tier]:.0f} %" for tier in tiers)) for title, found in difficulty.items()]
    table("share of the class", ("task", *tiers), shares)
    if report.alike:
        table(
            "identical files",
            ("file", "students", "how to read it"),
            [(a.file, ", ".join(a.students), a.reading) for a in report.alike],
        )
    if made.places:
        places = [(p.rank, p.student, p.name, f"{p.points:g}", p.speed or "") for p in made.places]
        table("leaderboard", ("rank", "student", "published as", "points", "of the reference's speed"), places)
    for said, names in (("not graded yet", report.ungraded), ("handed nothing in", report.missing)):
        if names:
            print(f"{said}: {', '.join(names)}")
    for path in made.files:
        print(path)


def demo(shown: Mapping[str, Any]) -> None:
    """The demo's one table and where its pages are."""
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
        (f"hand-in: {one['student']}", "", "", f"{one['score']:g} of {one['max_score']:g} points") for one in shown["hand_ins"]
    ]
    table("TensorRT course, demo", ("", "accuracy", "speedup", "result"), rows)
    print(f"layers   {shown['layers']}")
    for one in shown["hand_ins"]:
        print(f"report   {one['report']}\nfeedback {one['feedback']}")
