"""Environments: Python interpreters with a backend each, so that one session can use incompatible versions."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass

from course_lib.errors import BackendUnavailable


@dataclass(frozen=True)
class Environment:
    """A name and the command that starts its interpreter."""

    name: str
    command: tuple[str, ...]


HERE = Environment("here", (sys.executable,))


def environments() -> dict[str, Environment]:
    """This interpreter, and the interpreters in the variable COURSE_ENVIRONMENTS: ``name=command;name=command``.

    ``COURSE_ENVIRONMENTS="trt8=/opt/trt8/bin/python;trt10=/opt/trt10/bin/python"``

    Raises:
        BackendUnavailable: the variable does not have this form.
    """
    known = {HERE.name: HERE}
    for entry in filter(None, (part.strip() for part in os.environ.get("COURSE_ENVIRONMENTS", "").split(";"))):
        name, found, command = entry.partition("=")
        if not found or not command.strip():
            raise BackendUnavailable(f"COURSE_ENVIRONMENTS: expected name=command, found {entry!r}")
        known[name.strip()] = Environment(name.strip(), tuple(shlex.split(command)))
    return known


def split_target(target: str) -> tuple[str, Environment]:
    """Split ``"tensorrt@trt8"`` into the backend's name and its environment. Without ``@``, the environment is this interpreter.

    Raises:
        BackendUnavailable: no environment has that name.
    """
    backend, _, name = target.partition("@")
    known = environments()
    if (name or HERE.name) not in known:
        raise BackendUnavailable(
            f'no environment {name!r} (known: {", ".join(known)}): name its interpreter, COURSE_ENVIRONMENTS="{name}=/path/to/python"'
        )
    return backend, known[name or HERE.name]
