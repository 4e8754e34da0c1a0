"""The reference that a submission is compared with. A failure here is the examiner's fault and costs no points."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType

from course_lib.engines.cache.plan_cache import PlanCache
from course_lib.errors import CourseError, ExaminerFault
from course_lib.labs.framework.examination import Examiner, TimedWorker
from course_lib.labs.framework.lab import Lab
from course_lib.recipe import Recipe


def absent(reference: ModuleType) -> bool:
    """Whether this module of a reference is only a placeholder, because this is the learner's bundle or the sandbox."""
    return hasattr(reference, "ABSENT")


@contextmanager
def ours() -> Iterator[None]:
    """Around work on the course's own files.

    Raises:
        ExaminerFault: in place of every error that a submission's files would have been blamed for.
    """
    try:
        yield
    except CourseError as error:
        raise ExaminerFault(f"the course's own network cannot be prepared: {error}") from None


def reference_engine(lab: Lab, examiner: Examiner, recipe: Recipe) -> AbstractContextManager[TimedWorker]:
    """The engine of the reference's ``model.onnx`` with `recipe`, in a worker like the submission's.

    Its plan is kept, so TensorRT builds it once and a whole class is compared with the same engine.

    Raises:
        ExaminerFault: it cannot be built or loaded.
        ReferenceAbsent: this is the learner's bundle.
    """
    with tempfile.TemporaryDirectory() as folder, ours():
        lab.write_reference(Path(folder), opset=examiner.opset)
        model = Path(folder, "model.onnx")
        plan = PlanCache().build(model, recipe, backend=examiner.runner, time_limit_s=examiner.build_s).plan
    return examiner.reference(plan)
