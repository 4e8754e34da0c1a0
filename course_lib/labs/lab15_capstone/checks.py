"""What is looked at in each task of lab 15: boxes, latency and lost frames of one trial, each with its interval."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from course_lib.benchmark import Interval, compare
from course_lib.benchmark.statistics import resampled
from course_lib.engines import ModelSource, Plan
from course_lib.errors import EngineError
from course_lib.labs.framework import onnx_model
from course_lib.labs.framework.criteria import ALL, HALF, TOO_FEW, Criterion, all_met, open_without_reference, reaches_threshold
from course_lib.labs.framework.examination import Examiner, ours
from course_lib.labs.framework.lab import Work, absent, step
from course_lib.labs.framework.submission import model_and_recipe
from course_lib.labs.lab15_capstone import given, reference
from course_lib.labs.lab15_capstone.given import BUDGET, FILE, FIRST, SLOW, WHOLE_CURVE, Detector, Replay, Settings, Trial
from course_lib.models.digit_boxes import Quality, matched
from course_lib.models.digit_video import video

CallTimes = Mapping[str, np.ndarray]  # by detector, in milliseconds, (calls,)
AP = {ALL: 0.94, HALF: 0.82}  # of the given detector's mean average precision on the same frames, with its whole curve
FALSE = {ALL: 0.5, HALF: 0.85}  # of the share of false boxes in that curve
PERIODS = {ALL: BUDGET, HALF: 3.0}
LOST = {ALL: 0.01, HALF: 0.05}  # share of the frames that were sent to the detector
FRAMES = 1000
FRAMES_PER_CALL = 8  # one call of each detector is timed for this many frames
# Times the reference's time and a little: a detector that needs longer for a frame is not waited for.
SLOWEST, _GRACE_MS = 10.0, 2.0
PASSES = 3  # the fastest of a call's times counts, so that no frame pays for a pause of the machine
_FRAME_S = 0.03  # what all detectors take for a frame, on a CPU
_NEIGHBORS = 31  # calls of the reference that tell how fast the machine was at that moment
_RESAMPLES = 200


class PipelineWork(Work):
    """A submission of lab 15: one trial that all tasks share."""

    frames = FRAMES

    @step
    def trial(self) -> JudgedTrial:
        """The submission, the reference, the first version and PyTorch's detector on a new video."""
        examiner, started = self.examiner, self.enter_context
        theirs = WHOLE_CURVE if absent(reference) else reference.SETTINGS
        settings = {"eager": WHOLE_CURVE, "first": FIRST, "reference": theirs, "yours": Settings.load(self.folder / FILE)}
        plan = onnx_model.runnable(self.graph, self.files[1], examiner, self.plan)
        examiner.begins(f"detect: four detectors on {self.frames} new frames", self.frames * _FRAME_S)
        engines = {
            "yours": started(examiner.engine(plan)),
            "eager": started(examiner.baseline(ModelSource("course_lib.models:detector"))),
        }
        with ours():
            engines |= {name: started(examiner.reference(plan)) for name, plan in _rivals(examiner.for_ours).items()}
        scenes = list(itertools.islice(video(examiner.drawn_seed()), self.frames))
        images = np.stack([scene.image for scene in scenes])
        detectors = {name: Detector(engines[name], own, images[:: own.every]) for name, own in settings.items()}
        own_ms, reference_ms = (
            min(detectors[name].time_ms({"start": np.array(0)}) for _ in range(5)) for name in ("yours", "reference")
        )
        if own_ms / (settings["yours"].batch * settings["yours"].every) > SLOWEST * (reference_ms + _GRACE_MS):
            longer = f"a call takes {own_ms:.0f} ms, the reference's {reference_ms:.1f} ms"
            raise EngineError(f"{longer}: that cannot keep up with the camera")
        found = {name: detectors[name].answers() for name in ("yours", "eager")}
        made = partial(JudgedTrial, scenes, settings, found)
        calls, limit_s = max(self.frames // FRAMES_PER_CALL, 4), 2 * examiner.measure_s
        trial = made(examiner.measured(lambda: call_times(detectors, calls, lambda call_ms: decided(made(call_ms)), limit_s)))
        self.figures |= {**asdict(trial.quality), "mean_ap_given": trial.given.mean_ap, "period_ms": trial.period_ms}
        self.figures |= {"p99_ms": trial.replay.p99_ms, "lost_share": trial.replay.lost_share}
        self.figures |= {f"{name}_ms": trial.frame_ms(name) for name in settings}
        return trial


def _rivals(examiner: Examiner) -> dict[str, Plan]:
    """The plans of the reference and of the first version. Where the reference is absent, the given detector takes its place."""
    first, whole_curve = (partial(given.write, settings=settings) for settings in (FIRST, WHOLE_CURVE))
    plans = {}
    for name, write in {"reference": whole_curve if absent(reference) else reference.write, "first": first}.items():
        with TemporaryDirectory() as folder:
            write(Path(folder))
            plans[name] = onnx_model.runnable(*model_and_recipe(Path(folder)), examiner)
    return plans


def call_times(
    detectors: Mapping[str, Detector], calls: int, decided: Callable[[CallTimes], bool], time_limit_s: float
) -> CallTimes:
    """Times of so many calls of each detector, which are spread over the video and repeated until they decide."""
    starts = itertools.cycle(range(0, FRAMES_PER_CALL * calls, FRAMES_PER_CALL))

    def fastest(latencies: CallTimes) -> CallTimes:
        """Of each call, at a constant speed of the machine, which the times of the reference show."""
        near = sliding_window_view(np.pad(latencies["reference"], _NEIGHBORS // 2, mode="reflect"), _NEIGHBORS)
        pace = np.median(near, axis=1) / np.median(latencies["reference"])
        return {
            name: np.array([one.min() for k in range(calls) if len(one := (ms / pace)[k::calls])])
            for name, ms in latencies.items()
        }

    comparison = compare(
        detectors,
        lambda: {"start": np.array(next(starts))},
        baseline="reference",
        time_limit_s=time_limit_s,
        min_rounds=PASSES * calls,
        settled=lambda latencies: decided(fastest(latencies)),
    )
    return fastest(comparison.latencies())


class JudgedTrial(Trial):
    """A trial with intervals: of other orders of the measured calls, and of other videos, made of stretches of this one."""

    @cached_property
    def reference_replay(self) -> Replay:
        """The reference loses frames or is late only on a machine that is busy."""
        return self.replayed("reference", self.call_ms["reference"])

    @cached_property
    def _replays(self) -> list[Replay]:
        call_ms = self.call_ms["yours"]
        return [self.replayed("yours", call_ms[picked]) for picked in resampled(len(call_ms), 0, _RESAMPLES)]

    @cached_property
    def _qualities(self) -> list[list[Quality]]:
        both = self.shown, self.whole_curve
        return [[boxes.resampled(picked).quality() for boxes in both] for picked in resampled(len(self.frames), 0, _RESAMPLES)]

    def over_calls(self, value: Callable[[Replay], float]) -> Interval:
        """A value of the replay."""
        return _interval(value(self.replay), [value(replay) for replay in self._replays])

    def over_videos(self, value: Callable[[Quality], float]) -> Interval:
        """A value of the boxes divided by that of the given detector's: videos differ."""
        shares = [value(yours) / value(given) for yours, given in self._qualities]
        return _interval(value(self.quality) / value(self.given), shares)


def _interval(found: float, resampled: list[float]) -> Interval:
    low, high = np.percentile(resampled, [2.5, 97.5])
    return Interval(found, min(float(low), found), max(float(high), found))


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


def decided(trial: JudgedTrial) -> bool:
    """Whether these times decide the criteria of latency and frames."""
    criteria = (check(trial, needed_for) for check in (_latency, _lost) for needed_for in (ALL, HALF))
    return trial.can_tell and all(criterion.met is not None for criterion in criteria)


def _at_the_cameras_rate(trial: JudgedTrial, check: Callable[[JudgedTrial, str], Criterion]) -> Iterator[Criterion]:
    """Task 1 first: a detector that does not show the digits does not have a latency. Then the camera, then the task's own criterion."""
    shows = all_met(_boxes(trial, HALF))
    earned = {True: "earned", False: "not earned", None: "not decided"}[shows]
    yield Criterion("task 1", earned, "boxes that show the digits", shows, HALF, code=TOO_FEW)
    calls = ", ".join(f"{name} {trial.frame_ms(name):.1f} ms" for name in ("yours", "reference", *SLOW))
    if not trial.can_tell:
        gap = "a camera that the reference follows and PyTorch and the first version do not"
        yield Criterion(gap, calls, "a gap", None, HALF)
        return
    yield Criterion("a call", calls, f"a camera's period of {trial.period_ms:.1f} ms", True)
    for needed_for in (HALF, ALL):
        yield check(trial, needed_for)
    if absent(reference):  # it is at least as fast as the given detector, which takes its place
        yield open_without_reference("the grader's camera", f"a period of at most {trial.period_ms:.1f} ms", HALF)


def _boxes(trial: JudgedTrial, needed_for: str) -> Iterator[Criterion]:
    yours, given, hint = trial.quality, trial.given, _hint_for_boxes(trial)
    share, measured = AP[needed_for], trial.over_videos(lambda quality: quality.mean_ap)
    found = f"{yours.mean_ap:.3f} ({_percent(measured)} of the given {given.mean_ap:.3f})"
    bound = f"at least {share * given.mean_ap:.3f} ({100 * share:g} %)"
    yield Criterion("mAP", found, bound, reaches_threshold(measured, share), needed_for, hint, TOO_FEW)
    share, measured = FALSE[needed_for], trial.over_videos(lambda quality: quality.false_share)
    found = f"{100 * yours.false_share:.1f} % ({_percent(measured)} of the given {100 * given.false_share:.1f} %)"
    bound = f"at most {100 * share * given.false_share:.1f} % ({100 * share:g} %)"
    yield Criterion("share of false boxes", found, bound, _at_most(measured, share), needed_for, hint, TOO_FEW)


def _latency(trial: JudgedTrial, needed_for: str) -> Criterion:
    most, period_ms = PERIODS[needed_for], trial.period_ms
    measured = trial.over_calls(lambda replay: replay.p99_ms / period_ms)
    found = f"{trial.replay.p99_ms:.1f} ms = {measured.median:.2f} periods [{measured.low:.2f}-{measured.high:.2f}]"
    bound = f"at most {most * period_ms:.1f} ms = {most:g} periods, without any allowance"
    met = _at_most(measured, most, trial.reference_replay.p99_ms / period_ms)
    return Criterion("latency that 99 % of the frames stay under", found, bound, met, needed_for, _hint_for_latency(trial))


def _lost(trial: JudgedTrial, needed_for: str) -> Criterion:
    most, measured = LOST[needed_for], trial.over_calls(lambda replay: replay.lost_share)
    met = _at_most(measured, most, trial.reference_replay.lost_share)
    return Criterion("lost frames", _percent(measured), f"at most {100 * most:g} %", met, needed_for, _hint_for_frames(trial))


def _at_most(measured: Interval, bound: float, reference: float = 0.0) -> bool | None:
    """Whether a value is at most `bound`; None if it may be, or if the machine is so busy that the reference's value is not, either."""
    return True if measured.high <= bound else False if measured.low > bound >= reference else None


def _percent(share: Interval) -> str:
    return f"{100 * share.median:.1f} % [{100 * share.low:.1f}-{100 * share.high:.1f}]"


def _hint_for_boxes(trial: JudgedTrial) -> str:
    """The most likely cause, found by exclusion: first the network's accuracy, then the effect of the settings."""
    settings, given = trial.settings["yours"], trial.given
    detected = matched(trial.found["yours"], trial.frames[:: settings.every]).quality()  # in all sent frames, lost or not
    if detected.false_share > FALSE[ALL] * given.false_share:
        if settings.overlap >= 0.8:
            return "Several boxes for one digit all count as found only once. Which setting removes the doubles?"
        return "Many boxes show no digit. Draw precision over recall: where on that curve does your `confidence` put you?"
    if detected.mean_ap >= AP[ALL] * given.mean_ap:
        if trial.replay.lost_share > LOST[ALL]:
            return "The detector itself is good enough, but a lost frame shows no boxes. Task 3 first."
        return "The detector itself is good enough, but the digits have moved on by the time a skipped frame shows their old boxes."
    if detected.found_share < given.found_share and settings.confidence >= 0.5:
        return "Digits are missed rather than misplaced. What happens to those whose score is just below your `confidence`?"
    if detected.mean_ap < 0.2:
        return (
            "The network sees hardly anything. It is fed pixels from 0 to 1 at `size` x `size` and answers in pixels of that input: "
            "which of these does your graph, or your calibration data, do otherwise?"
        )
    return "Compare the answers to one frame with PyTorch's, step by step: export, size, quantization. Which step moves scores or boxes?"


def _hint_for_latency(trial: JudgedTrial) -> str:
    settings = trial.settings["yours"]
    if settings.batch > 1:
        waits = (settings.batch - 1) * settings.every * trial.period_ms
        return f"The first frame of a batch of {settings.batch} waits {waits:.1f} ms for the last one. Is the call worth that?"
    if trial.frame_ms("yours") > settings.every * trial.period_ms:
        return "Frames come faster than they are answered, so the queue is full. What makes a call shorter: precision, size, suppression?"
    return "A call is only slightly shorter than the period: after one slow call, the next frames wait. What else could you leave out?"


def _hint_for_frames(trial: JudgedTrial) -> str:
    if trial.frame_ms("yours") < trial.settings["yours"].every * trial.settings["yours"].batch * trial.period_ms:
        return "On average the detector is fast enough. How many frames can wait while one call is slow?"
    return "A longer queue loses fewer frames for a moment and adds lasting latency. How many calls does the camera ask for in a second?"
