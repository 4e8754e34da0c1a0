"""What the tasks of lab 09 earn, and where to look when it is not everything."""

from __future__ import annotations

from course_lib.labs.base import Lab, Outcome
from course_lib.labs.lab09_trial import Trial

FULL_AP, PARTIAL_AP = 0.97, 0.85  # of the given detector's mean average precision on the same frames
FULL_FALSE, PARTIAL_FALSE = 0.05, 0.15  # how much larger than the given detector's the share of false boxes may be
PARTIAL_BUDGET = 2.0  # budgets
FULL_LOST, PARTIAL_LOST = 0.01, 0.05  # share of the frames beyond what the reference loses, which on a quiet machine is none
_MANY_OVERLAP, _STRICT = 0.8, 0.5  # settings from which they are the likeliest cause


def verdict(lab: Lab, trial: Trial) -> tuple[Outcome, ...]:
    """Outcomes of detect, latency and frames."""
    detect = _detect(lab, trial)
    if detect.tier == "none":
        wrong = "A detector that does not show the digits has no latency: get the boxes right first."
        return (detect, *lab.nothing(wrong, detect.hint, ("latency", "frames")))
    if not trial.can_tell:
        said = (
            f"The reference needs {trial.frame_ms('reference'):.1f} ms for a frame and PyTorch {trial.frame_ms('eager'):.1f}: "
            "on this machine no camera is too fast for one and slow enough for the other."
        )
        hint = "Was the machine busy? Try again; a grader's machine decides."
        return detect, *(lab.outcome(task, "inconclusive", said, hint, share=0.0) for task in ("latency", "frames"))
    return detect, _latency(lab, trial), _frames(lab, trial)


def _detect(lab: Lab, trial: Trial) -> Outcome:
    yours, given = trial.quality, trial.given
    share, excess = yours.mean_ap / given.mean_ap, yours.false_share - given.false_share
    message = (
        f"mAP {yours.mean_ap:.3f} on {len(trial.frames)} new frames, the given detector in PyTorch {given.mean_ap:.3f}; "
        f"{100 * yours.false_share:.0f} % of the boxes are false, there {100 * given.false_share:.0f} %."
    )
    if share >= FULL_AP and excess <= FULL_FALSE:
        return lab.outcome("detect", "full", message)
    message += f" Full points need {FULL_AP * given.mean_ap:.3f} and at most {100 * (given.false_share + FULL_FALSE):.0f} %."
    tier = "partial" if share >= PARTIAL_AP and excess <= PARTIAL_FALSE else "none"
    return lab.outcome("detect", tier, message, _hint_for_boxes(trial), share=0.5)


def _hint_for_boxes(trial: Trial) -> str:
    """The likeliest cause, found by taking the others away: what the network can do, then what the settings make of it."""
    settings, given = trial.settings, trial.given
    if trial.quality.false_share > given.false_share + FULL_FALSE:
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


def _latency(lab: Lab, trial: Trial) -> Outcome:
    replayed, period = trial.replay, trial.period_ms
    message = (
        f"99 % of the frames have their boxes within {replayed.p99_ms:.1f} ms, {replayed.p99_ms / period:.2f} periods of the camera "
        f"({period:.1f} ms). A call takes {trial.frame_ms('yours'):.1f} ms, the reference's {trial.frame_ms('reference'):.1f}, "
        f"PyTorch's {trial.frame_ms('eager'):.1f}."
    )
    if replayed.p99_ms <= trial.budget_ms:
        return lab.outcome("latency", "full", message)
    message += f" The budget is {trial.budget_ms:.1f} ms."
    tier = "partial" if replayed.p99_ms <= PARTIAL_BUDGET * trial.budget_ms else "none"
    return lab.outcome("latency", tier, message, _hint_for_latency(trial), share=0.5)


def _hint_for_latency(trial: Trial) -> str:
    settings = trial.settings
    if settings.batch > 1:
        waits = (settings.batch - 1) * settings.every * trial.period_ms
        return f"The first frame of a batch of {settings.batch} waits {waits:.1f} ms for the last one. Is the call worth that?"
    if trial.frame_ms("yours") > settings.every * trial.period_ms:
        return "Frames come faster than they are answered, so the queue is full. What makes a call shorter: precision, size, suppression?"
    return "A call is shorter than the period, but not by much: one slow call and the next frames wait. What else could go?"


def _frames(lab: Lab, trial: Trial) -> Outcome:
    lost, beyond = trial.replay.lost_share, trial.replay.lost_share - trial.lost_by_reference
    message = f"{100 * lost:.1f} % of the frames that were sent to the detector were lost."
    if beyond <= FULL_LOST:
        return lab.outcome("frames", "full", message)
    hint = "A longer queue loses fewer frames for a moment and adds latency for good. How many calls does the camera ask for in a second?"
    if trial.frame_ms("yours") < trial.settings.every * trial.settings.batch * trial.period_ms:
        hint = "On average the detector is fast enough. How many frames can wait while one call is slow?"
    tier = "partial" if beyond <= PARTIAL_LOST else "none"
    return lab.outcome("frames", tier, f"{message} Full points allow {100 * FULL_LOST:g} %.", hint, share=0.5)
