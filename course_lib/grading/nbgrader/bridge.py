"""The bridge to nbgrader: its configuration, and its converters with the steps that the course changes."""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbformat import NotebookNode
from nbgrader.converters import GenerateAssignment
from nbgrader.preprocessors import CheckCellMetadata, ClearSolutions, GetGrades, NbGraderPreprocessor
from traitlets import Unicode
from traitlets.config import Config
from typing_extensions import override

from course_lib import labs
from course_lib._util.plain_text import plain
from course_lib.errors import CourseError
from course_lib.grading.judge import artifacts
from course_lib.grading.judge.verdict import Verdict, verdict_file
from course_lib.grading.nbgrader import gradebook
from course_lib.grading.nbgrader.graded_notebook import show_report
from course_lib.grading.reports import report

if TYPE_CHECKING:
    from nbgrader.converters.base import BaseConverter

_TASK = re.compile(r"^#+ (Task \d+)\b", re.M)
_SETTINGS = ("SandboxedExecute", "LatePenalty")  # what an instructor may set

# In the course's folder, not tracked: an instructor's settings, such as late penalties.
OWN_SETTINGS = "nbgrader_config_local.py"


def configure(config: Config, *, root: Path, work: str = "classroom") -> None:
    """Point nbgrader at the course, with the settings in `OWN_SETTINGS`; this is all that `nbgrader_config.py` does."""
    _put_this_environment_on_path()
    (root / work).mkdir(parents=True, exist_ok=True)  # formgrader opens the gradebook before anything was handed in
    course = config.CourseDirectory
    course.root = str(root)
    course.course_id = "tensorrt"
    course.source_directory, course.release_directory = "solutions", "labs"
    for kind in ("submitted", "autograded", "feedback"):
        setattr(course, f"{kind}_directory", f"{work}/{kind}")
    course.db_url = gradebook.address(root / work)
    course.ignore = [".ipynb_checkpoints", "*.pyc", "__pycache__"]
    config.GenerateAssignment.preprocessors = [
        ClearTasks if step is ClearSolutions else step for step in GenerateAssignment.preprocessors.default()
    ]
    config.Autograde.pre_convert_hook = drop_special_files
    config.Autograde.autograde_preprocessors = ["course_lib.grading.nbgrader.autograde.GradeAsCourse", CheckCellMetadata]
    config.Execute.timeout = 240  # also that of "Validate", where it is 30 s
    config.GenerateFeedback.preprocessors = [GetGrades, CurrentReport, CSSHTMLHeaderPreprocessor]
    for step in (config.GradeAsCourse, config.CurrentReport):
        step.root, step.work = str(root), work
    if (root / OWN_SETTINGS).is_file():
        config.merge(_loaded(root, OWN_SETTINGS))


class _Log(logging.FileHandler):
    """Writes nbgrader's messages into a file, and remembers the last errors."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8", delay=True)
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        self._error: BaseException | None = None
        self._message = ""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            # nbgrader writes tracebacks as messages, while it handles the exception.
            self._error = sys.exc_info()[1] or self._error
            self._message = record.getMessage()
        super().emit(record)

    def reason(self) -> str:
        """The last exception that was logged, otherwise the last error, in one line."""
        said = f"{type(self._error).__name__}: {self._error}" if self._error else self._message
        return plain(said or "no reason given", 300)


def convert(kind: type[BaseConverter], lab: str, config: Config, folder: Path, student: str | None = None) -> str:
    """Run one of nbgrader's converters without output on the terminal; return why it failed, or "".

    Args:
        folder: where ``nbgrader.log`` gets its messages.
    """
    from nbgrader.converters.base import NbGraderException
    from nbgrader.coursedir import CourseDirectory

    course = CourseDirectory(config=config)
    course.assignment_id = lab
    if student is not None:
        course.student_id = student
    log, logger = _Log(folder / "nbgrader.log"), logging.Logger("nbgrader", logging.INFO)
    logger.addHandler(log)
    converter = kind(coursedir=course, config=config)
    converter.log, converter.force = logger, True
    try:
        converter.start()
    except (NbGraderException, SystemExit):
        return log.reason()
    finally:
        log.close()
    return ""


def own_settings(root: Path) -> dict[str, dict[str, Any]]:
    """What an instructor has set for the classes that grade, in either file, by class and trait; plain values only.

    Raises:
        CourseError: a file cannot be run.
    """
    if not (root / "nbgrader_config.py").is_file():
        return {}
    loaded = _loaded(root, "nbgrader_config.py")
    values = (str, int, float, bool, type(None))
    return {
        name: {trait: value for trait, value in loaded[name].items() if isinstance(value, values)}
        for name in _SETTINGS
        if name in loaded
    }


def _loaded(root: Path, name: str) -> Config:
    """The settings in a Python file. Raises CourseError if it cannot be run."""
    from traitlets.config.loader import PyFileConfigLoader

    try:
        return PyFileConfigLoader(name, path=str(root)).load_config()
    except CourseError:  # of the other file, which this one loads
        raise
    except Exception as error:  # whatever a Python file may raise
        raise CourseError(f"{root / name} cannot be used ({type(error).__name__}: {error})") from None


def _put_this_environment_on_path() -> None:
    """nbgrader starts `alembic` by name to make a gradebook, which fails where `course` was started by its full path."""
    programs = str(Path(sys.executable).parent)
    if programs not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join((programs, os.environ.get("PATH", "")))


def drop_special_files(assignment: str, student: str, notebooks: list[str]) -> None:
    """nbgrader's own "Autograde" copies submissions in a way that follows links: what is not a plain file goes before that.

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


class OfClassroom(NbGraderPreprocessor):
    """A step of nbgrader that needs the classroom."""

    root = Unicode(".", help="the course's folder").tag(config=True)
    work = Unicode("classroom", help="folder for verdicts and reports, relative to the course's").tag(config=True)


class CurrentReport(OfClassroom):
    """Makes the report in the feedback anew, because points by hand and penalties are newer than the grading.

    The report names tasks and their points, so nbgrader does not list their cells again as "Test cell".
    """

    @override
    def preprocess(self, nb: NotebookNode, resources: dict[str, Any]) -> tuple[NotebookNode, dict[str, Any]]:
        lab, known = lab_of(resources), resources["nbgrader"]
        verdict = Verdict.load(verdict_file(Path(self.root, self.work), known["student"], lab))
        with gradebook.opened(Path(self.root, self.work)) as book:
            cells = gradebook.cells(book.find_submission(lab.name, known["student"]))
        show_report(nb, report.body(verdict, cells, known.get("late_penalty", 0.0)))
        tasks = {task.id for task in lab.tasks}
        for cell in nb.cells:
            if cell.metadata.get("nbgrader", {}).get("grade_id") in tasks:
                cell.metadata["nbgrader"]["grade"] = False
        return nb, resources


def lab_of(resources: dict[str, Any]) -> labs.Lab:
    """The lab of an assignment."""
    return labs.find(resources["nbgrader"]["assignment"])
