"""Lab 15's figures: a frame with its boxes, precision over recall, latencies against the limit, the queue over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from course_lib import style
from course_lib.labs.lab15_capstone.given import BUDGET, Trial
from course_lib.models.digit_video import SIDE


def frames(trial: Trial, chosen: Sequence[int]) -> style.Figure:
    """Frames by their number in the video, with the truth and with what the submission shows."""
    figure = style.figure(2.6)
    figure.suptitle(f"Found {100 * trial.quality.found_share:.0f} % of the digits in the whole video")
    for axes, number in zip(np.atleast_1d(figure.subplots(1, len(chosen))), chosen, strict=True):
        frame, found = trial.frames[number], trial.shown.found[number]
        axes.imshow(frame.image, cmap="gray", vmin=0, vmax=255, extent=(0, SIDE, SIDE, 0))
        for box in frame.boxes:
            _box(axes, box, style.color(2), "dashed", "")
        for box, digit, score in zip(found.boxes, found.classes, found.scores, strict=True):
            _box(axes, box, style.color(4), "solid", f"{digit}: {score:.2f}")
        axes.set(title=f"frame {number}", xticks=[], yticks=[])
    figure.supxlabel("dashed: truth; solid: shown, with class and score", fontsize=8)
    return figure


def precision_recall(trial: Trial) -> style.Figure:
    """Precision over recall of the submission and of the given detector, for all digits together."""
    figure, axes = style.subplots(3.4)
    subjects = {"given detector, PyTorch": trial.whole_curve, "yours, as shown": trial.shown}
    for index, (name, boxes) in enumerate(subjects.items()):
        recall, precision = boxes.curve()
        axes.plot(recall, precision, color=style.color(index), label=name, linestyle="--" if index else "-")
        if len(recall):
            axes.plot(recall[-1], precision[-1], "o", color=style.color(index))
    axes.set(
        xlabel="recall (share of the digits found)",
        ylabel="precision (share of\nthe boxes that are true)",
        xlim=(0, 1),
        ylim=(0, 1.03),
        title="`confidence` sets the end of the curve",
    )
    style.name_colors(axes)
    return figure


def latencies(trial: Trial) -> style.Figure:
    """Draw the time of frames from the camera to their boxes, with the 99th percentile and the limit."""
    figure, axes = style.subplots(3.0)
    known = trial.replay.latency_ms[~np.isnan(trial.replay.latency_ms)]
    axes.hist(known, bins=60, color=style.color(5))
    budget_ms = BUDGET * trial.period_ms
    fits = trial.replay.p99_ms <= budget_ms
    axes.set(
        xlabel="latency (ms)", ylabel="frames", title=f"The slowest percent {'stays within' if fits else 'misses'} the limit"
    )
    limits = {"p99": trial.replay.p99_ms, "budget": budget_ms, "period": trial.period_ms}
    hues = (style.color(1), "#555555", "#555555")
    style.mark_values(axes, {f"{name} {value:.1f} ms": value for name, value in limits.items()}, hues)
    return figure


def queue(trial: Trial) -> style.Figure:
    """Waiting frames over time, and when frames were lost."""
    figure, axes = style.subplots(2.8)
    replayed = trial.replay
    seconds = np.arange(len(replayed.waiting)) * replayed.period_ms * replayed.every / 1e3
    lost = np.isnan(replayed.latency_ms)
    axes.step(seconds, replayed.waiting, where="post", color=style.color(0), linewidth=0.8, label="waiting")
    axes.plot(seconds[lost], replayed.waiting[lost], "x", color=style.color(1), markersize=4, label="lost")
    axes.set(
        xlabel="time (s)",
        ylabel="frames in the queue",
        ylim=(0, max(replayed.waiting.max(), 1) * 1.15),
        title=f"{100 * replayed.lost_share:.1f} % of the frames were lost",
    )
    style.name_colors(axes)
    return figure


def _box(axes: style.Axes, box: np.ndarray, color: str, line: str, said: str) -> None:
    from matplotlib.patches import Rectangle

    x, y, width, height = box
    axes.add_patch(Rectangle((x - width / 2, y - height / 2), width, height, fill=False, edgecolor=color, linestyle=line))
    axes.text(x - width / 2, y - height / 2 - 2, said, color=color, fontsize=8, va="bottom", clip_on=True)
