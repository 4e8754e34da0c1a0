"""The parts of lab 15's pipeline against independent implementations: suppression, the queue, calls, the settings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import EngineError, RecipeError
from course_lib.labs.lab15_capstone.given import CANDIDATES, MAX_BYTES, SHOWN, Detector, Settings, detections, replay
from course_lib.models.digit_boxes import Detections, iou
from course_lib.models.digit_video import SIDE


def boxes(rng, n) -> np.ndarray:
    return np.column_stack([rng.uniform(16, 48, (n, 2)), rng.uniform(6, 30, (n, 2))])


def answer(found, scores, classes, *, of=10) -> np.ndarray:
    """One frame in YOLO's layout."""
    rows = np.zeros((1, 4 + of, len(scores)), np.float32)
    rows[0, :4] = np.asarray(found).T
    rows[0, 4 + np.asarray(classes), np.arange(len(scores))] = scores
    return rows


def slow_suppression(found, scores, classes, threshold) -> list[int]:
    kept: list[int] = []
    for index in sorted(range(len(scores)), key=lambda i: -scores[i]):
        if all(
            classes[index] != classes[k] or iou(found[index : index + 1], found[k : k + 1])[0, 0] <= threshold for k in kept
        ):
            kept.append(index)
    return kept


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.5, 1.0])
def test_suppression_keeps_what_the_slow_one_keeps(threshold):
    rng = np.random.default_rng(3)
    found, scores, classes = boxes(rng, 40).astype(np.float32), rng.uniform(0.3, 1, 40), rng.integers(0, 3, 40)
    (got,) = detections(answer(found, scores, classes), Settings(confidence=0.2, overlap=threshold), scale=2.0)
    kept = slow_suppression(found.astype(np.float64), scores, classes, threshold)
    np.testing.assert_allclose(got.boxes, 2 * found[kept])
    np.testing.assert_array_equal(got.classes, classes[kept])
    np.testing.assert_allclose(got.scores, scores[kept], rtol=1e-6)


def test_a_detector_of_more_classes_names_the_ten():
    columns = list(range(70, 60, -1))
    rows = answer([(10, 10, 8, 8), (40, 40, 8, 8)], [0.9, 0.8], [70, 5], of=80)
    (got,) = detections(rows, Settings(confidence=0.5, classes=columns), scale=1.0)
    assert got.classes.tolist() == [0] and len(got) == 1  # channel 5 is none of the ten


def test_a_bomb_of_boxes_costs_no_more_and_nan_shows_nothing():
    rng = np.random.default_rng(0)
    many = rng.uniform(0, 128, (1, 14, 25_200)).astype(np.float32)
    (got,) = detections(many, Settings(confidence=0.0, overlap=1.0), scale=1.0)
    assert len(got) == SHOWN < CANDIDATES
    for bad in (np.nan, np.inf, -1e30):
        rows = answer([(10, 10, bad, 8), (40, 40, 8, 8)], [0.9, 0.8], [1, 2])
        assert detections(rows, Settings(), scale=1.0)[0].classes.tolist() == [2]
    assert len(detections(np.full((1, 14, 9), np.nan, np.float32), Settings(), scale=1.0)[0]) == 0


@pytest.mark.parametrize("shape", [(1, 13, 9), (1, 14), (1, 14, 0)])
def test_another_layout_is_rejected(shape):
    with pytest.raises(EngineError, match="expected floats"):
        detections(np.zeros(shape, np.float32), Settings(), scale=1.0)
    with pytest.raises(EngineError, match="expected floats"):
        detections(np.zeros((1, 14, 9), np.int64), Settings(), scale=1.0)


# ---- the queue


def test_a_fast_detector_answers_every_frame_in_its_own_time():
    replayed = replay(np.full(50, 3.0), 50, Settings(), period_ms=4.0)
    assert replayed.lost_share == 0 and replayed.p99_ms == pytest.approx(3.0) and replayed.waiting.max() == 0


def test_a_slow_detector_loses_frames_or_is_late():
    """6 ms a frame at a period of 4: a third of the frames cannot be answered, whatever the queue does."""
    short, long = (replay(np.full(300, 6.0), 300, Settings(queue=queue), period_ms=4.0) for queue in (1, 20))
    assert short.lost_share == pytest.approx(1 / 3, abs=0.02)
    assert long.lost_share == pytest.approx(1 / 3 - 20 / 300, abs=0.01)  # the last 20 still wait
    assert short.p99_ms <= 6 + 6 and long.p99_ms > 80


def test_one_pause_is_caught_up_with_where_the_queue_is_long_enough():
    calls = np.full(100, 2.0)
    calls[40] = 14.0
    assert replay(calls, 100, Settings(queue=1), period_ms=4.0).lost_share == 0.02
    caught_up = replay(calls, 100, Settings(queue=3), period_ms=4.0)
    assert caught_up.lost_share == 0 and caught_up.latency_ms[48:].max() == pytest.approx(2.0)


@pytest.mark.parametrize(("drop", "lost"), [("oldest", [1]), ("newest", [2])])
def test_which_frame_is_lost(drop, lost):
    replayed = replay(
        np.array([9.0, 1.0, 1.0]), 4, Settings(drop=drop), period_ms=4.0
    )  # frames 1 and 2 come while 0 is detected
    assert np.flatnonzero(np.isnan(replayed.latency_ms)).tolist() == lost


def test_the_first_frame_of_a_batch_waits_for_the_last():
    replayed = replay(np.full(20, 5.0), 80, Settings(batch=8, queue=8), period_ms=4.0)
    np.testing.assert_allclose(replayed.latency_ms.reshape(10, 8), np.tile(7 * 4.0 - np.arange(8) * 4.0 + 5.0, (10, 1)))


def test_skipped_frames_show_the_boxes_of_the_one_before_and_lost_ones_none():
    replayed = replay(np.array([18.0, 1.0, 1.0]), 3, Settings(every=2), period_ms=4.0)
    each = [Detections(np.full((1, 4), 9.0), np.array([0.9]), np.array([digit])) for digit in (1, 2, 3)]
    shown = [tuple(boxes.classes) for boxes in replayed.shown(each, 6)]
    assert np.isnan(replayed.latency_ms).tolist() == [False, True, False]
    assert shown == [(1,), (1,), (), (), (3,), (3,)]


@given(
    st.lists(st.floats(0.1, 50), min_size=1, max_size=30),
    st.integers(1, 4),
    st.integers(0, 6),
    st.sampled_from(["oldest", "newest"]),
)
def test_whatever_happens_frames_are_answered_in_order_and_never_early(calls, batch, more, drop):
    settings = Settings(batch=batch, queue=batch + more, drop=drop)
    replayed = replay(np.array(calls), 40, settings, period_ms=4.0)
    answered = np.flatnonzero(~np.isnan(replayed.latency_ms))
    done = answered * 4.0 + replayed.latency_ms[answered]
    assert len(answered) and (np.diff(done) >= 0).all() and (replayed.latency_ms[answered] >= min(calls) - 1e-9).all()
    assert replayed.waiting.max() <= settings.queue


# ---- settings.toml


def load(folder: Path, text: str | bytes) -> Settings:
    path = folder / "settings.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Settings.load(path)


def test_settings_come_back_as_they_were_written(tmp_path):
    written = Settings(size=96, confidence=0.25, batch=2, queue=4, drop="newest", classes=list(range(9, -1, -1)))
    written.save(tmp_path / "settings.toml")
    assert Settings.load(tmp_path / "settings.toml") == written
    assert load(tmp_path, "confidence = 0.4") == Settings(confidence=0.4)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("confidence = nan", "confidence"),
        ("confidence = 40", "less than or equal to 1, found 40"),
        ('batch = "8"', "batch"),
        ("batch = 8", "queue = 1 holds less than a batch of 8"),
        ("every = 0", "every"),
        ('drop = "none"', "'oldest' or 'newest', found 'none'"),
        ("threshold = 0.3", "unknown key 'threshold'; known keys are batch, classes"),
        ("classes = [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]", "must differ"),
        ("size = ", "is not TOML"),
        ("#" * (MAX_BYTES + 1), "longer than"),
        ("size" + ".a" * 3000 + " = 1", "nested too deep"),
    ],
)
def test_wrong_settings_get_one_clear_line(tmp_path, text, complaint):
    with pytest.raises(RecipeError, match=r"^settings\.toml") as caught:
        load(tmp_path, text)
    assert complaint in str(caught.value) and "\n" not in str(caught.value) and len(str(caught.value)) < 300
    assert caught.value.code == "settings.toml"  # by which the lab has its hint


# ---- calls


class Echo:
    """A detector that shows one box in each frame, of the class that is the frame's gray value."""

    def __init__(self, channels: int = 1, extra: int = 0) -> None:
        self.worker = SimpleNamespace(inputs=[SimpleNamespace(name="images", shape=(-1, channels, 64, 64))])
        self.channels, self.extra = channels, extra

    def infer(self, feeds):
        assert feeds["images"].shape[1:] == (self.channels, 64, 64)
        classes = (255 * feeds["images"][:, 0, 0, 0]).round().astype(int)
        rows = [answer([(10, 10, 8, 8)], [0.9], [digit]) for digit in (*classes, *[0] * self.extra)]
        return {"output0": np.concatenate(rows)}


@pytest.mark.parametrize(("frames", "batch", "channels"), [(1, 1, 1), (7, 1, 3), (7, 4, 1), (8, 4, 3)])
def test_calls_answer_every_frame_in_order(frames, batch, channels):
    images = np.ones((frames, SIDE, SIDE), np.uint8) * np.arange(frames, dtype=np.uint8)[:, None, None]
    shown = Detector(Echo(channels), Settings(size=64, batch=batch, queue=batch), images).answers()
    assert [boxes.classes.tolist() for boxes in shown] == [[k] for k in range(frames)]
    assert shown[0].boxes.tolist() == [[20, 20, 16, 16]], "in pixels of the frame"


def test_a_detector_answers_as_many_frames_as_it_gets():
    with pytest.raises(EngineError, match="answers 3 frames of a batch of 2"):
        Detector(Echo(extra=1), Settings(size=64, batch=2, queue=2), np.zeros((4, SIDE, SIDE), np.uint8)).answers()
