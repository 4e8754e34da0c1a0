"""What goes wrong, said in one line: what was expected, what was found, what to do next."""

from __future__ import annotations


class CourseError(Exception):
    """Base of every error that a person can act on. The `course` command prints its text as one line, without a traceback."""


class RecipeError(CourseError, ValueError):
    """A recipe asks for something that does not exist or contradicts itself."""


class BackendUnavailable(CourseError):
    """A backend cannot be used on this machine; the text says why and what to install."""


class BuildError(CourseError):
    """The compiler refused a model or a recipe, crashed, or took too long."""


class PrecisionError(BuildError):
    """An engine was built, but its layers do not have the precision that the recipe promised."""


class PlanError(CourseError):
    """A plan cannot be loaded: damaged, or made for another device or version."""


class EngineError(CourseError):
    """An engine refused its inputs or failed while it ran."""


class ProfileError(CourseError):
    """A recorded profile cannot be read: not the expected format, damaged, or without anything to show."""


class ExaminerFault(CourseError):
    """Something of the course's own failed during an examination: nobody's points may depend on it."""


WORKER_ENDED = "the worker ended"  # so begins the message of a `WorkerDied` that ended by itself, or that somebody killed


class WorkerDied(EngineError):
    """A worker process ended, hung or answered nonsense; the text holds the end of its log."""
