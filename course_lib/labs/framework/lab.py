"""A lab: its tasks, how a submission is examined, and the steps of an examination, each of which is done once."""

from __future__ import annotations

import difflib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial, wraps
from importlib import import_module
from importlib.resources import files
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import numpy as np

from course_lib._util.plain_text import plain
from course_lib._util.progress_bar import notebook_stages
from course_lib.benchmark import Comparison
from course_lib.benchmark.device_lock import in_turn
from course_lib.engines import Plan, split_target
from course_lib.errors import (
    MISSING_FILE,
    NO_ANSWER,
    OTHER_NAME,
    TWO_READINGS,
    UNREADABLE,
    BackendUnavailable,
    CourseError,
    EngineError,
    ExaminerFault,
    NotExamined,
    ReferenceAbsent,
)
from course_lib.exercises import progress
from course_lib.labs.framework import criteria as judging
from course_lib.labs.framework import onnx_model, submission
from course_lib.labs.framework.criteria import NO_REFERENCE, TOO_FEW, UNUSUAL, Criterion, Outcome, Task, Tier
from course_lib.labs.framework.examination import Examination, Examiner
from course_lib.recipe import Recipe

if TYPE_CHECKING:
    from course_lib.labs.framework.racing import Tiers

_T = TypeVar("_T")
_LONGEST = 4000  # characters of a message
_START_S = 5.0  # until the first step of an examination, on two cores
_HINTS = {  # where to look after an error, by `CourseError.code`, in labs that do not say it themselves
    TWO_READINGS: "Compiler and runner must read the same graph. Which line of your code made this part of it?",
    OTHER_NAME: "`export_onnx` takes names from the module's signature(), `torch.onnx.export` from input_names and output_names.",
    MISSING_FILE: "Solve the task whose cell writes this file, then run that cell again.",
    UNREADABLE: "Run the notebook's cell that writes this file again, or correct the place that the message names.",
    NO_ANSWER: "Measure the same call in the notebook. Which of its loops grows fastest with the size of its input?",
}
_BUILD_HINT = "Build it in the notebook with course_lib.engines.build: the same error appears there."
_TOO_FEW = "Inconclusive: the data of this check are too few. Not decided: {criteria}."
_OPEN = {  # why a task is not decided, and where to look, by `Criterion.code`
    "": ("Inconclusive: the machine is busy. Not decided: {criteria}.", "Close other programs, then run this check again."),
    TOO_FEW: (_TOO_FEW, "Gain a little more, or run this check again on other data."),
    NO_REFERENCE: ("Not compared with the reference yet: the grader does that.", ""),
    UNUSUAL: ("This is better than any solution that is known. An instructor will look at it.", ""),
}


def step(compute: Callable[[Any], _T]) -> _T:
    """A property of `Work` that is computed once. If it fails, each task that asks for it gets the same `CourseError`."""
    getter = wraps(compute)(lambda work: work.once(compute.__name__, lambda: compute(work)))
    return cast(_T, property(getter))  # for a type checker, an attribute with the type of its value


class Work(ExitStack):
    """One submission under examination, which at its end closes the workers that steps have started. A lab adds its own steps."""

    learner_file: ClassVar[str] = ""  # the answer file with the learner's id, in a lab with an instance for each learner

    def __init__(self, lab: Lab, folder: Path, examiner: Examiner) -> None:
        super().__init__()
        self.lab, self.folder, self.examiner = lab, folder, examiner
        self.results: dict[str, Any] = {}  # value or error of each step that was asked for
        self.figures: dict[str, float] = {}
        self.comparison: Comparison | None = None

    def once(self, name: str, compute: Callable[[], _T]) -> _T:
        """What `compute` returned or raised when this name was first asked for."""
        if name not in self.results:
            try:
                self.results[name] = compute()
            except CourseError as error:
                self.results[name] = error
        result = self.results[name]
        if isinstance(result, CourseError):
            raise result
        return cast(_T, result)

    @cached_property
    def scratch(self) -> Path:
        """A folder for files of the examination, which exists until it ends."""
        return Path(self.enter_context(tempfile.TemporaryDirectory()))

    def rng(self) -> np.random.Generator:
        """A new generator from the examiner's seed."""
        return self.examiner.rng()

    @cached_property
    def expected(self) -> Any:
        """Numbers of the reference for the builder that is used, from the lab's ``expected.json``, which learners have, too; or None."""
        return self.expected_of_builders.get(split_target(self.examiner.builder)[0])

    @property
    def expected_of_builders(self) -> dict[str, Any]:
        """The whole ``expected.json``. A learner may have counted kernels with another builder than the grader has."""
        text = files(f"course_lib.labs.{self.lab.name}").joinpath("expected.json").read_text(encoding="utf-8")
        return dict(json.loads(text))

    @step
    def learner(self) -> str:
        """The id in `learner_file`, from which the learner's instance is drawn. Without one, the task is not examined."""
        file = self.folder / self.learner_file
        if learner := submission.learner_in(file):
            return learner
        if not any((self.folder / name).exists() for name in self.lab.artifacts):
            raise EngineError(submission.missing(file.name), code=MISSING_FILE)
        unknown = f"{file.name} has no key `learner` with an id" if file.is_file() else submission.missing(file.name)
        raise NotExamined(f"{unknown}, so the instance is not known. An instructor will look at it.")

    @step
    def files(self) -> tuple[Path, Recipe]:
        """``model.onnx`` and ``recipe.toml``, as handed in."""
        return submission.model_and_recipe(self.folder)

    @step
    def graph(self) -> Path:
        """The model that builder and runner read, see `onnx_model.plain_graph`."""
        return onnx_model.fixed(self.files[0], self.scratch, self.examiner)

    @step
    def plan(self) -> Plan:
        """The plan that the examiner's builder makes of both files."""
        return self.examiner.build(self.graph, self.files[1])

    def examination(self, outcomes: tuple[Outcome, ...]) -> Examination:
        """These outcomes, with what the steps found."""
        plan = self.results.get("plan")
        return Examination(outcomes, plan if isinstance(plan, Plan) else None, self.comparison, self.figures)


class Lab:
    """A lab: its submission, its points, and its examination. A subclass sets what differs."""

    name: ClassVar[str]
    title: ClassVar[str]
    artifacts: ClassVar[Mapping[str, int]]  # file name to the largest size taken, in bytes
    tasks: ClassVar[tuple[Task, ...]]
    work_class: ClassVar[type[Work]] = Work  # what the checks look at, with the lab's own steps
    draft: ClassVar[bool] = False  # README, the start page and the benchmarks do not list it yet
    # Where to look after a failed build, by `CourseError.code`; "" for all others.
    build_hints: ClassVar[Mapping[str, str]] = {}
    # Where to look after a submission's engine or function failed.
    run_hint: ClassVar[str] = "Run it in the notebook with the same inputs: the error appears there too."
    # Seconds that the grader waits on a CPU for all processes of a submission. References that are built and timed take up to 17 s on
    # two loaded cores, a measurement that decides nothing is repeated for twice as long, and a laptop is three times slower.
    process_s: ClassVar[float] = 150.0
    sandbox: ClassVar[Mapping[str, Any]] = {}  # limits of `grading.isolation.sandbox.Sandbox` that differ for this lab
    speed: ClassVar[Tiers | None] = None  # of a lab whose task "speed" follows from `Examination.comparison` alone
    timed_tasks: ClassVar[tuple[str, ...]] = ()  # whose points depend on a measured time

    def write_reference(self, folder: Path, **options: Any) -> None:
        """Make the reference submission with `write` of the lab's module `reference`, which gets the options that it knows.

        Code makes it each time, because nbgrader would overwrite a learner's file with a file next to the solution.

        Args:
            folder: gets the files.
            options: ``opset``, the newest that the builder reads, and ``learner``, whose instance is solved.
        """
        write = import_module(f"{type(self).__module__.rpartition('.')[0]}.reference").write
        write(folder, **{name: options[name] for name in signature(write).parameters if name in options})

    def work(self, folder: Path, examiner: Examiner) -> Work:
        """What the checks look at."""
        return self.work_class(self, folder, examiner)

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Examine the submission in `folder`; with `only`, do only the work for that task."""
        with self.work(folder, examiner) as work:
            tasks = [task for task in self.tasks if only in (None, task.id)]
            return work.examination(tuple(examiner.judged(partial(self._checked, task, work), task=task) for task in tasks))

    def _checked(self, task: Task, work: Work) -> Outcome:
        """The outcome of one task. A step that fails costs its points, whatever was found before."""
        assert task.check is not None
        criteria: list[Criterion] = []
        try:
            for criterion in task.check(work):
                criteria.append(criterion)
        except (BackendUnavailable, ExaminerFault):
            raise
        except ReferenceAbsent:
            criteria.append(judging.open_without_reference("what follows", "not compared yet"))
        except NotExamined as error:
            unknown = "what follows", "not examined", "an instructor's decision", None, judging.HALF
            criteria.append(Criterion(*unknown, code=judging.NOT_EXAMINED, symptom=str(error)))
        except CourseError as error:
            general = self.run_hint if isinstance(error, EngineError) else self.build_hints.get("", _BUILD_HINT)
            hint = self.build_hints.get(error.code) or _HINTS.get(error.code, general)
            before = tuple(replace(criterion, expected="") for criterion in criteria)
            return replace(self.outcome(task.id, Tier.NONE, error, hint), criteria=before)
        return self.decided(task.id, criteria)

    def decided(self, task_id: str, criteria: Sequence[Criterion]) -> Outcome:
        """The outcome of a task that follows from its criteria: `needed_for` says what each one costs.

        What is missed for half of the points costs all of them. A criterion with a `code` that is not decided leaves the task open.
        """
        # What was found may be a submission's own text.
        criteria = [replace(criterion, found=plain(criterion.found, _LONGEST)) for criterion in criteria]
        tier, half_earned = judging.tier(criteria)
        hint = next((criterion.hint for criterion in judging.missed(criteria) if criterion.hint), "")
        code, message = "", judging.findings(criteria)
        if tier == Tier.INCONCLUSIVE:
            code, symptom = next(((one.code, one.symptom) for one in criteria if one.met is None and one.code), ("", ""))
            why, look = _OPEN.get(code, ("", ""))
            why = symptom or why.format(criteria=judging.undecided(criteria))
            if not half_earned and judging.all_met(criteria) is False:
                why = f"At most half of the points. {why}"
            message, hint = f"{message} {why}".strip(), hint or look
        share = 1.0 if tier == Tier.FULL else 0.5 if half_earned and code != NO_REFERENCE else 0.0
        return replace(self.outcome(task_id, tier, message, hint, share=share, code=code), criteria=tuple(criteria))

    def speed_tier(self, latencies: Mapping[str, np.ndarray]) -> Tier | None:
        """The tier of the task ``speed`` that follows only from the latencies by subject in `Examination.comparison`.

        It allows a verdict to be computed again from its record. None in a lab that judges speed in another way.
        """
        return self.speed.tier(latencies)[0] if self.speed else None

    def check(self, task: str, folder: str | Path = ".") -> Outcome:
        """A learner's check of one task, for a notebook cell. The grader runs the same examination on fresh secret data.

        While nbgrader grades the notebook nothing is examined: points come from the files it leaves, not from its cells. nbgrader's
        "Validate" takes every cell without an error for a success, so a task without all points is an error there.
        """
        asked, execution = self.task(task), os.environ.get("NBGRADER_EXECUTION")
        if execution and execution != "validate":
            return Outcome(asked, Tier.NONE, 0.0, "the grader examines the files that were handed in, on its own machine")
        with notebook_stages() as begins:
            begins("the check starts", _START_S)
            examined = self.examine(Path(folder), Examiner(measured=in_turn, begins=begins), only=task)
        outcome = self.for_learner(next(outcome for outcome in examined.outcomes if outcome.task.id == task), Path(folder))
        if execution and not outcome.passed:
            raise CourseError(f"{asked.title}: {outcome.mark}. {outcome.message} {outcome.hint}".strip(), code=outcome.code)
        return outcome

    def for_learner(self, outcome: Outcome, folder: Path) -> Outcome:
        """What a self-check shows: the first failure of a task in this folder has the symptoms, and later ones what was expected, too.

        An empty file notes the first failure. Where it cannot be kept, each failure is shown as a later one.
        """
        if not any(criterion.withholds for criterion in outcome.criteria):
            return outcome
        try:
            failures = progress.folder(folder)
            failures.mkdir(parents=True, exist_ok=True)
            (failures / f"{self.name} {outcome.task.id} failed").touch(exist_ok=False)
        except (OSError, CourseError):
            return outcome
        shown = self.decided(outcome.task.id, [replace(criterion, expected="") for criterion in outcome.criteria])
        return replace(shown, message=f"{shown.message} Check again to see what was expected.")

    def task(self, task_id: str) -> Task:
        """The task with this id, or a CourseError that names those that there are."""
        for task in self.tasks:
            if task.id == task_id:
                return task
        ids = [task.id for task in self.tasks]
        near = difflib.get_close_matches(task_id.lower(), ids, n=1)
        meant = f"did you mean {near[0]}? It" if near else "it"
        raise CourseError(f"{self.name} has no task {task_id!r}: {meant} has {', '.join(ids)}")

    def outcome(
        self, task_id: str, tier: Tier, message: str | CourseError, hint: str = "", *, share: float = 1.0, code: str = ""
    ) -> Outcome:
        """The outcome of a task: `share` of its points, and no points without a tier."""
        task = self.task(task_id)
        points = 0.0 if tier == Tier.NONE else task.points * share
        text = plain(message, _LONGEST)  # a submission's own words may be in it
        return Outcome(task, tier, points, text, hint, code=message.code if isinstance(message, CourseError) else code)

    def zero_outcomes(
        self, message: str | CourseError, hint: str = "", tasks: Iterable[str] | None = None
    ) -> tuple[Outcome, ...]:
        """No points for any task (or `tasks`), for the same reason."""
        return tuple(self.outcome(t, Tier.NONE, message, hint) for t in (tasks or [task.id for task in self.tasks]))


def absent(reference: ModuleType) -> bool:
    """Whether this module of a reference is only a placeholder, because this is the learner's bundle or the sandbox."""
    return hasattr(reference, "ABSENT")
