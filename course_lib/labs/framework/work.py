"""What the checks of a lab look at: the files of a submission, its plan, its answers. Each step is done once, when a check asks for it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

import numpy as np

from course_lib.benchmark import Comparison
from course_lib.engines import Plan, split_target
from course_lib.errors import CourseError
from course_lib.labs.framework import instance
from course_lib.labs.framework.examination import Examination, Examiner
from course_lib.labs.framework.submission_files import model_and_recipe
from course_lib.labs.framework.task import Outcome
from course_lib.recipe import Recipe

if TYPE_CHECKING:
    from course_lib.labs.framework.lab import Lab

_T = TypeVar("_T")
_W = TypeVar("_W", bound="Work")


class step(Generic[_W, _T]):
    """A property that is computed once. If it fails, each task that asks for it gets the same `CourseError`."""

    def __init__(self, compute: Callable[[_W], _T]) -> None:
        self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

    @overload
    def __get__(self, work: None, kind: type[_W]) -> step[_W, _T]: ...
    @overload
    def __get__(self, work: _W, kind: type[_W]) -> _T: ...
    def __get__(self, work: _W | None, kind: type[_W]) -> step[_W, _T] | _T:
        """The value, or the step itself for the class."""
        if work is None:
            return self
        return work.once(self.name, lambda: self.compute(work))


class Work(AbstractContextManager["Work"]):
    """One submission under examination. A lab adds its own steps.

    Attributes:
        folder: of the submission.
        scratch: a folder for files of the examination.
        closing: closes the workers that steps have started.
        learner_file: the answer file with the learner's id, in a lab with an instance for each learner.
        results: value or error of each step that was asked for.
        figures, comparison: for `Examination`.
    """

    learner_file: ClassVar[str] = ""

    def __init__(self, lab: Lab, folder: Path, examiner: Examiner) -> None:
        self.lab, self.folder, self.examiner = lab, folder, examiner
        self.closing = ExitStack()
        self.results: dict[str, Any] = {}
        self.figures: dict[str, float] = {}
        self.comparison: Comparison | None = None

    def __enter__(self: _W) -> _W:
        """The work itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close workers and remove `scratch`."""
        self.closing.close()

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
        return result

    @cached_property
    def scratch(self) -> Path:
        """A folder that exists until the examination ends."""
        return Path(self.closing.enter_context(tempfile.TemporaryDirectory()))

    def rng(self) -> np.random.Generator:
        """A new generator from the examiner's seed."""
        return self.examiner.rng()

    @cached_property
    def expected(self) -> Any:
        """Numbers of the reference, from the lab's ``expected.json``, for the builder that is used: the learner's bundle has them, too.

        None if the file does not have numbers of this builder.
        """
        text = files(f"course_lib.labs.{self.lab.name}").joinpath("expected.json").read_text(encoding="utf-8")
        return json.loads(text).get(split_target(self.examiner.builder)[0])

    @step
    def learner(self) -> str:
        """The id in `learner_file`; "" if there is none or the file cannot be read."""
        return instance.learner_in(self.folder / self.learner_file)

    @step
    def files(self) -> tuple[Path, Recipe]:
        """``model.onnx`` and ``recipe.toml``, as handed in."""
        return model_and_recipe(self.folder)

    @step
    def graph(self) -> Path:
        """The model that builder and runner read: see `one_graph.fixed`."""
        from course_lib.labs.framework import one_graph

        return one_graph.fixed(self.files[0], self.scratch, self.examiner)

    @step
    def plan(self) -> Plan:
        """The plan that the examiner's builder makes of both files."""
        return self.examiner.build(self.graph, self.files[1])

    def examination(self, outcomes: tuple[Outcome, ...]) -> Examination:
        """These outcomes, with what the steps found."""
        plan = self.results.get("plan")
        return Examination(outcomes, plan if isinstance(plan, Plan) else None, self.comparison, self.figures)
