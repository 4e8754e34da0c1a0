"""What is looked at in each task of lab 15: boxes, latency and lost frames of one trial."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from course_lib.benchmark import Interval
from course_lib.engines import ModelSource, Plan
from course_lib.labs.framework import onnx_model
from course_lib.labs.framework.criteria import ALL, HALF, TOO_FEW, Criterion, all_met, open_without_reference, reaches_threshold
from course_lib.labs.framework.examination import Examiner, ours
from course_lib.labs.framework.lab import Work, absent, step
from course_lib.labs.lab15_capstone import given, reference
from course_lib.labs.lab15_capstone.given import Settings
from course_lib.labs.lab15_capstone.pipeline import Subject, record
from course_lib.labs.lab15_capstone.trial import BUDGET, PARTIAL_BUDGET, REFERENCE_SETTINGS, SLOW, Trial
from course_lib.models.digit_video import video

FULL_AP, PARTIAL_AP = 0.94, 0.82  # of the given detector's mean average precision on the same frames, with its whole curve
FULL_FALSE, PARTIAL_FALSE = 0.5, 0.85  # of the share of false boxes in that curve
FULL_LOST, PARTIAL_LOST = 0.01, 0.05  # share of the frames that were sent to the detector
FRAMES = 1000
_FRAME_S = 0.03  # what all detectors and passes take for a frame, on a CPU
_EVERY_OF_FIRST = 4  # of the first version only the median time of a call is used: a part of the frames will do
_MANY_OVERLAP, _STRICT = 0.8, 0.5  # settings from which they are the most likely cause


class PipelineWork(Work):
    """A submission of lab 15: its settings, and one trial that all tasks share."""

    frames = FRAMES

    @step
    def settings(self) -> Settings:
        """``settings.toml``."""
        return Settings.load(self.folder / given.FILE)

    @step
    def trial(self) -> Trial:
        """The submission, the reference, the first version and PyTorch's detector on a new video, in turn.

        Raises:
            RecipeError, BuildError: a file is missing or rejected.
            EngineError: the engine rejects the frames, or answers with something else than detections.
        """
        examiner, settings, plan = self.examiner, self.settings, self.plan
        scenes = list(itertools.islice(video(examiner.drawn_seed()), self.frames))
        examiner.begins(f"detect, latency and frames: four detectors on {self.frames} new frames", self.frames * _FRAME_S)
        started = self.closing.enter_context
        yours = started(examiner.engine(onnx_model.runnable(self.graph, self.files[1], examiner, plan)))
        eager = started(examiner.baseline(ModelSource("course_lib.models:detector")))
        with ours():
            theirs, first = (
                started(examiner.reference(plan)) for plan in (_reference(examiner), _as_exported(given.FIRST.size, examiner))
            )
        subjects = {
            "eager": Subject(eager, given.WHOLE_CURVE),
            "first": Subject(first, given.FIRST.model_copy(update={"every": _EVERY_OF_FIRST})),
            "reference": Subject(theirs, REFERENCE_SETTINGS),
            "yours": Subject(yours, settings),
        }
        recordings = examiner.measured(
            lambda: record(subjects, scenes, lambda recordings: decided(Trial(scenes, settings, recordings)))
        )
        trial = Trial(scenes, settings, recordings)
        self.figures |= trial.figures()
        return trial


@lru_cache(maxsize=1)
def _reference(examiner: Examiner) -> Plan:
    """The reference's plan. Where it is absent, the given detector takes its place."""
    if absent(reference):
        return _as_exported(REFERENCE_SETTINGS.size, examiner)
    with tempfile.TemporaryDirectory() as scratch:
        reference.write(Path(scratch))
        return onnx_model.runnable(Path(scratch, "model.onnx"), given.recipe(REFERENCE_SETTINGS.size), examiner)


@lru_cache(maxsize=2)
def _as_exported(size: int, examiner: Examiner) -> Plan:
    """The given detector as the lab shows it, without other changes. The service starts from it at 160 pixels."""
    with tempfile.TemporaryDirectory() as scratch:
        model = Path(scratch, "model.onnx")
        model.write_bytes(given.exported(size).SerializeToString())
        return examiner.runnable(model, given.recipe(size, "fp32"))


def detect(work: PipelineWork) -> Iterator[Criterion]:
    """The shown boxes, next to those of the given detector in PyTorch on the same frames."""
    for needed_for in (HALF, ALL):
        yield from _boxes(work.trial, needed_for)


def latency(work: PipelineWork) -> Iterator[Criterion]:
    """The 99th percentile of the frames' latency, at the camera's rate."""
    yield from _at_the_cameras_rate(work.trial, _latency)


def frames(work: PipelineWork) -> Iterator[Criterion]:
    """What the queue lost, at the camera's rate."""
    yield from _at_the_cameras_rate(work.trial, _lost)


def decided(trial: Trial) -> bool:
    """Whether these times decide the criteria of latency and frames."""
    criteria = (check(trial, needed_for) for check in (_latency, _lost) for needed_for in (ALL, HALF))
    return trial.can_tell and all(criterion.met is not None for criterion in criteria)


def _at_the_cameras_rate(trial: Trial, check: Callable[[Trial, str], Criterion]) -> Iterator[Criterion]:
    """Task 1 first: a detector that does not show the digits does not have a latency. Then the camera, then the task's own criterion."""
    shows = all_met(_boxes(trial, HALF))
    earned = {True: "earned", False: "not earned", None: "not decided"}[shows]
    yield Criterion("task 1", earned, "boxes that show the digits", shows, HALF, code=TOO_FEW)
    calls = ", ".join(f"{name} {trial.frame_ms(name):.1f} ms" for name in ("yours", "reference", *SLOW))
    if not trial.can_tell:
        yield Criterion(
            "a camera that the reference follows and PyTorch and the first version do not", calls, "a gap", None, HALF
        )
        return
    if absent(reference):  # what is too slow for the slowest camera is too slow for the grader's
        trial = replace(trial, slowest_camera=True)
    yield Criterion("a call", calls, f"a camera's period of {trial.period_ms:.1f} ms", True)
    for needed_for in (HALF, ALL):
        yield check(trial, needed_for)
    if absent(reference):
        yield open_without_reference("the grader's camera", f"a period of at most {trial.period_ms:.1f} ms", HALF)


def _boxes(trial: Trial, needed_for: str) -> list[Criterion]:
    yours, given = trial.quality, trial.given
    share, false = (FULL_AP, FULL_FALSE) if needed_for == ALL else (PARTIAL_AP, PARTIAL_FALSE)
    return [
        Criterion(
            "mAP",
            f"{yours.mean_ap:.3f} ({_percent(trial.mean_ap_share)} of the given {given.mean_ap:.3f})",
            f"at least {share * given.mean_ap:.3f} ({100 * share:g} %)",
            reaches_threshold(trial.mean_ap_share, share),
            needed_for,
            _hint_for_boxes(trial),
            TOO_FEW,
        ),
        Criterion(
            "share of false boxes",
            f"{100 * yours.false_share:.1f} % ({_percent(trial.false_share)} of the given {100 * given.false_share:.1f} %)",
            f"at most {100 * false * given.false_share:.1f} % ({100 * false:g} %)",
            _at_most(trial.false_share, false),
            needed_for,
            _hint_for_boxes(trial),
            TOO_FEW,
        ),
    ]


def _latency(trial: Trial, needed_for: str = ALL) -> Criterion:
    periods = BUDGET if needed_for == ALL else PARTIAL_BUDGET
    met, found = _at_most(trial.p99_periods, periods), trial.p99_periods
    if met is False and trial.reference_replay.p99_ms > periods * trial.period_ms:
        met = None  # the machine is so busy that the reference is late as well
    return Criterion(
        "latency that 99 % of the frames stay under",
        f"{trial.replay.p99_ms:.1f} ms = {found.median:.2f} periods [{found.low:.2f}-{found.high:.2f}]",
        f"at most {periods * trial.period_ms:.1f} ms = {periods:g} periods, without any allowance",
        met,
        needed_for,
        _hint_for_latency(trial),
    )


def _lost(trial: Trial, needed_for: str = ALL) -> Criterion:
    most = FULL_LOST if needed_for == ALL else PARTIAL_LOST
    met = _at_most(trial.lost_share, most)
    if met is False and trial.reference_replay.lost_share > most:
        met = None
    return Criterion(
        "lost frames", _percent(trial.lost_share), f"at most {100 * most:g} %", met, needed_for, _hint_for_frames(trial)
    )


def _at_most(interval: Interval, bound: float) -> bool | None:
    """Whether a value is at most `bound`: yes, no, or None if its interval contains the bound."""
    return True if interval.high <= bound else False if interval.low > bound else None


def _percent(share: Interval) -> str:
    return f"{100 * share.median:.1f} % [{100 * share.low:.1f}-{100 * share.high:.1f}]"


def _hint_for_boxes(trial: Trial) -> str:
    """The most likely cause, found by exclusion: first the network's accuracy, then the effect of the settings."""
    settings, given = trial.settings, trial.given
    if trial.detected.false_share > FULL_FALSE * given.false_share:
        if settings.overlap >= _MANY_OVERLAP:
            return "Several boxes for one digit all count as found only once. Which setting removes the doubles?"
        return "Many boxes show no digit. Draw precision over recall: where on that curve does your `confidence` put you?"
    if trial.detected.mean_ap >= FULL_AP * given.mean_ap:
        if trial.replay.lost_share > FULL_LOST:
            return "The detector itself is good enough, but a lost frame shows no boxes. Task 3 first."
        return "The detector itself is good enough, but the digits have moved on by the time a skipped frame shows their old boxes."
    if trial.detected.found_share < given.found_share and settings.confidence >= _STRICT:
        return "Digits are missed rather than misplaced. What happens to those whose score is just below your `confidence`?"
    if trial.detected.mean_ap < 0.2:
        return (
            "The network sees hardly anything. It is fed pixels from 0 to 1 at `size` x `size` and answers in pixels of that input: "
            "which of these does your graph, or your calibration data, do otherwise?"
        )
    return "Compare the answers to one frame with PyTorch's, step by step: export, size, quantization. Which step moves scores or boxes?"


def _hint_for_latency(trial: Trial) -> str:
    settings = trial.settings
    if settings.batch > 1:
        waits = (settings.batch - 1) * settings.every * trial.period_ms
        return f"The first frame of a batch of {settings.batch} waits {waits:.1f} ms for the last one. Is the call worth that?"
    if trial.frame_ms("yours") > settings.every * trial.period_ms:
        return "Frames come faster than they are answered, so the queue is full. What makes a call shorter: precision, size, suppression?"
    return "A call is only slightly shorter than the period: after one slow call, the next frames wait. What else could you leave out?"


def _hint_for_frames(trial: Trial) -> str:
    if trial.frame_ms("yours") < trial.settings.every * trial.settings.batch * trial.period_ms:
        return "On average the detector is fast enough. How many frames can wait while one call is slow?"
    return "A longer queue loses fewer frames for a moment and adds lasting latency. How many calls does the camera ask for in a second?"
