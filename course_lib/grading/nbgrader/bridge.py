"""The bridge to nbgrader: its gradebook, feedback and formgrader, with points from the judge instead of from cells."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output
from nbgrader.api import Gradebook
from nbgrader.converters import GenerateAssignment
from nbgrader.preprocessors import (
    AssignLatePenalties,
    CheckCellMetadata,
    ClearSolutions,
    GetGrades,
    LimitOutput,
    NbGraderPreprocessor,
    SaveAutoGrades,
)
from traitlets import Bool, Dict, List, Unicode
from traitlets.config import Config
from typing_extensions import override

from course_lib import labs
from course_lib.errors import CourseError
from course_lib.grading.batch import late
from course_lib.grading.integrity import signature
from course_lib.grading.isolation.kernel import FilesOfRun, SandboxedExecute
from course_lib.grading.judge import artifacts
from course_lib.grading.judge.judging import judge
from course_lib.grading.judge.review import Cell
from course_lib.grading.judge.verdict import Verdict, verdict_file
from course_lib.grading.nbgrader import gradebook
from course_lib.grading.reports import report
from course_lib.labs import Examiner, Lab

if TYPE_CHECKING:
    from nbgrader.apps.api import NbGraderAPI

    from course_lib.grading.nbgrader.log import NbgraderLog

# What a browser would run if a learner's output carried it into the instructor's formgrader.
_ACTIVE = (
    "text/html", "text/markdown", "text/latex", "image/svg+xml", "application/javascript",
    "application/vnd.jupyter.widget-view+json",
)  # fmt: skip
_COLOR = re.compile("\x1b(\\[[0-9;:]*m?)?")
_TASK = re.compile(r"^#+ (Task \d+)\b", re.M)
_REPORT = "# your report"  # the source of the cell that shows it
_SETTINGS = ("SandboxedExecute", "GradeArtifacts", "LatePenalty")  # what an instructor may set


OWN_SETTINGS = (
    "nbgrader_config_local.py"  # in the course's folder, not tracked: an instructor's settings, such as late penalties
)


def configure(config: Config, *, root: Path, work: str = "classroom", trusted: bool = False) -> None:
    """Point nbgrader at the course, with the settings in `OWN_SETTINGS`; this is all that `nbgrader_config.py` does.

    Args:
        root: the course's folder, which holds ``solutions/`` and ``labs/``.
        work: folder for submissions, grades and feedback, relative to `root`.
        trusted: run without the sandbox; for the course's own files only.
    """
    _configure(config, root=root, work=work, trusted=trusted)
    if (root / OWN_SETTINGS).is_file():
        config.merge(_loaded(root, OWN_SETTINGS))


def _configure(config: Config, *, root: Path, work: str = "classroom", trusted: bool = False) -> None:
    """`configure` without the instructor's own settings."""
    _put_this_environment_on_path()
    (root / work).mkdir(parents=True, exist_ok=True)  # formgrader opens the gradebook before anything was handed in
    course = config.CourseDirectory
    course.root = str(root)
    course.course_id = "tensorrt"
    course.source_directory, course.release_directory = "solutions", "labs"
    for kind in ("submitted", "autograded", "feedback"):
        setattr(course, f"{kind}_directory", f"{work}/{kind}")
    course.db_url = f"sqlite:///{root / work / 'gradebook.db'}"
    course.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__"]
    config.GenerateAssignment.preprocessors = [
        ClearTasks if step is ClearSolutions else step for step in GenerateAssignment.preprocessors.default()
    ]
    config.Autograde.pre_convert_hook = drop_special_files
    config.Autograde.autograde_preprocessors = [
        SandboxedExecute, StripActiveContent, LimitOutput, WithholdCellPoints, SaveAutoGrades, GradeArtifacts,
        AssignLatePenalties, CheckCellMetadata,
    ]  # fmt: skip
    config.Execute.timeout = config.SandboxedExecute.timeout = 240  # the first is also that of "Validate", where it is 30 s
    config.SandboxedExecute.trusted = config.GradeArtifacts.trusted = trusted
    config.GenerateFeedback.preprocessors = [GetGrades, CurrentReport, CSSHTMLHeaderPreprocessor]
    config.GradeArtifacts.work = config.CurrentReport.work = str(root / work)
    late.configure(config)


def api(
    root: Path,
    work: str,
    *,
    trusted: bool,
    examiner: Mapping[str, Any],
    settings: Mapping[str, Mapping[str, Any]],
    log: NbgraderLog,
) -> NbGraderAPI:
    """nbgrader's API for a classroom, without output on the terminal.

    Args:
        root, work, trusted: as in `configure`.
        examiner: fields of `course_lib.labs.Examiner` that differ from the default.
        settings: other settings that differ, by class and trait.
        log: takes nbgrader's messages.
    """
    from nbgrader.apps.api import NbGraderAPI
    from nbgrader.coursedir import CourseDirectory

    warnings.filterwarnings("ignore", message="Object of type .* not in session", module="nbgrader")
    config: Any = Config()
    configure(config, root=root, work=work, trusted=trusted)
    config.GradeArtifacts.examiner = dict(examiner)
    config.CourseDirectory.release_directory = f"{work}/release"  # labs/ changes with `course release` only
    for name, traits in settings.items():
        config[name].update(traits)
    logger = logging.Logger("nbgrader", logging.INFO)
    logger.addHandler(log)
    made = NbGraderAPI(CourseDirectory(config=config), config=config)
    made.log = logger
    return made


def own_settings(root: Path) -> dict[str, dict[str, Any]]:
    """What an instructor has set for the classes that grade, in either file, by class and trait; plain values only.

    Raises:
        CourseError: a file cannot be run.
    """
    if not (root / "nbgrader_config.py").is_file():
        return {}
    loaded = _loaded(root, "nbgrader_config.py")
    by_itself: Any = Config()
    _configure(by_itself, root=root)
    return {
        name: {
            trait: value for trait, value in loaded[name].items() if value != by_itself[name].get(trait) and _is_plain(value)
        }
        for name in _SETTINGS
        if name in loaded
    }


def _loaded(root: Path, name: str) -> Config:
    """The settings in a Python file.

    Raises:
        CourseError: it cannot be run.
    """
    from traitlets.config.loader import PyFileConfigLoader

    try:
        return PyFileConfigLoader(name, path=str(root)).load_config()
    except CourseError:  # of the other file, which this one loads
        raise
    except Exception as error:  # whatever a Python file may raise
        raise CourseError(f"{root / name} cannot be used ({type(error).__name__}: {error})") from None


def _is_plain(value: object) -> bool:
    return isinstance(value, (str, int, float, bool, type(None)))


def _put_this_environment_on_path() -> None:
    """nbgrader starts `alembic` by name to make a gradebook, which fails where `course` was started by its full path."""
    programs = str(Path(sys.executable).parent)
    if programs not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join((programs, os.environ.get("PATH", "")))


def drop_special_files(assignment: str, student: str, notebooks: list[str]) -> None:
    """nbgrader copies submissions in a way that follows links: whatever is not a plain file goes before that.

    Raises:
        SystemExit: it could not be done. nbgrader only logs other exceptions of a hook and would go on.
    """
    try:
        for folder in {Path(notebook).parent for notebook in notebooks}:
            artifacts.drop_special_files(folder)
    except OSError as error:
        raise SystemExit(f"a submission of {assignment} cannot be made safe to copy: {error}") from None


class ClearTasks(ClearSolutions):
    """Replaces each solution by an error that names the tasks of the last text above the cell that has such headings."""

    @override
    def preprocess_cell(self, cell: NotebookNode, resources: dict[str, Any], index: int) -> tuple[NotebookNode, dict[str, Any]]:
        if cell.cell_type == "markdown" and (tasks := _TASK.findall(cell.source)):
            resources["unsolved"] = f"{' and '.join(tasks)} {'is' if len(tasks) == 1 else 'are'} not solved yet"
        unsolved = resources.get("unsolved", "This task is not solved yet")
        self.code_stub = {"python": f'raise NotImplementedError("{unsolved}")  # your code here'}
        return super().preprocess_cell(cell, resources, index)


class StripActiveContent(NbGraderPreprocessor):
    """Removes what would run in an instructor's browser from a learner's outputs, markdown and raw cells.

    Only text that is empty or still what was released stays the released text, to the letter. By its checksum nbgrader knows that
    nothing was answered, and does not ask an instructor to grade it.
    """

    @override
    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        known = resources["nbgrader"]
        with Gradebook(known["db_url"]) as opened:
            notebook = opened.find_notebook(known["notebook"], known["assignment"])
            self._released = {cell.name: (cell.source, cell.checksum) for cell in notebook.source_cells}
        nb.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
        return super().preprocess(nb, resources)

    @override
    def preprocess_cell(self, cell: NotebookNode, resources: dict[str, Any], index: int) -> tuple[NotebookNode, dict[str, Any]]:
        known = cell.metadata.get("nbgrader", {})
        cell.pop("attachments", None)
        if (
            cell.cell_type == "markdown"
        ):  # whatever its metadata say: "locked" is the learner's word, and nbgrader may not act on it
            released, checksum = self._released.get(known.get("grade_id"), ("", ""))
            if cell.source.strip() in ("", released.strip()):
                cell.source, known["checksum"] = released, checksum
            else:
                cell.source = _as_text(cell.source)
        if cell.cell_type == "raw":
            cell.source = ""
        for output in cell.get("outputs", []):
            if "metadata" in output:
                output["metadata"] = {}  # a picture's size becomes an attribute of its tag as it stands
            for kind in _ACTIVE:
                (output.get("data") or {}).pop(kind, None)
            _drop_colors(output)
        return cell, resources


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


class WithholdCellPoints(NbGraderPreprocessor):
    """Makes every grade cell of a lab's tasks fail, so that nothing a kernel printed is worth a point.

    `GradeArtifacts` gives the points afterwards; if it does not get that far, there are none.
    """

    @override
    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        lab = _lab(resources)
        for cell in nb.cells:
            known = cell.metadata.get("nbgrader", {})
            if cell.cell_type == "code" and known.get("grade") and (lab is None or known.get("grade_id") in _ids(lab)):
                said = "points come from the submitted engine, not from this cell"
                cell.outputs = [new_output("error", ename="Pending", evalue=said, traceback=[f"Pending: {said}"])]
        return nb, resources


class GradeArtifacts(NbGraderPreprocessor):
    """Judges the artifacts and writes the points of each task into the gradebook, whether or not its cell still exists."""

    trusted = Bool(False, help="judge without the sandbox; for the course's own files only").tag(config=True)
    work = Unicode("classroom", help="folder for verdicts and reports").tag(config=True)
    examiner = Dict({}, help="fields of course_lib.labs.Examiner, such as builder and runner").tag(config=True)
    sign = Bool(True, help="sign verdicts with the classroom's key").tag(config=True)
    notes = List([], help="lines on the files of the submission, for the verdict").tag(config=True)
    batch = Unicode("", help="name of the batch in which equal files are judged once; empty: each is judged").tag(config=True)

    @override
    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        lab = _lab(resources)
        if lab is None:
            return nb, resources
        known, of_run = resources["nbgrader"], resources.get("from_notebook", FilesOfRun())
        verdict = judge(
            lab,
            Path(resources["metadata"]["path"]),
            examiner=Examiner(**self.examiner),
            trusted=self.trusted,
            known=_verdicts(self.batch) if self.batch else None,
            rejected=of_run.too_large,
            notes=(*self.notes, *of_run.notes),
        )
        with Gradebook(known["db_url"]) as opened:
            gradebook.write_points(
                opened.find_submission_notebook(known["notebook"], known["assignment"], known["student"]).grades, lab, verdict
            )
            opened.db.commit()
            cells = gradebook.cells(opened.find_submission(known["assignment"], known["student"]))
        self._write(lab, verdict, known["student"], cells)
        for cell in nb.cells:
            if cell.metadata.get("nbgrader", {}).get("grade_id") in _ids(lab):
                cell.outputs = []
        _show_report(nb, report.body(verdict, cells))
        return nb, resources

    def _write(self, lab: Lab, verdict: Verdict, student: str, cells: list[Cell]) -> None:
        path = verdict_file(Path(self.work), student, lab)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".html").write_text(report.page(lab, verdict, student, cells), encoding="utf-8")
        known = verdict.to_json()
        if self.sign:
            known = signature.signed({**known, "student": student}, signature.signing_key(Path(self.work)))
        path.write_text(json.dumps(known), encoding="utf-8")


class CurrentReport(NbGraderPreprocessor):
    """Makes the report in the feedback anew, because points by hand and penalties are newer than the grading.

    The report names tasks and their points, so nbgrader does not list their cells again as "Test cell".
    """

    work = Unicode("classroom", help="folder for verdicts and reports").tag(config=True)

    @override
    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        lab, known = _lab(resources), resources["nbgrader"]
        path = verdict_file(Path(self.work), known["student"], lab) if lab else None
        if lab is None or path is None or not path.is_file():
            return nb, resources
        verdict = Verdict.load(path)
        with Gradebook(known["db_url"]) as opened:
            cells = gradebook.cells(opened.find_submission(known["assignment"], known["student"]))
        _show_report(nb, report.body(verdict, cells, known.get("late_penalty", 0.0)))
        for cell in nb.cells:
            if cell.metadata.get("nbgrader", {}).get("grade_id") in _ids(lab):
                cell.metadata["nbgrader"]["grade"] = False
        return nb, resources


def _show_report(nb: NotebookNode, html: str) -> None:
    """Put the report where a reader of the feedback begins, in the place of an earlier one."""
    if nb.cells and nb.cells[0].source == _REPORT:
        del nb.cells[0]
    shown = new_output("display_data", data={"text/html": html, "text/plain": "The report is shown in a browser."})
    nb.cells.insert(0, new_code_cell(_REPORT, outputs=[shown]))


@lru_cache(maxsize=1)
def _verdicts(batch: str) -> dict[str, Verdict]:
    """What this process has judged in one batch."""
    return {}


def _lab(resources: Any) -> Lab | None:
    try:
        return labs.find(resources["nbgrader"]["assignment"])
    except CourseError:
        return None


def _ids(lab: Lab) -> set[str]:
    return {task.id for task in lab.tasks}
