"""Old TensorRT code: `course migrate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from course_lib.cli.commands.options import AsJson, show


def migrate(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...", exists=True, help="programs, notebooks, scripts, READMEs, folders", show_default=False
        ),
    ],
    to: Annotated[
        str,
        typer.Option(help="a TensorRT version, such as 8.6, 10.3, 11.4 or rtx; a version without a table uses the nearest one"),
    ] = "11.4",
    output: Annotated[
        str,
        typer.Option("--format", help="table, lines, json or github; default: table, lines in a pipe", show_default=False),
    ] = "",
    exclude: Annotated[
        list[str] | None, typer.Option(help="leave out what matches in folders: third_party, 'docs/*.md'; may be repeated")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find names that TensorRT removed, deprecated or never had.

    Formats: table is for reading, with replacements. lines has one finding per line, "path:line: severity name: advice", for editors
    and grep. json is one document. github is annotations for a workflow of GitHub Actions.

    The comment "# migrate: ignore" suppresses all findings of its line, "# migrate: ignore[BuilderFlag.FP16]" only that name.

    Status 1 when something is removed, unknown or ignored, 2 when a file cannot be read or no file was, 0 otherwise.
    """
    from course_lib.cli import console
    from course_lib.migration import report, scan, scanner

    output = "json" if as_json else output or ("table" if sys.stdout.isatty() else "lines")
    if output not in report.FORMATS:
        raise typer.BadParameter(f"no format {output!r}: there are {', '.join(report.FORMATS)}")
    try:
        scanner.target_version(to)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    found = scan(paths, to, exclude or ())
    if output == "json":
        show(True, report.document(found))
    elif output == "table":
        console.migrate(found.findings)
        print("\n".join(report.summary(found)))
    else:
        written = report.github(found) if output == "github" else report.lines(found)
        print("\n".join([*written, *report.summary(found)]))
    if found.fails or found.unread or not found.files:
        raise typer.Exit(1 if found.fails else 2)
