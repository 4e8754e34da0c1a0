"""Lab 09, the runtime by hand: a serving loop in the raw calls of TensorRT and CUDA, on the stand-in or on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from course_lib.errors import MISSING_FILE, EngineError
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, all_met
from course_lib.labs.framework.examination import Examination, Examiner
from course_lib.labs.framework.lab import Lab
from course_lib.labs.framework.submission_files import missing
from course_lib.labs.framework.task import Outcome, Task
from course_lib.labs.lab09_runtime import network
from course_lib.labs.lab09_runtime.judge import answers, recorded, replay
from course_lib.labs.lab09_runtime.judge.answers import Answered
from course_lib.labs.lab09_runtime.judge.costs import Schedule, schedule, turns
from course_lib.labs.lab09_runtime.judge.recorded import Recorded
from course_lib.labs.lab09_runtime.judge.replay import Replay
from course_lib.labs.lab09_runtime.requests import BROKEN, PLAIN, Scene, scenes
from course_lib.labs.lab09_runtime.sandboxed.run_loop import FILE

PLAN = "engine.plan"
AHEAD = 3  # requests that wait for their run at most when the loop asks for another one
SLOWER = 1.05  # times two sets that take turns, at most, for full points
_EMPTY = "`serve` is still empty: it raises NotImplementedError. Solve task 1, and run the cell, which writes the file."
_FAILED_HINT = "Import the file in the notebook, and call `serve`: the same error appears there."
_TAKEN = "Which line takes requests from the iterator before the ones that you hold are enqueued? In a service, the next one has not come."
_ELSEWHERE = (
    "Copies must overlap runs among rejected requests too, and until the connection breaks off. When does your loop wait?"
)
_OTHER_WORK = "The time counts only if `serve` does all work of this scene, and no other. Solve task 1 for full points first."
_FIRST = "Solve task 1 first: only a loop that computes every plain request, and copies its scores home, is examined here."


@dataclass(frozen=True)
class Served:
    """One scene, what the loop did in it, and what the judge found."""

    scene: Scene
    recorded: Recorded
    replay: Replay
    answered: Answered

    @property
    def left(self) -> str:
        """What remained when `serve` ended, in words."""
        return ", ".join(f"{name}: {count}" for name, count in self.replay.left.items() if count > 0)

    @property
    def ended_as_it_must(self) -> bool:
        """Whether an error of the connection left the loop, and no other error did."""
        return self.recorded.raised == "ConnectionError" if self.scene.breaks_off else not self.recorded.error

    @property
    def did_its_work(self) -> bool:
        """Whether the scene ended as it must, with right answers if it returned."""
        return self.ended_as_it_must and (self.scene.breaks_off or self.answered.all_right)


class ByHand(Lab):
    """The submission is `serving_loop.py`."""

    name = "lab09_runtime"
    title = "Lab 09: the runtime by hand"
    artifacts: ClassVar = {FILE: recorded.MAX_BYTES}
    tasks = (
        Task("answers", "The right answer to every request", 3),
        Task("order", "No data race between streams", 3),
        Task("leaks", "Nothing is left", 2),
        Task("overlap", "Copies beside runs", 2),
    )
    process_s: ClassVar = 60.0  # the reference takes less than a second, and nothing is timed

    def write_given(self, trt: Any, folder: str | Path = ".") -> None:
        """Write ``engine.plan``, as this module `tensorrt` builds it."""
        Path(folder, PLAN).write_bytes(network.serialized_engine(trt))

    def write_reference(self, folder: Path, *, opset: int | None = None) -> None:
        """Two sets of a stream, a context and buffers that take turns."""
        from course_lib.labs.lab09_runtime import reference

        (folder / FILE).write_text(reference.SERVING_LOOP, encoding="utf-8")

    def schedule(self, requests: Sequence[np.ndarray], file: str | Path = FILE) -> Schedule:
        """The times of a serving loop by the grader's cost model, for a figure in the notebook.

        Raises:
            EngineError: the file failed, does not compute every request, or has a mistake in the order of its calls.
        """
        scene = Scene(PLAIN, tuple(requests))
        served = _served(scene, *recorded.record(Path(file), [scene]))
        if served.recorded.error:
            raise EngineError(f"{FILE}: {served.recorded.error}")
        if not _did_the_work(served) or served.replay.mistakes:
            raise EngineError("a loop that skips requests or has data races has no times: solve tasks 1 and 2 first")
        return schedule(served.recorded.steps)

    def examine(self, folder: Path, examiner: Examiner, only: str | None = None) -> Examination:
        """Run the loop with secret requests in its own process, and replay the trace here."""
        wanted = [task.id for task in self.tasks if only in (None, task.id)]
        if not (folder / FILE).is_file():
            hint = "The cell of task 1 writes it. Run it, then check again."
            return Examination(self.zero_outcomes(EngineError(missing(FILE), code=MISSING_FILE), hint, wanted))
        rng = examiner.rng()
        drawn = scenes(rng)
        order = rng.permutation(len(drawn))  # secret, so that the number of a call does not say which scene it is
        examiner.begins("your loop on secret requests", 4)
        try:
            mixed = recorded.record(folder / FILE, [drawn[place] for place in order], examiner.launcher)
            found = [mixed[place] for place in np.argsort(order)]
            if found[0].empty:
                return Examination(self.zero_outcomes(_EMPTY, "Begin with one request, as in the cells above.", wanted))
            served = [_served(scene, one) for scene, one in zip(drawn, found, strict=True)]
        except EngineError as error:
            return Examination(self.zero_outcomes(EngineError(f"{FILE}: {error}"), _FAILED_HINT, wanted))
        judges = {"answers": self._answers, "order": self._order, "leaks": self._leaks, "overlap": self._overlap}
        steps = [] if served[0].replay.mistakes else served[0].recorded.steps  # a trace with mistakes has no times
        return Examination(
            tuple(judges[task](served) for task in wanted), figures={"time_us": schedule(steps).time_us} if steps else {}
        )

    def _answers(self, served: Sequence[Served]) -> Outcome:
        returning = [one for one in served if one.scene.name != BROKEN]
        right, total = (sum(getattr(one.answered, name) for one in returning) for name in ("right", "total"))
        plain = served[0].answered
        full = [Criterion("right answers, some requests rejected", f"{right} of {total}", f"{total}", right == total)]
        half = [
            Criterion(
                "right answers, no request rejected", f"{plain.right} of {plain.total}", f"{plain.total}", plain.all_right, HALF
            )
        ]
        wrong = next((one.answered for one in returning if not one.answered.all_right), None)
        said = wrong.said if wrong else ""
        if not wrong and any(one.replay.mistakes for one in served):
            said = "Data races are not looked for here, but in task 2."
        return self.judged("answers", full, half, wrong.hint if wrong else "", context=said)

    def _order(self, served: Sequence[Served]) -> Outcome:
        if unfit := self._unfit("order", served):
            return unfit
        counts = [len(one.replay.mistakes) for one in served]
        full = [
            Criterion("mistakes in the order of calls, in all scenes", str(sum(counts)), "none", not any(counts)),
            _ahead(served),
            *_in_flight(served),
        ]
        half = [Criterion("mistakes while the connection holds", str(sum(counts[:2])), "none", not any(counts[:2]), HALF)]
        found = [mistake for one in served for mistake in one.replay.mistakes]
        if not found:
            return self.judged("order", full, half, _ELSEWHERE if full[1].met else _TAKEN)
        first = min(found, key=lambda mistake: mistake.rank)
        more = f" And {len(found) - 1} more, of which some may follow from it." if len(found) > 1 else ""
        return self.judged("order", full, half, first.hint, context=f"{first.said}{more}")

    def _leaks(self, served: Sequence[Served]) -> Outcome:
        if unfit := self._unfit("leaks", served):
            return unfit
        returning, broken = served[:-1], served[-1]
        left = next((one.left for one in returning if one.left), "")
        clean = Criterion("left when `serve` returned", left or "nothing", "nothing", not left, HALF)
        after = Criterion("left after the connection broke off", broken.left or "nothing", "nothing", not broken.left)
        passed_on = broken.ended_as_it_must
        ended = Criterion.yes_or_no("the ConnectionError left `serve`", passed_on)
        full = [replace(clean, needed_for=ALL), after, ended, _ahead([broken])]
        hint = _ELSEWHERE if all_met(full) else _hint_for_leaks(left, broken)
        return self.judged("leaks", [*full, *_in_flight(served)], [clean], hint)

    def _overlap(self, served: Sequence[Served]) -> Outcome:
        if unfit := self._unfit("overlap", served):
            return unfit
        plain = served[0]
        if plain.replay.mistakes:
            said = "A loop with a mistake in the order of its calls is not timed: work that does not wait is fast and wrong."
            return self.outcome("overlap", "none", said, "Solve task 2 first.")
        if plain.replay.runs < len(plain.scene.requests):
            said = f"{plain.replay.runs} runs answer {len(plain.scene.requests)} requests: each request must have a run of its own."
            return self.outcome(
                "overlap", "none", said, "In a service, the next request has not come when this one can be answered."
            )
        found = schedule(plain.recorded.steps).time_us
        serial, two = (turns(plain.scene.requests, sets).time_us for sets in (1, 2))
        most, half_most = SLOWER * two, _halfway_us(plain)
        name = "time by the cost model"
        others = [_halfway(one) for one in served[1:]]
        full = [
            Criterion(name, f"{found:.0f} us", f"at most {most:.0f} us", found <= most),
            _ahead([plain]),
            *others,
            *_in_flight(served),
        ]
        half = [
            Criterion(name, f"{found:.0f} us", f"at most {half_most:.0f} us", found <= half_most, HALF),
            *(replace(one, needed_for=HALF) for one in others),
        ]
        hint = (
            "Draw the schedule in the notebook: what does the host wait for while both units for copies have nothing to do? Does each "
            "copy use pinned memory, and is everything allocated before the first request?"
        )
        if found <= most:
            slow = [one for one, criterion in zip(served[1:], others, strict=True) if not criterion.met]
            hint = _TAKEN if not full[1].met else _ELSEWHERE if all(one.did_its_work for one in slow) else _OTHER_WORK
        return self.judged("overlap", full, half, hint, context=f"One request after the other takes {serial:.0f} us.")

    def _unfit(self, task: str, served: Sequence[Served]) -> Outcome | None:
        """The outcome of a task that is not examined, because the loop does not do the work."""
        plain = served[0]
        if _did_the_work(plain) or (task == "order" and plain.replay.mistakes):
            return None
        needed = sum(map(len, plain.scene.requests))
        said = f"{plain.replay.rows} of {needed} rows of the plain requests were computed on the device. {plain.answered.said}".strip()
        return self.outcome(task, "none", f"{said} {_FIRST}", plain.answered.hint or "Which runs computed them?")


def _served(scene: Scene, found: Recorded) -> Served:
    replayed = replay.replayed(found.steps, scene.requests, network.plan())
    return Served(scene, found, replayed, answers.answered(scene, found, replayed))


def _did_the_work(plain: Served) -> bool:
    """Whether `serve` returned, and every row was computed on the device and brought home."""
    needed = sum(map(len, plain.scene.requests))
    home = sum(one.data.nbytes for one in plain.replay.homes if one.computed)
    return plain.recorded.answers is not None and plain.replay.rows >= needed and home >= needed * 4 * network.SCORES


def _halfway_us(one: Served) -> float:
    """The time that saves half of what two sets save."""
    return sum(turns(one.scene.requests, sets).time_us for sets in (1, 2)) / 2


def _halfway(one: Served) -> Criterion:
    """Whether a loop saves half of the time that two sets save in a scene that has rejected requests or breaks off.

    A loop that ended by another error did only a part of the work.
    """
    found, most = schedule(one.recorded.steps).time_us, _halfway_us(one)
    where = "when the connection breaks off" if one.scene.breaks_off else "with rejected requests"
    ended = one.ended_as_it_must
    return Criterion(
        f"time {where}", f"{found:.0f} us" if ended else "an error", f"at most {most:.0f} us", ended and found <= most
    )


def _in_flight(served: Sequence[Served]) -> list[Criterion]:
    """Whether a loop that overlaps work in the plain scene does it until the connection breaks off. A serial loop need not."""
    plain, broken = served[0], served[-1]
    if plain.replay.mistakes or schedule(plain.recorded.steps).time_us > _halfway_us(plain):
        return []
    found = broken.replay.in_flight
    return [Criterion("work in flight when the connection broke off", str(found), "at least 1", found > 0)]


def _ahead(served: Sequence[Served]) -> Criterion:
    """Whether runs were under way while requests were still to come. Without work in flight, an error of the connection proves nothing."""
    most = max(one.replay.ahead for one in served)
    return Criterion("requests in hand when another one was taken", str(most), f"at most {AHEAD}", most <= AHEAD)


def _hint_for_leaks(left: str, broken: Served) -> str:
    if left:
        return (
            "Call `free()` for device memory. Everything else goes when nothing refers to it: do your answers, a global list or an object "
            "still refer to it? Return copies of pinned rows."
        )
    if not broken.ended_as_it_must:
        return "The error of the iterator must leave `serve`. Use `finally` to give things back, and not `except`."
    if not broken.left:
        return _TAKEN
    return (
        "The grader keeps the error, as a future does, and its traceback keeps the variables of `serve`. Which of them does your "
        "`finally` still hold?"
    )


lab = ByHand()
