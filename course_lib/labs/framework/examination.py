"""The examiner, which builds, runs and times a submission's engine, and what it found. A self-check and the grader share it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from course_lib.benchmark import Comparison
from course_lib.engines import Compiler, ModelSource, Plan, Worker, build, default_builder, default_runner, split_target
from course_lib.engines.cuda.graph import CALLS
from course_lib.engines.registry import find
from course_lib.engines.worker.allowance import Launcher, uncharged
from course_lib.engines.worker.environment import HERE
from course_lib.errors import BackendUnavailable, BuildError, CourseError, EngineError, ExaminerFault, RecipeError
from course_lib.labs.framework.criteria import Outcome
from course_lib.recipe import Recipe

_T = TypeVar("_T")
_BUILD_S = 10.0  # a usual build with the start of its process
RTX = "tensorrt_rtx"  # compiles on any machine, for a GPU that need not be there: layer tables are the same everywhere
MOST_ANSWERED = 256 << 20  # bytes of one answer of a submission's engine


@dataclass(frozen=True)
class Examination:
    """The findings about one submission.

    Attributes:
        outcomes: one for each task that was examined.
        plan: the plan that the examiner built, None if the build failed.
        comparison: the measured latencies, None if nothing was measured.
        figures: single numbers by name, such as ``accuracy``.
        faults: by task, the error of the course's own code that left it without a judgment.
    """

    outcomes: tuple[Outcome, ...]
    plan: Plan | None = field(default=None, repr=False)
    comparison: Comparison | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)

    @property
    def points(self) -> float:
        """Sum of the points of all outcomes."""
        return sum(outcome.points for outcome in self.outcomes)

    @property
    def max_points(self) -> float:
        """Sum of the points of the examined tasks."""
        return sum(outcome.task.points for outcome in self.outcomes)

    @property
    def open_points(self) -> float:
        """Sum of the points that only the grader can decide, because it has the reference."""
        return sum(outcome.task.points - outcome.points for outcome in self.outcomes if outcome.open)


def at_once(take: Callable[[], _T], /, **options: object) -> _T:
    """`Examiner.measured` without waiting or repeating, and `Examiner.judged` that lets every error pass."""
    return take()


def silently(name: str, about_s: float) -> None:
    """`Examiner.begins` that does nothing."""


@dataclass(frozen=True)
class Examiner:
    """Where and how a submission is examined. A learner's self-check uses the defaults. The grader sets a sandbox and secrets.

    Attributes:
        builder, runner: backends, ``name`` or ``name@environment``.
        launcher: wraps the command of every process that touches the submission.
        bare_launcher: the same for a process that runs a learner's functions. It does not see the course.
        seed: seed of the fresh data; None draws one from the operating system.
        measure_s, build_s: longest time for measuring latencies, and for one build, in seconds.
        measured: takes a measurement of a submission. The grader waits for its turn first, and repeats a measurement that a busy
            host disturbed, which does not disturb the clock of a device.
        begins: called at the start of each step with its name and its usual duration in seconds.
        judged: decides one task. The grader leaves only that task without a judgment after an error of the course's own code.
    """

    builder: str = field(default_factory=default_builder)
    runner: str = field(default_factory=default_runner)
    launcher: Launcher | None = field(default=None, repr=False)
    bare_launcher: Launcher | None = field(default=None, repr=False)
    seed: int | None = field(default=None, repr=False)
    measure_s: float = 25.0
    build_s: float = 120.0
    measured: Callable[..., Any] = field(default_factory=lambda: at_once, repr=False)
    begins: Callable[[str, float], None] = field(default_factory=lambda: silently, repr=False, compare=False)
    judged: Callable[..., Outcome] = field(default_factory=lambda: at_once, repr=False)

    @property
    def opset(self) -> int | None:
        """Newest ONNX operator set that the builder reads; None if the builder has no such limit."""
        return find(split_target(self.builder)[0]).newest_opset(builder_version(self.builder))

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU runs the engines."""
        return not find(split_target(self.runner)[0]).on_cpu()

    @property
    def for_ours(self) -> Examiner:
        """The same for the course's own work, whose time is not the submission's."""
        return replace(self, launcher=uncharged(self.launcher), bare_launcher=uncharged(self.bare_launcher))

    @property
    def with_rtx(self) -> Examiner:
        """The same with TensorRT for RTX as the builder, for graphs that other builders cannot read or do not show."""
        return self if split_target(self.builder)[0] == RTX else replace(self, builder=RTX)

    def rng(self) -> np.random.Generator:
        """A new generator from `seed`."""
        return np.random.default_rng(self.seed)

    def drawn_seed(self) -> int:
        """`seed`, or a new one from the operating system."""
        return self.seed if self.seed is not None else int(np.random.SeedSequence().generate_state(1)[0])

    def build(self, model: Path, recipe: Recipe) -> Plan:
        """The engine as NVIDIA's compiler makes it, the proof of precision, fusion and profiles."""
        self.begins("building the engine", _BUILD_S)
        plan = self._built(model, recipe, self.builder)
        if recipe.precision != "fp32":
            plan.layers.check_precision(recipe.precision)  # also where the compiler shows no datatypes, and so proves nothing
        return plan

    def runnable(self, model: Path, recipe: Recipe, built: Plan | None = None) -> Plan:
        """The plan that this machine can execute: the one already built, or the same ONNX for another backend."""
        return built if built is not None and self.runner == self.builder else self._built(model, recipe, self.runner)

    def runnables(self, wanted: Sequence[tuple[Path, Recipe]]) -> list[Plan]:
        """`runnable` for several of the course's own models, in one process, because its start takes longer than small builds."""
        with Compiler(self.runner, launcher=uncharged(self.launcher)) as compiler:
            return [compiler.build(model, recipe, time_limit_s=self.build_s) for model, recipe in wanted]

    def engine(self, plan: Plan) -> TimedWorker:
        """A worker that holds the plan and is timed by the examiner's clock."""
        try:
            return TimedWorker.start(self._worker(self.launcher), plan, ours=False, device_clock=self.on_gpu)
        except EngineError as error:
            if isinstance(error.__context__, BackendUnavailable):
                self._check_backend(self.runner, error.__context__)
            raise

    def reference(self, plan: Plan) -> TimedWorker:
        """The same for one of the course's own plans."""
        return TimedWorker.start(self._worker(uncharged(self.launcher)), plan, ours=True, device_clock=self.on_gpu)

    def baseline(self, source: ModelSource) -> TimedWorker:
        """A worker that holds the PyTorch module, under the same conditions as every engine."""
        worker = Worker(HERE, launcher=uncharged(self.launcher))
        return TimedWorker.start(worker, source, ours=True, device_clock=self.on_gpu)

    def _built(self, model: Path, recipe: Recipe, target: str) -> Plan:
        """The plan. Errors of this process, which holds a submission, are the submission's."""
        try:
            return build(model, recipe, backend=target, time_limit_s=self.build_s, launcher=self.launcher)
        except BackendUnavailable as error:
            self._check_backend(target, error)
            raise BuildError(str(error)) from None
        except (BuildError, RecipeError):
            raise
        except CourseError as error:
            raise BuildError(str(error), code=error.code) from None

    def _check_backend(self, target: str, error: BackendUnavailable) -> None:
        """Raise the error if a process without the submission does not find the backend either: then it is the machine's fault."""
        name, environment = split_target(target)
        with Worker(environment, launcher=uncharged(self.launcher)) as worker:
            if not any(row.get("name") == name and row.get("version") for row in worker.backends()):
                raise error

    def _worker(self, launcher: Launcher | None) -> Worker:
        return Worker(split_target(self.runner)[1], launcher=launcher, most_bytes=MOST_ANSWERED)


@dataclass(frozen=True)
class TimedWorker(AbstractContextManager["TimedWorker"]):
    """A worker that holds an engine, and two clocks for it.

    On a CPU, the examiner reads its own clock around sending inputs and receiving outputs, which a submission's process cannot change.
    The transport costs the same for every subject. On a GPU, it would take longer than a small engine. The worker's engine, which the
    examiner built, then times replays of a CUDA graph between two events of the device (`Execution.time_ms`), and its answer to the
    same inputs is fetched afterwards.

    Attributes:
        ours: the engine is the course's own, so its failures never count against the submission.
        device_clock: whether the device's events are the clock.
    """

    worker: Worker
    ours: bool
    device_clock: bool = False

    @classmethod
    def start(cls, worker: Worker, source: Plan | ModelSource, *, ours: bool, device_clock: bool = False) -> TimedWorker:
        """Load an engine. The arguments are the attributes of the class; errors are those of `infer`."""
        try:
            worker.load(source)
        except CourseError as error:
            worker.close()
            raise fault(error, ours=ours) from None
        return cls(worker, ours, device_clock)

    def __exit__(self, *_: object) -> None:
        self.worker.close()

    def infer(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name, for inputs by name. Whatever fails is an EngineError, or an ExaminerFault of one of the course's own."""
        return self._asked(lambda: self.worker.infer(feeds))

    def timed(self, feeds: Mapping[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
        """The time of one `infer` in milliseconds, and its outputs. By the examiner's clock, the time includes the transport."""
        if self.device_clock:
            return self.time_ms(feeds), self.infer(feeds)
        started = time.perf_counter()
        answer = self.infer(feeds)
        return 1e3 * (time.perf_counter() - started), answer

    def time_ms(self, feeds: Mapping[str, np.ndarray]) -> float:
        """The time of `timed` alone."""
        return self._asked(lambda: self.worker.time_ms(feeds)) if self.device_clock else self.timed(feeds)[0]

    def _asked(self, ask: Callable[[], _T]) -> _T:
        try:
            return ask()
        except CourseError as error:
            raise fault(error, ours=self.ours) from None


def agree_on_clock(subjects: Iterable[tuple[TimedWorker, Mapping[str, np.ndarray]]]) -> str:
    """The clock of these engines, each with inputs that it accepts; "" for the examiner's own.

    If a GPU's engine cannot be captured as a CUDA graph, all are timed by calls in a row.
    """
    workers = []
    for subject, feeds in subjects:
        if subject.device_clock:
            subject.time_ms(feeds)
            workers.append(subject.worker)
    clocks = {worker.clock for worker in workers} - {""}  # PyTorch has none: eager is timed as it is called
    if CALLS in clocks:
        for worker in workers:
            worker.wanted_clock = CALLS if worker.clock else ""
    return CALLS if CALLS in clocks else "".join(clocks)


@contextmanager
def ours() -> Iterator[None]:
    """Around work on the course's own files: an ExaminerFault in place of every error that a submission would be blamed for."""
    try:
        yield
    except CourseError as error:
        raise ExaminerFault(f"the course's own network cannot be prepared: {error}") from None


def fault(error: CourseError, *, ours: bool) -> CourseError:
    """Every error that a process reports is its owner's fault. A process of a submission cannot cause a fault of the examiner."""
    if ours:
        return ExaminerFault(str(error))
    return error if isinstance(error, EngineError) else EngineError(str(error), code=error.code)


@cache
def builder_version(target: str) -> str:
    """The version of a builder, "" if it is absent; asked once in a process."""
    name, environment = split_target(target)
    with Worker(environment) as worker:
        return next((str(row["version"]) for row in worker.backends() if row["name"] == name), "")
