"""The `course` command, which combines the groups of commands. An error is one line and a non-zero status."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from course_lib import __version__
from course_lib.cli.commands import course, engines, grading, migration
from course_lib.errors import CourseError, ReferenceAbsent


def _plain_help(base: Any) -> Any:
    """The class of a command whose `--help` says what a switch does, not that it is a ``<bool>``, in lines as long as the terminal."""

    class PlainHelp(base):
        def __init__(self, *args: Any, **options: Any) -> None:
            text = options.pop("help", None) or ""  # rich would keep the lines of the source
            super().__init__(*args, help=re.sub(r"(?<!\n)\n(?!\n)", " ", text), **options)

        def get_params(self, ctx: Any) -> list[Any]:
            params: list[Any] = super().get_params(ctx)
            for param in params:
                param.metavar = "" if getattr(param, "is_flag", False) else param.metavar
                if param.name == "help":
                    param.help = "show this message and exit"
            return params

    return PlainHelp


app = typer.Typer(
    cls=_plain_help(TyperGroup),
    help="The TensorRT course: build engines, measure them, check and grade labs.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
_COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {  # in the order of `course --help`
    "Learn": (course.start, course.doctor, course.demo, course.lab, grading.check, course.progress),
    "Build and measure": (engines.build, engines.layers, engines.bench, engines.profile, migration.migrate),
    "Teach": (course.release, grading.grade, grading.report, grading.verify, course.new_lab),
}
for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        app.command(cls=_plain_help(TyperCommand), rich_help_panel=_panel)(_command)

_INTERRUPTED = 130  # what typer returns after Ctrl-C: 128 and the number of SIGINT, as in shells
# click's class for a wrong command line, which typer bundles under names that change with its version
_UsageError: Any = typer.BadParameter.__mro__[1]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="print the version and exit", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks")] = False,
) -> None:
    os.environ["COURSE_DEBUG"] = "1" if debug else os.environ.get("COURSE_DEBUG", "")
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Entry point. Every error is one line; ``--debug`` adds the traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a mark such as a tick, where the output is not UTF-8
    try:
        status = app(standalone_mode=False)
        if status == _INTERRUPTED:
            print("course: interrupted; the same command begins again, and `course grade` continues", file=sys.stderr)
        sys.exit(status)
    except _UsageError as error:
        message = error.format_message().rstrip(".")
        _leave(error, f"{message}{' ' if message.endswith('?') else '; '}{_where_to_look(error.ctx)}", status=2)
    except (CourseError, ReferenceAbsent) as error:
        _leave(error, str(error))
    except ModuleNotFoundError as error:
        from course_lib.cli.installation import advice

        _leave(error, advice(error))
    except KeyboardInterrupt as error:  # before the command began
        _leave(error, "interrupted", status=_INTERRUPTED)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os._exit(1)
    except OSError as error:
        _leave(error, f"{error.filename or 'a file'}: {error.strerror or error}")
    except Exception as error:  # a bug of ours is still no reason for a page of text
        _leave(error, f"internal error, please report it: {type(error).__name__}: {error}")


def _where_to_look(context: Any) -> str:
    """The help of the command whose arguments are wrong; of the whole if no command was recognized."""
    name = context.info_name if context and context.parent else ""
    if not name:  # an option without its value is found before the command has a context
        group: Any = typer.main.get_command(app)
        name = next((word for word in sys.argv[1:] if word in group.commands), "")
    return f"`course {name} --help` lists its arguments and options" if name else "`course --help` lists the commands"


def _leave(error: BaseException, text: str, status: int = 1) -> None:
    if os.environ.get("COURSE_DEBUG"):
        raise error
    from course_lib.cli.console import complain

    complain(text)
    sys.exit(status)


if __name__ == "__main__":
    main()
