"""The notebook that an instructor reads: run in the sandbox, without active content, and with the report at its beginning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output
from nbgrader.preprocessors import LimitOutput
from traitlets.config import Config

from course_lib.grading.isolation.kernel import FilesOfRun, SandboxedExecute
from course_lib.labs import Lab

# What a browser would run if a learner's output carried it into the instructor's formgrader.
_ACTIVE = (
    "text/html", "text/markdown", "text/latex", "image/svg+xml", "application/javascript",
    "application/vnd.jupyter.widget-view+json",
)  # fmt: skip
_COLOR = re.compile("\x1b(\\[[0-9;:]*m?)?")
_REPORT = "# your report"  # the source of the cell that shows it


def executed(path: Path, released: Path, lab: Lab, settings: Mapping[str, Any]) -> tuple[NotebookNode, FilesOfRun]:
    """A notebook after its run, safe to show, and the files that the run left.

    Cells of tasks have no outputs: points come from the submitted files.

    Args:
        path: the notebook, in the folder of its submission, to which the run adds files that were not submitted.
        released: the notebook that learners get.
        settings: of `SandboxedExecute`, such as ``run`` and ``trusted``.
    """
    resources: dict[str, Any] = {"metadata": {"path": str(path.parent)}, "nbgrader": {"assignment": lab.name}}
    execute = SandboxedExecute(config=Config({"SandboxedExecute": dict(settings)}))
    notebook, resources = execute.preprocess(nbformat.read(path, as_version=4), resources)
    without_active_content(notebook, _released(released))
    notebook, _ = LimitOutput().preprocess(notebook, {})
    tasks = {task.id for task in lab.tasks}
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade_id") in tasks:
            cell.outputs = []
    return notebook, resources.get("from_notebook", FilesOfRun())


def unanswered(notebook: NotebookNode, released: Path) -> list[str]:
    """Ids of the cells for a solution that are empty or as they were released."""
    known = _released(released)
    ids = ((cell.metadata.get("nbgrader", {}), cell.source.strip()) for cell in notebook.cells)
    return [
        marks["grade_id"]
        for marks, source in ids
        if marks.get("solution") and source in ("", known.get(marks["grade_id"], "").strip())
    ]


def without_active_content(notebook: NotebookNode, released: Mapping[str, str]) -> None:
    """Remove what would run in an instructor's browser from a learner's outputs, markdown and raw cells.

    Args:
        notebook: changed in place.
        released: released text by grade id. A text that is empty or still the released one stays the released one.
    """
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    for cell in notebook.cells:
        cell.pop("attachments", None)
        if cell.cell_type == "markdown":
            text = released.get(cell.metadata.get("nbgrader", {}).get("grade_id"), "")
            cell.source = text if cell.source.strip() in ("", text.strip()) else _as_text(cell.source)
        if cell.cell_type == "raw":
            cell.source = ""
        for output in cell.get("outputs", []):
            if "metadata" in output:
                output["metadata"] = {}  # a picture's size becomes an attribute of its tag as it stands
            for kind in _ACTIVE:
                (output.get("data") or {}).pop(kind, None)
            _drop_colors(output)


def show_report(notebook: NotebookNode, html: str) -> None:
    """Put the report where a reader begins, in the place of an earlier one."""
    if notebook.cells and notebook.cells[0].source == _REPORT:
        del notebook.cells[0]
    shown = new_output("display_data", data={"text/html": html, "text/plain": "The report is shown in a browser."})
    notebook.cells.insert(0, new_code_cell(_REPORT, outputs=[shown]))


def _released(path: Path) -> dict[str, str]:
    """The text of the cells with a grade id in the notebook that learners get."""
    cells = nbformat.read(path, as_version=4).cells
    return {cell.metadata["nbgrader"]["grade_id"]: cell.source for cell in cells if "nbgrader" in cell.metadata}


def _drop_colors(output: NotebookNode) -> None:
    """Remove a terminal's codes from all text. The renderer's time grows with the square of their number."""
    for place, kind in ((output, "text"), (output.get("data") or {}, "text/plain"), (output, "evalue")):
        if isinstance(place.get(kind), str):
            place[kind] = _COLOR.sub("", place[kind])
    if "traceback" in output:
        output["traceback"] = [_COLOR.sub("", line) for line in output["traceback"]]


def _as_text(markdown: str) -> str:
    """Markdown that shows its own source: no tags, no addresses, and nothing that takes a renderer without bound."""
    fence = "`" * (3 + max((len(run) for run in re.findall("`+", markdown)), default=0))
    return f"{fence}text\n{markdown}\n{fence}"
