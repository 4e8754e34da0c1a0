"""Errors with one line of text: what was expected, what was found, and what to do next."""

from __future__ import annotations

# Values of `CourseError.code` that more than one module reads.
MISSING_FILE = "missing_file"  # a file was not handed in
UNREADABLE = "unreadable"  # a file that was handed in is not text, JSON, TOML or a recipe, or is too long
PRECISION = "precision"  # layers, or what the recipe says of them, are not of the expected number type
PROFILE = "profile"  # the recipe's profiles and the model do not fit together
FIXED_DIMENSION = "fixed_dimension"  # the same, because a dimension of the model is not dynamic
OUTSIDE_PROFILES = "outside_profiles"  # a shape that no profile accepts
ZERO_POINT = "zero_point"  # quantization that is not symmetric
OTHER_NAME = "other_name"  # an input or output is not called as the task asks
TWO_READINGS = "two_readings"  # a graph that a builder and a runner could read as two computations
WORKER_ENDED = "worker_ended"  # a worker ended by itself, or something else ended it
NO_ANSWER = "no_answer"  # a worker was stopped because it took too long


class CourseError(Exception):
    """Base of every error that a user can act on. The `course` command prints its text as one line, without a traceback.

    Attributes:
        code: the kind of failure, such as `MISSING_FILE`, or "" if no program checks it. It does not change with the text, and a
            worker passes it on.
    """

    code = ""

    def __init__(self, *args: object, code: str = "") -> None:
        super().__init__(*args)
        self.code = code or self.code


class RecipeError(CourseError, ValueError):
    """A recipe asks for something that does not exist or contradicts itself."""


class BackendUnavailable(CourseError):
    """A backend cannot be used on this machine. The message says why and what to install."""


class BuildError(CourseError):
    """The compiler rejected a model or a recipe, crashed, or took too long."""


class PrecisionError(BuildError):
    """An engine was built, but its layers do not have the precision that the recipe declared."""

    code = PRECISION


class PlanError(CourseError):
    """A plan cannot be loaded: damaged, or made for another device or version."""


class EngineError(CourseError):
    """An engine rejected its inputs or failed while it ran."""


class ProfileError(CourseError):
    """A recorded profile cannot be read: not the expected format, damaged, or without anything to show."""


class ExaminerFault(CourseError):
    """A part of the course failed during an examination. No points may depend on this failure."""


class NotExamined(CourseError):
    """A task cannot be judged, through no mistake of the learner. It costs no points, and an instructor decides."""


class ReferenceAbsent(AttributeError):
    """Something is compared with a lab's reference, which the learner's bundle and the sandbox do not have.

    It is not a `CourseError`, so that no handler of a lab takes it for a fault of the submission or of the examiner. It is an
    `AttributeError`, because pickle, and with it torch.compile, asks every loaded module for a name and expects no other answer.
    """


class WorkerDied(EngineError):
    """A worker process ended, hung or sent an invalid answer; the text holds the end of its log."""


class OutOfTime(WorkerDied):
    """A submission has used up the time that it may take in all."""

    code = NO_ANSWER
