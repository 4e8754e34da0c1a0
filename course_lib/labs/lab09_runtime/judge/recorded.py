"""What a serving loop did in each scene: its process is asked, and its answer is read with limits, because it may be hostile."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import EngineError
from course_lib.labs.framework.conversation import Conversation
from course_lib.labs.framework.isolation import checked, module_command
from course_lib.labs.framework.sandboxed.learner_code import encoded_with_strides
from course_lib.labs.framework.submission_files import read_text
from course_lib.labs.lab09_runtime import network
from course_lib.labs.lab09_runtime.requests import Scene
from course_lib.labs.lab09_runtime.sandboxed import run_loop

MAX_BYTES = 64 << 10  # of serving_loop.py
TIME_LIMIT_S = 30.0  # for all scenes together; the reference takes two seconds
MOST_STEPS = run_loop.MOST_ROWS  # of one trace
MOST_STREAMS = 64
MOST_COPIED = 8 << 20  # bytes that the copies of one trace move, in all directions
_MAX_ANSWER = 48 << 20
_LONGEST = 300  # characters of a text
_MOST_NUMBER = 1 << 62
_TOO_LONG = 256  # entries of an array's shape, or of a mapping
_INVALID = "its process sent a trace that the stand-in does not write"
_ENDLESS = f"its trace has {MOST_STEPS:,} calls or more. Which of your loops does not end?"


@dataclass(frozen=True)
class Step:
    """One row of a trace: its kind, and its fields by the names of `run_loop.ROWS`.

    A copy to the device has another field, `called`: its bytes as far as they were known when the loop asked for the next request. They
    differ from `data` if the host wrote to them before the copy ran.
    """

    kind: str
    fields: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass(frozen=True)
class Recorded:
    """One call of `serve`.

    Attributes:
        steps: the trace.
        answers: as `serve` returned them; None if it raised.
        error: one line about the error that it raised, "" if it returned.
        raised: the error's class if it is one of Python's own, otherwise "".
        empty: whether its body is not written yet.
    """

    steps: tuple[Step, ...]
    answers: tuple[np.ndarray | None, ...] | None
    error: str = ""
    raised: str = ""
    empty: bool = False


def record(source: Path, scenes: Sequence[Scene], launcher: Launcher | None = None) -> list[Recorded]:
    """Run a ``serving_loop.py`` in its own process, one scene after another. It gets each request when its loop asks for it.

    Raises:
        EngineError: the file is missing, is not text or fails as a whole; or its process took too long or sent an invalid answer.
    """
    begin = {"source": read_text(source, MAX_BYTES), "plan": base64.b64encode(network.plan()).decode()}
    with Conversation(
        module_command(run_loop.__name__), launcher=launcher, time_limit_s=TIME_LIMIT_S, max_bytes=_MAX_ANSWER
    ) as conversation:
        said = conversation.ask(begin)
        if error := said.get("error"):
            raise EngineError(checked(error, _text, _INVALID))
        return [played(scene, conversation.ask) for scene in scenes]


def played(scene: Scene, ask: Callable[[dict[str, Any]], dict[str, Any]]) -> Recorded:
    """One scene, with the judge's part of the conversation. Each question of the loop is a row of the trace.

    Raises:
        EngineError: as `record`.
    """
    rows: list[Any] = []
    said = ask({"scene": True})
    for number, request in enumerate([*scene.requests, None]):
        if "asked" not in said:
            break
        rows += [*_rows(said), [run_loop.ASKED, number]]
        said = ask({"breaks_off": scene.breaks_off} if request is None else {"request": encoded_with_strides(request)})
    rows += _rows(said)
    return checked({**said, "rows": rows}, _recorded, _INVALID)


def _with_late_data(scene: Mapping[str, Any]) -> list[Step]:
    """The steps, in which copies to the device have what they found when they ran. The process numbers its own rows, without questions."""
    steps = [_step(row) for row in scene["rows"]]
    traced = [place for place, step in enumerate(steps) if step.kind != run_loop.ASKED]
    for number, data, changed in scene["late"]:
        place = traced[_number(number)]
        if steps[place].kind != "in":
            raise ValueError
        row = [*scene["rows"][place][:-2], data, changed]
        steps[place] = _step(row, called=steps[place].called)
    return steps


def _rows(said: Mapping[str, Any]) -> list[Any]:
    """The new rows of a message.

    Raises:
        EngineError: it has none, or as many as no loop needs.
    """
    rows = said.get("rows")
    if not isinstance(rows, list):
        raise EngineError(_INVALID)
    if len(rows) >= MOST_STEPS:
        raise EngineError(_ENDLESS)
    return rows


def _recorded(scene: Mapping[str, Any]) -> Recorded:
    if len(scene["rows"]) >= MOST_STEPS:
        raise EngineError(_ENDLESS)
    steps = tuple(_with_late_data(scene))
    if sum(step.kind == "stream" for step in steps) > MOST_STREAMS:
        raise EngineError(f"it creates more than {MOST_STREAMS} streams: create them once, before the first request")
    if sum(step.size for step in steps if step.kind in ("in", "out", "within")) > MOST_COPIED:
        raise EngineError(f"its copies move more than {MOST_COPIED >> 20} MiB: copy only the rows of each request")
    answers = scene["answers"]
    if answers is not None:
        if len(answers) > _TOO_LONG:
            raise ValueError
        answers = tuple(None if answer is None else _array(answer) for answer in answers)
    error = _text(scene["error"])
    return Recorded(
        steps, answers, error or ("" if answers is not None else "no answer"), _text(scene["raised"]), bool(scene["empty"])
    )


def _step(row: Sequence[Any], called: bytes | None = None) -> Step:
    names = run_loop.ROWS[row[0]]
    if len(row) != 1 + len(names):
        raise ValueError
    step = Step(row[0], {name: _READERS.get(name, _number)(value) for name, value in zip(names, row[1:], strict=True)})
    if step.kind != "in":
        return step
    if len(step.data) != step.size:
        raise ValueError
    return Step(step.kind, {**step.fields, "called": step.data if called is None else called})


def _array(values: Mapping[str, Any]) -> np.ndarray:
    shape = [_number(size) for size in values["shape"]]
    data = base64.b64decode(values["data"], validate=True)
    if len(shape) > 8 or len(data) > MOST_COPIED:
        raise ValueError
    return np.frombuffer(data, np.float32).reshape(shape)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MOST_NUMBER:
        raise ValueError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return " ".join(value.split())[:_LONGEST]


def _shapes(value: Mapping[str, Sequence[Any]]) -> dict[str, tuple[int, ...]]:
    return {_text(name): tuple(map(_number, shape)) for name, shape in _small(value).items()}


def _addresses(value: Mapping[str, Any]) -> dict[str, int]:
    return {_text(name): _number(address) for name, address in _small(value).items()}


def _small(value: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(value) > _TOO_LONG:
        raise ValueError
    return value


_READERS: dict[str, Callable[[Any], Any]] = {
    "data": lambda value: base64.b64decode(value, validate=True),
    "changed": bool,
    "digest": _text,
    "call": _text,
    "reason": _text,
    "shapes": _shapes,
    "addresses": _addresses,
}
