"""Cells of a lab that are not solved yet show a card in a notebook, as checks do. They are still errors: running all cells stops there."""

from __future__ import annotations

import os
import re
from types import TracebackType
from typing import Any

from course_lib._util.html import ORANGE, check_card
from course_lib._util.progress_bar import in_notebook

_UNSOLVED = re.compile(r"(.+) (?:is|are) not solved yet")  # written by `ClearTasks`


def show_unsolved_as_cards() -> None:
    """Install it in this kernel. Grading and "Validate" keep their errors, because nbgrader reads them."""
    if not in_notebook() or "NBGRADER_EXECUTION" in os.environ:
        return
    from IPython import get_ipython

    shell = get_ipython()
    if NotImplementedError not in shell.custom_exceptions:
        shell.set_custom_exc((NotImplementedError, NameError), _Unsolved())


def _of_the_cell(trace: TracebackType | None) -> bool:
    """Whether the error is in the cell's own lines and not in a function that it calls, where only a traceback says which line."""
    while trace and trace.tb_next:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_name == "<module>"


class _Unsolved:
    """Handles the errors of unsolved cells; `tasks` are those of the last such cell that ran."""

    def __init__(self) -> None:
        self.tasks = ""

    def __call__(
        self,
        shell: Any,
        kind: type[BaseException],
        error: BaseException,
        trace: TracebackType,
        tb_offset: int | None = None,
    ) -> None:
        from IPython.display import display

        if isinstance(error, NotImplementedError) and (unsolved := _UNSOLVED.fullmatch(str(error))):
            self.tasks = title = unsolved[1]
            mark = "not solved yet"
            message = "Replace the line `raise NotImplementedError(...)` with your code, and run this cell again."
        elif type(error) is NameError and error.name and self.tasks and _of_the_cell(trace):
            title, mark = error.name, "not defined"
            message = (
                f"If the cell of {self.tasks} defines `{title}`, solve and run that cell first. Otherwise check the spelling."
            )
        else:
            shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
            return
        card = check_card(title, mark, ORANGE, message)
        display({"text/plain": f"{title}: {mark}. {message}", "text/html": card}, raw=True)
