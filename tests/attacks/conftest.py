"""Fixtures that the attacks share with the other tests of grading."""

from tests.grading.conftest import reference  # noqa: F401
