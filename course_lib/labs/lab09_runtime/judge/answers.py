"""Whether the answers of a serving loop are right, and whether its copies brought them from the device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.labs.lab09_runtime import network
from course_lib.labs.lab09_runtime.judge.mistakes import Mistake
from course_lib.labs.lab09_runtime.judge.recorded import Recorded, Step
from course_lib.labs.lab09_runtime.judge.replay import Home, Replay
from course_lib.labs.lab09_runtime.requests import Scene, fits
from course_lib.labs.lab09_runtime.sandboxed.run_loop import ASKED

_RELATIVE, _ABSOLUTE = 1e-4, 1e-5  # of scores: batches of other sizes are summed in another order
_MOST_STARTS = 100
_SUPPLIED = re.compile(r"\[\d+(,\d+)*\]")  # the first shape in a reason is the supplied one
_SHAPE = "setInputShape"
_OF_ONE_REQUEST = {  # what a rejected call means for the program, by TensorRT's name of the call
    _SHAPE: "`set_input_shape` returned False, and the shape before it stayed set",
    "enqueueV3": "`execute_async_v3` returned False",
    "execute_async_v3": "`execute_async_v3` returned False",
}
_OF_ALL_LATER = {
    "setOptimizationProfileAsync": "`set_optimization_profile_async` failed",
    "setTensorAddress": "`set_tensor_address` returned False",
    "deserialize_cuda_engine": "`deserialize_cuda_engine` returned None",
}
_REJECTED = _OF_ONE_REQUEST | _OF_ALL_LATER
_UNFIT = "What does `set_input_shape` return for such a shape, and what does your loop do then?"


@dataclass(frozen=True)
class Answered:
    """The answers of one scene.

    Attributes:
        right: how many are right and were brought home.
        total: how many requests there are.
        said, hint: about the first that is not right.
    """

    right: int
    total: int
    said: str = ""
    hint: str = ""

    @property
    def all_right(self) -> bool:
        """Whether none is wrong."""
        return self.right == self.total


def answered(scene: Scene, recorded: Recorded, replay: Replay) -> Answered:
    """Compare the answers of a scene with the judge's own, and with what the copies in the trace brought home."""
    total = len(scene.requests)
    if recorded.answers is None:
        said, hint = f"`serve` failed: {recorded.error}.", ""
        last = sum(step.kind == ASKED for step in recorded.steps) - 1  # the request that it took before it failed
        if 0 <= last < total and not fits(scene.requests[last]):
            said = f"{said} Request {last} has the shape {_shape(scene, last)}, which no profile contains."
            hint = _UNFIT
        for index in range(max(0, min(last, total - 1)), -1, -1):
            hint = hint or _after_rejection(scene, recorded, index)
        hint = hint or "Call `serve` in the notebook with the same kinds of requests: the same error appears there."
        if replay.mistakes:  # the error is what followed from the first of them
            said, hint = f"{said} {replay.mistakes[0].said}", replay.mistakes[0].hint
        return Answered(0, total, said, hint)
    if len(recorded.answers) != total:
        said = f"`serve` returned {len(recorded.answers)} answers for {total} requests."
        return Answered(0, total, said, "The list has one entry for each request, in their order, and None for a rejected one.")
    truths = [network.scores(request) if fits(request) else None for request in scene.requests]
    right, first = 0, ("", "")
    for index, answer in enumerate(recorded.answers):
        problem = _problem(index, scene, answer, truths, replay.homes, recorded, replay.mistakes)
        right += problem is None
        if problem and not first[0]:
            first = problem
    return Answered(right, total, *first)


def _problem(
    index: int,
    scene: Scene,
    answer: np.ndarray | None,
    truths: Sequence[np.ndarray | None],
    homes: Sequence[Home],
    recorded: Recorded,
    mistakes: Sequence[Mistake],
) -> tuple[str, str] | None:
    """What is wrong with an answer, and where to look."""
    truth, shape = truths[index], _shape(scene, index)
    if truth is None:
        if answer is None:
            return None
        said = f"Request {index} has the shape {shape}, which no profile contains. Its answer must be None."
        return said, _UNFIT
    home = next((one for one in homes if _holds(one, truth)), None)
    if answer is None and home is not None:
        return f"The scores of request {index} came home, but its answer is None.", (
            "Which line puts them into its answer? Was what is pending replaced before that line ran?"
        )
    if answer is None:
        said = f"Request {index} has the shape {shape}, which a profile contains, and its answer is None."
        if (rejection := _after_rejection(scene, recorded, index)) or not mistakes:
            return said, rejection or "Which of your tests rejects it?"
        return f"{said} {mistakes[0].said}", mistakes[0].hint
    if answer.shape != truth.shape:
        found, expected = ("x".join(map(str, one.shape)) for one in (answer, truth))
        return f"The answer to request {index} has the shape {found}, expected {expected}.", (
            "Return only the rows of this request, although the buffer is larger."
        )
    if not _close(answer, truth):
        return _wrong(index, scene, answer, truths, homes, recorded, mistakes)
    if home is None:
        return f"The answer to request {index} is right, but no copy brought it from the device.", (
            "Scores must come from `execute_async_v3` and `memcpy_dtoh_async`."
        )
    if not home.computed:
        return f"The answer to request {index} was copied from device memory that no run computed from a request.", (
            "Copy features to the device, run the engine, and copy its scores to the host."
        )
    return None


def _wrong(
    index: int,
    scene: Scene,
    answer: np.ndarray,
    truths: Sequence[np.ndarray | None],
    homes: Sequence[Home],
    recorded: Recorded,
    mistakes: Sequence[Mistake],
) -> tuple[str, str]:
    """Why an answer has wrong numbers."""
    truth = truths[index]
    assert truth is not None
    home = next((one for one in homes if _holds(one, truth)), None)
    if home is None:
        said = f"The answer to request {index} is wrong, and no copy brought its scores home."
        if rejection := _after_rejection(scene, recorded, index):
            return said, rejection
        if mistakes and (not np.isnan(answer).all() or any(map(_is_nan, homes))):  # else it was read too early
            first = min(mistakes, key=lambda mistake: mistake.rank)
            return f"{said} {first.said}", first.hint
    other = next((i for i, one in enumerate(truths) if one is not None and i != index and _begins(answer, one)), None)
    if np.isnan(answer).all():
        return f"The answer to request {index} is what fresh memory holds: it was read before the copy home had ended.", (
            "Nothing is in the host array before the wait, or after the next copy to it is called. Which line reads it?"
        )
    if other is not None:
        return f"The answer to request {index} has the scores of request {other}.", (
            "Do several answers share one buffer? Return a copy of its rows, and take it after the wait and before the next request."
        )
    if home is not None:
        return f"The copies brought the right scores of request {index} home, but your loop returned others.", (
            "Was the host array read before the wait, or after the next request had used it? Return a copy of its rows."
        )
    return said, "Follow one request: which bytes are copied, which shape is set, which addresses does the run use?"


def _after_rejection(scene: Scene, recorded: Recorded, index: int) -> str:
    """The hint after a call that TensorRT rejected for this request, or for all requests after the call; "" if there was none.

    A shape or a run that TensorRT rejected for another request says nothing about this one, and neither does one that was tried again
    with success. A loop may hold a few requests, so the supplied shape decides whose call it was. If it is not the shape of any request,
    the time of the call decides.
    """
    if not 0 <= index < len(scene.requests) or not fits(scene.requests[index]):
        return ""
    asked, shapes = -1, [_supplied(request.shape) for request in scene.requests]
    found: Step | None = None
    for step in recorded.steps:
        asked += step.kind == ASKED
        if step.kind == "run" and asked >= index and _supplied(step.shapes.get(network.INPUT, ())) == shapes[index]:
            found = None if found and found.call in _OF_ONE_REQUEST else found
            break
        if found or step.kind != "rejected" or step.call not in _REJECTED:
            continue
        supplied = _SUPPLIED.search(step.reason)
        if step.call in _OF_ALL_LATER:
            concerns = asked <= index
        elif supplied and supplied[0] in shapes:
            concerns = asked >= index and supplied[0] == shapes[index]
        else:
            concerns = asked == index
        found = step if concerns else None
    return f"{_REJECTED[found.call]}: {found.reason}. Which call was missing, or which value was wrong?" if found else ""


def _supplied(shape: Sequence[int]) -> str:
    """As TensorRT writes a shape."""
    return f"[{','.join(map(str, shape))}]"


def _shape(scene: Scene, index: int) -> str:
    return "x".join(map(str, scene.requests[index].shape))


def _close(found: np.ndarray, expected: np.ndarray) -> bool:
    return bool(np.allclose(found, expected, rtol=_RELATIVE, atol=_ABSOLUTE))


def _begins(answer: np.ndarray, other: np.ndarray) -> bool:
    rows = min(len(answer), len(other))
    return _close(answer[:rows], other[:rows])


def _is_nan(home: Home) -> bool:
    """Whether a run computed from what nobody had written."""
    return not home.data.size % 4 and bool(np.isnan(home.data.view(np.float32)).any())


def _holds(home: Home, truth: np.ndarray) -> bool:
    """Whether the bytes that a copy brought home have these scores, in consecutive rows."""
    width = 4 * truth.shape[1]
    if home.data.size % width or home.data.size < truth.nbytes:
        return False
    rows = home.data.view(np.float32).reshape(-1, truth.shape[1])
    firsts = np.isclose(rows[: len(rows) - len(truth) + 1, 0], truth[0, 0], rtol=_RELATIVE, atol=_ABSOLUTE)
    starts = np.flatnonzero(firsts)[:_MOST_STARTS]  # a copy of equal rows must not take the judge's time
    return any(_close(rows[start : start + len(truth)], truth) for start in starts)
