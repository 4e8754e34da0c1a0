"""What is looked at in each task of lab 09: answers, and what the stand-in recorded while the learner's loop ran."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from course_lib._util.plain_text import plain
from course_lib.engines.worker.parent import Launcher
from course_lib.errors import EngineError
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, all_right, at_least, at_most, holds
from course_lib.labs.framework.lab import Work, step
from course_lib.labs.framework.learner_code import decoded, encoded
from course_lib.labs.framework.runner import ask
from course_lib.labs.framework.submission import read_text
from course_lib.labs.lab09_runtime import given
from course_lib.labs.lab09_runtime.given import Scene, fits
from course_lib.labs.lab09_runtime.sandboxed import run_loop
from course_lib.standin.costs import Interval, Schedule
from course_lib.standin.order import MISTAKES, TAKEN, Mistake

MAX_BYTES = 64 << 10  # of serving_loop.py
TIME_LIMIT_S = 30.0  # for all scenes together; the reference takes two seconds
SLOWER = 1.05  # times two sets that take turns, at most, for full points
EMPTY = "empty"  # the code of the error about a loop that is not written yet
_LONGEST = 300  # characters of a text
_LISTED = 4  # wrong answers that a message shows
_RELATIVE, _ABSOLUTE = 1e-4, 1e-5  # of scores: batches of other sizes are summed in another order
_SUPPLIED = re.compile(r"\[\d+(,\d+)*\]")  # the first shape in TensorRT's reason is the supplied one

_HINTS = {  # by the kind of mistake in the order of calls
    "context_shared": "A context has one set of scratch memory. Can two streams use it at once?",
    "wait_missing": "Work on one stream runs in order. Which call makes a stream wait for an event of another stream?",
    "reused_early": "When is a buffer free again? Which call waits for the work that used it?",
    "host_overwritten": "The GPU reads pinned memory when the copy runs, and not at the call. Which line writes there before that?",
    "never_read": "The host may read an answer only after a wait, and before the next copy to the same bytes. Which line reads it?",
    "freed_in_flight": "If an error leaves your loop, its local variables are freed too. What waits then?",
    "freed_memory": "Which address does the context still have?",
    "too_small": "Count the bytes: rows times columns times 4. Is each buffer large enough for the largest profile?",
    "not_device_memory": "Whose address does `set_tensor_address` get? The device reads its own memory.",
    "profile_in_flight": "A context has one profile at a time. On which stream do its runs wait for the switch?",
    "profile_elsewhere": "`set_optimization_profile_async` copies to the device. Which stream runs the context?",
    "unwritten": "Which copy comes before the run, and how many bytes does it copy? Does the run have the shape of this request?",
    "still_running": "Which streams have work when your loop ends, also when an error leaves it?",
}
_REJECTED = {  # by TensorRT's name of the call
    "setInputShape": "`set_input_shape` returned False",
    "enqueueV3": "`execute_async_v3` returned False",
    "execute_async_v3": "`execute_async_v3` returned False",
    "setOptimizationProfileAsync": "`set_optimization_profile_async` failed",
    "setTensorAddress": "`set_tensor_address` returned False",
    "deserialize_cuda_engine": "`deserialize_cuda_engine` returned None",
}
_UNFIT = "What does `set_input_shape` return for such a shape, and what does your loop do then?"
_SAME_ERROR = "Call `serve` in the notebook with the same kinds of requests: the same error appears there."
_ON_THE_DEVICE = "Which runs computed these answers, and which copies brought them home? Solve task 1 first."
_LEFT = (
    "Device memory goes with `free()`. Everything else goes when nothing refers to it: do your answers, a global list or an object "
    "still refer to it?"
)
_KEPT = (
    "The grader keeps the error, as a future does, and its traceback keeps the variables of `serve`. Which of them does your "
    "`finally` still hold?"
)
_PASSED_ON = "The error of the iterator has to leave `serve`. Which statement stops it?"
_IN_FLIGHT = "When does your loop wait, and when does it take the next request? Which work is under way at that moment?"
_OWN_RUN = "In a service, the next request has not come when this one can be answered."
_NOT_TIMED = "Solve task 2 first: work that does not wait is fast and wrong."
_SLOW = (
    "Draw the schedule in the notebook: what does the host wait for while both units for copies have nothing to do? Is a copy from "
    "ordinary memory, or an allocation, among the calls for each request?"
)


@dataclass(frozen=True)
class Served:
    """One call of `serve`: its answers, and what the stand-in recorded.

    Attributes:
        answers: as `serve` returned them; None if it raised.
        error, raised: one line about its error, and the class of the error if it is Python's own.
        mistakes: the first of each kind; `mistake_count` of all.
        left: what remained, in words.
        rows, runs, home, in_flight: as in `order.Findings`.
        rejected: number of the last request that it took, call and reason of each call that TensorRT rejected.
        schedule: the times by the cost model; empty if there are mistakes.
    """

    scene: Scene
    answers: tuple[np.ndarray | None, ...] | None
    error: str
    raised: str
    mistakes: tuple[Mistake, ...]
    mistake_count: int
    left: str
    rows: int
    runs: int
    home: int
    in_flight: int
    rejected: tuple[tuple[int, str, str], ...]
    schedule: Schedule


@dataclass(frozen=True)
class Problem:
    """What is wrong with one answer, and where to look."""

    line: str
    hint: str


class Loop(Work):
    """The examination of one serving loop."""

    @step
    def served(self) -> tuple[Served, Served, Served]:
        """The plain scene, the one with rejected requests, and the one in which the connection breaks off."""
        self.examiner.begins("loop: your loop on secret requests", 4)
        plain, mixed, broken = serve(self.folder / run_loop.FILE, given.scenes(self.rng()), self.examiner.launcher)
        if not plain.mistakes and plain.answers is not None:
            self.figures["time_us"] = plain.schedule.time_us
        return plain, mixed, broken


def answers(work: Loop) -> Iterator[Criterion]:
    """Every request is answered, in order, by the device."""
    plain, mixed, _ = work.served
    contained = _answers("answers, if profiles contain all requests", plain, HALF)
    yield contained
    if contained.met:
        yield _answers("answers, if some requests are rejected", mixed, ALL)
    yield _on_the_device(plain)


def order(work: Loop) -> Iterator[Criterion]:
    """No data race, while work is in flight."""
    plain, mixed, broken = work.served
    held = _mistakes("mistakes in the order of calls", (plain, mixed), HALF)
    yield held
    if held.met:
        yield _mistakes("mistakes if the connection breaks off", (broken,), ALL)
        yield _in_flight(broken)
    yield _on_the_device(plain)


def leaks(work: Loop) -> Iterator[Criterion]:
    """Nothing is left, although the grader holds the answers, or the error."""
    plain, mixed, broken = work.served
    left = plain.left or mixed.left
    yield Criterion("left when `serve` returned", left or "nothing", "nothing", not left, HALF, _LEFT)
    yield holds("the ConnectionError left `serve`", broken.raised == "ConnectionError", hint=_PASSED_ON)
    yield Criterion("left after the connection broke off", broken.left or "nothing", "nothing", not broken.left, hint=_KEPT)
    yield _in_flight(broken)
    yield _on_the_device(plain)


def overlap(work: Loop) -> Iterator[Criterion]:
    """The time of the plain scene, by the cost model."""
    plain = work.served[0]
    computed = _on_the_device(plain)
    yield computed
    if not computed.met:
        return
    yield at_least("runs", plain.runs, len(plain.scene.requests), HALF, hint=_OWN_RUN)
    if plain.mistakes:
        yield holds("only a loop without mistakes in the order of calls is timed", False, HALF, hint=_NOT_TIMED)
        return
    one, two = (given.turns(plain.scene.requests, sets).time_us for sets in (1, 2))
    for bound, needed_for in (((one + two) / 2, HALF), (SLOWER * two, ALL)):
        criterion = at_most("time by the cost model", plain.schedule.time_us, bound, needed_for, unit="us", hint=_SLOW)
        symptom = f"Your loop takes {criterion.found} by the cost model, and one set of buffers {one:.0f} us. "
        yield replace(criterion, symptom=f"{symptom}{_sentence(needed_for)} need {criterion.bound}.")


# ---- criteria


def _answers(name: str, served: Served, needed_for: str) -> Criterion:
    total = len(served.scene.requests)
    if served.answers is None:
        problem = _failure(served)
        return Criterion(name, "none", f"{total} of {total}", False, needed_for, problem.hint, symptom=f"{problem.line}.")
    if len(served.answers) != total:
        hint = "Which entry does a rejected request have in the list?"
        symptom = f"The list has {len(served.answers)} entries for {total} requests."
        return Criterion(name, "none", f"{total} of {total}", False, needed_for, hint, symptom=symptom)
    truths = [given.scores(request) if fits(request) else None for request in served.scene.requests]
    problems = [one for number in range(total) if (one := _problem(number, served, truths))]
    hint, lines = problems[0].hint if problems else "", [one.line for one in problems]
    symptom = f"{'; '.join(lines[:_LISTED])}. Right answers: {total - len(lines)} of {total}."
    return replace(all_right(name, lines, total, needed_for, hint=hint), symptom=_sentence(symptom))


def _mistakes(name: str, several: Sequence[Served], needed_for: str) -> Criterion:
    count = sum(one.mistake_count for one in several)
    first: dict[str, Mistake] = {}
    for mistake in (mistake for one in several for mistake in one.mistakes):
        first.setdefault(mistake.kind, mistake)
    hint = next((_HINTS[kind] for kind in first), "")
    symptom = f"{'. '.join(map(str, first.values()))}. Number of {name}: {count}."
    return Criterion(name, str(count), "0", not count, needed_for, hint, symptom=symptom)


def _in_flight(broken: Served) -> Criterion:
    name = "copies and runs in flight when the connection breaks off"
    symptom = "No copy or run is in flight when the connection breaks off, so this loop has nothing to race."
    return replace(at_least(name, broken.in_flight, 1, hint=_IN_FLIGHT), symptom=symptom)


def _on_the_device(plain: Served) -> Criterion:
    """Whether runs computed the plain requests, and copies brought their scores home."""
    rows = sum(map(len, plain.scene.requests))
    hint = _failure(plain).hint if plain.answers is None else _ON_THE_DEVICE
    computed = min(plain.rows, plain.home // (4 * given.SCORES))
    symptom = f"Runs computed, and copies brought home, only {computed} of {rows} rows of the requests that profiles contain."
    name = "rows that runs computed and copies brought home"
    return replace(at_least(name, computed, rows, HALF, hint=hint), symptom=symptom)


# ---- words about answers


def _failure(served: Served) -> Problem:
    """Why `serve` raised: the request that it took last, a mistake that the device was lost by, or a rejected call."""
    requests, line = served.scene.requests, f"`serve` failed: {served.error}"
    last = next((number for number, _, _ in reversed(served.rejected)), -1)
    if served.mistakes:
        return Problem(f"{line}. {served.mistakes[0]}", _HINTS[served.mistakes[0].kind])
    if 0 <= last < len(requests) and not fits(requests[last]):
        return Problem(f"{line}. Request {last} ({_shape(requests[last])}) fits no profile", _UNFIT)
    if served.rejected:
        _, call, reason = served.rejected[-1]
        return Problem(line, f"{_REJECTED.get(call, call)}: {reason}. Which call was missing, or which value was wrong?")
    return Problem(line, _SAME_ERROR)


def _problem(number: int, served: Served, truths: Sequence[np.ndarray | None]) -> Problem | None:
    """What is wrong with an answer."""
    assert served.answers is not None
    answer, truth, request = served.answers[number], truths[number], served.scene.requests[number]
    name = f"request {number} ({_shape(request)})"
    if truth is None:
        return Problem(f"{name} fits no profile and has an answer", _UNFIT) if answer is not None else None
    cause = _cause(number, served)
    if answer is None:
        return Problem(f"{name} has no answer", cause or "Which of your tests rejects it, or what replaced its answer?")
    if answer.shape != truth.shape:
        return Problem(
            f"the answer to {name} has the shape {'x'.join(map(str, answer.shape))}", "Which rows of the buffer are its own?"
        )
    if _close(answer, truth):
        return None
    if np.isnan(answer).all():
        computed_from_nothing = any(mistake.kind in ("wait_missing", "unwritten") for mistake in served.mistakes)
        hint = "Nothing is in the host array before the wait, or after the next copy to it is called. Which line reads it?"
        return Problem(f"the answer to {name} is what fresh memory holds", cause if computed_from_nothing else hint)
    rows = [min(len(answer), len(one)) if one is not None and i != number else 0 for i, one in enumerate(truths)]
    other = next((i for i, n in enumerate(rows) if n and _close(answer[:n], truths[i][:n])), None)  # type: ignore[index]
    if other is not None:
        hint = cause or "Do several answers share one buffer? When is it read, and when is it used again?"
        return Problem(f"the answer to {name} has the scores of request {other}", hint)
    hint = cause or "Follow one request: which bytes are copied, which shape is set, which addresses does the run use?"
    return Problem(f"the answer to {name} has other scores", hint)


def _cause(number: int, served: Served) -> str:
    """The hint about a call that TensorRT rejected for this request, or about the first mistake in the order of calls."""
    request = served.scene.requests[number]
    for last, call, reason in served.rejected:
        supplied = _SUPPLIED.search(reason)
        if supplied[0] == f"[{','.join(map(str, request.shape))}]" if supplied else last == number:
            return f"{_REJECTED.get(call, call)}: {reason}. Which call was missing, or which value was wrong?"
    return _HINTS[served.mistakes[0].kind] if served.mistakes else ""


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _shape(request: np.ndarray) -> str:
    return "x".join(map(str, request.shape))


def _close(answer: np.ndarray, truth: np.ndarray) -> bool:
    return bool(np.allclose(answer, truth, rtol=_RELATIVE, atol=_ABSOLUTE))


# ---- the process of the loop


def serve(file: Path, scenes: Sequence[Scene], launcher: Launcher | None = None) -> list[Served]:
    """Run a ``serving_loop.py`` in its own process, one scene after another.

    Raises:
        EngineError: the file is missing, is not text, is still empty or fails as a whole; or its process took too long or sent an
            invalid answer.
    """
    request = {
        "source": read_text(file, MAX_BYTES),
        "plan": base64.b64encode(given.plan()).decode(),
        "scenes": [
            {"requests": [encoded(one) | {"strides": one.strides} for one in scene.requests], "breaks_off": scene.breaks_off}
            for scene in scenes
        ],
    }
    return ask(run_loop.__name__, request, lambda values: _read(values, scenes), launcher, time_limit_s=TIME_LIMIT_S)


def _read(values: Mapping[str, Any], scenes: Sequence[Scene]) -> list[Served]:
    if "error" in values:
        raise EngineError(f"{run_loop.FILE}: {plain(values['error'], _LONGEST)}")
    if values["scenes"][0].get("empty"):
        raise EngineError("`serve` is still empty: it raises NotImplementedError. Solve task 1 and run its cell.", code=EMPTY)
    return [_served(scene, record) for scene, record in zip(scenes, values["scenes"], strict=True)]


def _served(scene: Scene, record: Mapping[str, Any]) -> Served:
    error = plain(record.get("error", ""), _LONGEST)
    return Served(
        scene,
        answers=None if error else tuple(None if one is None else decoded(one) for one in record["answers"]),
        error=error,
        raised=plain(record.get("raised", ""), _LONGEST),
        mistakes=tuple(_mistake(one) for one in record["mistakes"]),
        mistake_count=int(record["mistake_count"]),
        left=", ".join(f"{name}: {count}" for name in TAKEN if (count := int(record["left"][name])) > 0),
        rows=int(record["rows"]),
        runs=int(record["runs"]),
        home=int(record["home"]),
        in_flight=int(record["in_flight"]),
        rejected=tuple(
            (int(last), plain(call, _LONGEST), plain(reason, _LONGEST)) for last, call, reason in record["rejected"]
        ),
        schedule=Schedule(tuple(Interval(*interval) for interval in record["intervals"]), float(record["time_us"])),
    )


def _mistake(record: Mapping[str, Any]) -> Mistake:
    if record["kind"] not in MISTAKES:
        raise ValueError("not a kind of mistake that the stand-in records")
    return Mistake(record["kind"], plain(record["earlier"], _LONGEST), plain(record["later"], _LONGEST))
