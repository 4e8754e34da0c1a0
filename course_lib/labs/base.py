"""What a lab is: tasks with points, and one examination that the learner's self-check and the grader share."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from course_lib.benchmark import Comparison, Interval
from course_lib.engines import Compiler, ModelSource, Plan, Worker, build, default_builder, default_runner, split_target
from course_lib.engines.environments import HERE
from course_lib.engines.worker import Launcher
from course_lib.errors import CourseError, EngineError, ExaminerFault
from course_lib.labs import criteria as judging
from course_lib.labs.criteria import Criterion
from course_lib.recipe import Recipe


@dataclass(frozen=True)
class Task:
    """A part of a lab that earns points. `id` is also the name of its grade cell in the notebook."""

    id: str
    title: str
    points: float


@dataclass(frozen=True)
class Outcome:
    """What one task earned, why, and what to look at next.

    Attributes:
        tier: ``"full"``, ``"partial"``, ``"none"``, or ``"inconclusive"`` when measuring could not decide between two tiers;
            `points` are then those of the lower one and an instructor has to look.
        message: what was expected and what was found.
        hint: where to look, empty at full points.
        criteria: each requirement that was judged, with what was found and the bound that was used.
    """

    task: Task
    tier: str
    points: float
    message: str
    hint: str = ""
    criteria: tuple[Criterion, ...] = ()

    @property
    def mark(self) -> str:
        """The tier in a word for the learner."""
        return _MARKS[self.tier][0]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def _repr_html_(self) -> str:
        mark, colour = _MARKS[self.tier]
        hint = f"<i>Hint: {escape(self.hint)}</i>" if self.hint else ""
        return (
            f'<div style="border-left:4px solid {colour};padding:.3em .8em"><b>{escape(self.task.title)}: {mark}</b> '
            f"({self.points:g} of {self.task.points:g} points)<br>{escape(self.message)}"
            f"{judging.as_html(self.criteria) or '<br>' * bool(hint)}{hint}</div>"
        )


_MARKS = {
    "full": ("passed", "#009E73"),
    "partial": ("partly", "#E69F00"),
    "inconclusive": ("inconclusive", "#E69F00"),
    "none": ("not yet", "#D55E00"),
}


@dataclass(frozen=True)
class Examination:
    """All that was found out about one hand-in.

    Attributes:
        outcomes: one for each task that was examined.
        plan: the plan that the examiner built, None where the build failed.
        comparison: the measured latencies, None where nothing was measured.
        figures: single numbers by name, such as ``accuracy``.
    """

    outcomes: tuple[Outcome, ...]
    plan: Plan | None = field(default=None, repr=False)
    comparison: Comparison | None = None
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def points(self) -> float:
        return sum(outcome.points for outcome in self.outcomes)

    @property
    def max_points(self) -> float:
        return sum(outcome.task.points for outcome in self.outcomes)


_T = TypeVar("_T")
_BUILD_S = 10.0  # a usual build with the start of its process
MOST_ANSWERED = 256 << 20  # bytes of one answer of a hand-in's engine


class Measuring(Protocol):
    """Takes a measurement by calling what takes it; the grader waits for its turn first, and repeats one that was disturbed."""

    def __call__(self, take: Callable[[], _T], /) -> _T: ...


def at_once(take: Callable[[], _T], /) -> _T:
    """`Measuring` without waiting and without a second look: for a learner's own check."""
    return take()


def silently(name: str, about_s: float) -> None:
    """`Bench.begins` where nobody is told."""


@dataclass(frozen=True)
class Bench:
    """Where and how a hand-in is examined. A learner's self-check uses the default, the grader brings sandbox and secrets.

    Attributes:
        builder, runner: backends, ``name`` or ``name@environment``.
        launcher: wraps the command of every process that touches the hand-in.
        seed: of the fresh data; None draws one from the operating system.
        measure_s: longest time spent on measuring latencies, in seconds.
        build_s: longest time for one build, in seconds.
        measured: everything that times a hand-in goes through it.
        begins: is told the name of each step as it begins, and about how many seconds it takes.
    """

    builder: str = field(default_factory=default_builder)
    runner: str = field(default_factory=default_runner)
    launcher: Launcher | None = field(default=None, repr=False)
    seed: int | None = field(default=None, repr=False)
    measure_s: float = 25.0
    build_s: float = 120.0
    measured: Measuring = field(default_factory=lambda: at_once, repr=False)
    begins: Callable[[str, float], None] = field(default_factory=lambda: silently, repr=False, compare=False)

    @property
    def opset(self) -> int | None:
        """Newest ONNX operator set that the builder reads; None where that is no question."""
        return 17 if _builder_version(self.builder).startswith("8.") else None

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    def build(self, model: Path, recipe: Recipe) -> Plan:
        """The engine as NVIDIA's compiler makes it, the proof of precision, fusion and profiles."""
        self.begins("building the engine", _BUILD_S)
        return build(model, recipe, backend=self.builder, time_limit_s=self.build_s, launcher=self.launcher)

    def runnable(self, model: Path, recipe: Recipe, built: Plan | None = None) -> Plan:
        """The plan that this machine can execute: the one already built, or the same ONNX for another backend."""
        if built is not None and self.runner == self.builder:
            return built
        return build(model, recipe, backend=self.runner, time_limit_s=self.build_s, launcher=self.launcher)

    def runnables(self, wanted: Sequence[tuple[Path, Recipe]]) -> list[Plan]:
        """`runnable` for several models of the course's own: one process for all, whose start takes longer than small builds."""
        with Compiler(self.runner, launcher=self.launcher) as compiler:
            return [compiler.build(model, recipe, time_limit_s=self.build_s) for model, recipe in wanted]

    def engine(self, plan: Plan) -> AbstractContextManager[TimedWorker]:
        """A worker that holds the plan, behind the examiner's clock."""
        return TimedWorker.start(self._worker(), plan, ours=False)

    def reference(self, plan: Plan) -> AbstractContextManager[TimedWorker]:
        """The same for a plan of the course's own."""
        return TimedWorker.start(self._worker(), plan, ours=True)

    def baseline(self, source: ModelSource) -> AbstractContextManager[TimedWorker]:
        """A worker that holds the PyTorch module, under the same conditions as every engine."""
        return TimedWorker.start(Worker(HERE, launcher=self.launcher), source, ours=True)

    def _worker(self) -> Worker:
        _, environment = split_target(self.runner)
        return Worker(environment, launcher=self.launcher, most_bytes=MOST_ANSWERED)


@dataclass(frozen=True)
class TimedWorker(AbstractContextManager["TimedWorker"]):
    """A worker timed from outside: inputs go in and outputs come back between two readings of the examiner's clock.

    Whatever a hand-in does to its own process, it cannot touch this clock, and it never holds the inputs of a call before
    that call is being timed. The price is the transport, paid by every subject alike.
    """

    worker: Worker
    ours: bool

    @classmethod
    def start(cls, worker: Worker, source: Plan | ModelSource, *, ours: bool) -> TimedWorker:
        """Load an engine. With `ours`, a failure now or later is the examiner's and never counts against the hand-in."""
        try:
            worker.load(source)
        except CourseError as error:
            worker.close()
            raise (ExaminerFault(str(error)) if ours else error) from None
        return cls(worker, ours)

    def __exit__(self, *_: object) -> None:
        self.worker.close()

    def infer(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        try:
            return self.worker.infer(feeds)
        except EngineError as error:
            raise (ExaminerFault(str(error)) if self.ours else error) from None

    def time_ms(self, feeds: Mapping[str, np.ndarray]) -> float:
        started = time.perf_counter()
        self.infer(feeds)
        return 1e3 * (time.perf_counter() - started)


class Lab(ABC):
    """A lab: what is handed in, what it is worth, and how it is examined."""

    name: ClassVar[str]
    title: ClassVar[str]
    artefacts: ClassVar[Mapping[str, int]]  # file name to the largest size taken, in bytes
    tasks: ClassVar[tuple[Task, ...]]

    @abstractmethod
    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """Make the reference hand-in, for a builder that reads up to `opset`.

        It is made by code each time: a file beside the solution would overwrite a learner's when nbgrader grades.
        """

    @abstractmethod
    def examine(self, folder: Path, bench: Bench, only: str | None = None) -> Examination:
        """Examine the hand-in in `folder`; with `only`, spend time on what that task needs and nothing else."""

    def speed_tier(self, latencies: Mapping[str, np.ndarray]) -> str | None:
        """The tier of the task ``speed`` that follows from the latencies of `Examination.comparison` and nothing else, by subject.

        With it a verdict can be computed again from its record. None in a lab that judges speed otherwise.
        """
        return None

    def check(self, task: str, folder: str | Path = ".") -> Outcome:
        """A learner's check of one task, for a notebook cell. The grader runs the same examination on fresh secret data.

        While nbgrader runs the notebook nothing is examined: points come from the files it leaves, not from its cells.

        Raises:
            CourseError: the lab has no such task.
        """
        asked = self._task(task)
        if os.environ.get("NBGRADER_EXECUTION"):
            return Outcome(asked, "none", 0.0, "the grader examines the files that were handed in, on its own machine")
        examined = self.examine(Path(folder), Bench(), only=task)
        return next(outcome for outcome in examined.outcomes if outcome.task.id == task)

    def _task(self, task_id: str) -> Task:
        for task in self.tasks:
            if task.id == task_id:
                return task
        raise CourseError(f"{self.name} has no task {task_id!r}: it has {', '.join(t.id for t in self.tasks)}")

    def outcome(self, task_id: str, tier: str, message: str, hint: str = "", *, share: float = 1.0) -> Outcome:
        """The outcome of a task: `share` of its points at full and partial, none otherwise."""
        task = self._task(task_id)
        points = task.points * share if tier in ("full", "partial", "inconclusive") else 0.0
        # a hand-in's own words may be in the message, with halves of characters that no file can hold
        return Outcome(task, tier, points, message.encode(errors="replace").decode(), hint)

    def judged(
        self,
        task_id: str,
        full: Sequence[Criterion],
        half: Sequence[Criterion],
        hint: str,
        *,
        context: str = "",
        cause: str = judging.BUSY,
    ) -> Outcome:
        """The outcome that follows from criteria: all points, half of them, none, or inconclusive.

        Args:
            full: what all points need.
            half: what half of the points need.
            hint: where to look; dropped at full points, and where only the machine is to blame.
            context: a sentence in front of the summary, such as what was measured on what.
            cause: why a criterion can be undecided.
        """
        tier, half_earned = judging.tier(full, half)
        shown = tuple(full) if half_earned else (*full, *half)
        message = " ".join(part for part in (context, judging.summary(shown, tier, cause)) if part)
        if tier == "full":
            hint = ""
        elif tier == "inconclusive" and cause == judging.BUSY and judging.all_met(full) is None:
            hint = "Close other programs, then run this check again: it measures anew."
        made = self.outcome(task_id, tier, message, hint, share=1.0 if tier == "full" else 0.5 if half_earned else 0.0)
        return replace(made, criteria=shown)

    def nothing(self, message: str, hint: str = "", tasks: Iterable[str] | None = None) -> tuple[Outcome, ...]:
        """No points for any task (or `tasks`), for one and the same reason."""
        return tuple(self.outcome(t, "none", message, hint) for t in (tasks or [task.id for task in self.tasks]))


def grouped(outcomes: Iterable[Outcome]) -> list[list[Outcome]]:
    """Outcomes in their order, those next to each other together that lost their points for the same reason."""
    groups: list[list[Outcome]] = []
    for one in outcomes:
        if groups and one.tier == "none" and (one.message, one.hint) == (groups[-1][-1].message, groups[-1][-1].hint):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


@cache
def _builder_version(target: str) -> str:
    name, environment = split_target(target)
    with Worker(environment) as worker:
        return next((str(found["version"]) for found in worker.backends() if found["name"] == name), "")


def clearly(interval: Interval, threshold: float) -> bool | None:
    """Whether a ratio reaches a threshold: yes, no, or None where the interval holds both answers."""
    return (interval.low >= threshold) if interval.excludes(threshold) else None
