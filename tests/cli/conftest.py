"""What tests of commands share."""

from tests.cli.command import course  # noqa: F401
