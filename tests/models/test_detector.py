"""The video with its truth, and the detector that was trained on it."""

import itertools

import numpy as np
import pytest
import torch

from course_lib.labs.lab15_capstone.given import Settings, detections
from course_lib.models import detector, export_onnx, video, weights
from course_lib.models.digit_boxes import matched
from course_lib.models.digit_video import SIDE, prepared
from docs.make_checkpoints import train_detector
from tests.sessions import run


def frames(n: int, seed: int = 3, **options) -> list:
    return list(itertools.islice(video(seed, **options), n))


def test_the_same_seed_shows_the_same_video_and_another_one_another():
    first, again, other = frames(30), frames(30), frames(30, seed=4)
    assert all(np.array_equal(a.image, b.image) and np.array_equal(a.boxes, b.boxes) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0].image, other[0].image)


def test_digits_stay_in_the_frame_and_are_where_the_boxes_say():
    """A box is brighter than the frame around it, and its digit moves, but not far, from frame to frame."""
    shown = frames(100)
    for frame in shown:
        assert frame.image.shape == (SIDE, SIDE) and frame.image.dtype == np.uint8
        low, high = frame.boxes[:, :2] - frame.boxes[:, 2:] / 2, frame.boxes[:, :2] + frame.boxes[:, 2:] / 2
        assert (low >= 0).all() and (high <= SIDE).all() and len(frame.boxes) == len(frame.classes)
        for (left, top), (right, bottom) in zip(low.astype(int), high.astype(int), strict=True):
            assert np.percentile(frame.image[top:bottom, left:right], 90) > np.median(frame.image) + 20
    for before, after in itertools.pairwise(shown[:25]):  # one scene
        assert 0 < np.abs(after.boxes[:, :2] - before.boxes[:, :2]).max() < 8


def test_frames_are_prepared_for_other_sizes_and_colors():
    image = np.arange(SIDE, dtype=np.uint8)[None, None].repeat(SIDE, axis=1)  # brighter to the right
    assert prepared(image).max() == pytest.approx((SIDE - 1) / 255)
    small = prepared(image, 64, channels=3)
    assert small.shape == (1, 3, 64, 64) and small.dtype == np.float32
    np.testing.assert_allclose(small[0, 2, 5], (2 * np.arange(64) + 0.5) / 255, rtol=1e-5)  # pixel centers aligned


@pytest.mark.parametrize(("side", "least"), [(128, 0.82), (96, 0.72)])
def test_the_checkpoint_finds_digits_that_it_has_never_seen(side, least):
    shown = frames(150)
    with torch.no_grad():
        answer = detector(side)(torch.tensor(prepared(np.stack([frame.image for frame in shown]), side))).numpy()
    settings = Settings(size=side, confidence=0.2)
    assert matched(detections(answer, settings, scale=SIDE / side), shown).quality().mean_ap > least


@pytest.mark.parametrize("opset", [17, None])
def test_the_export_answers_like_torch_at_any_batch(opset):
    model = detector(64)
    exported = export_onnx(model, opset=opset)
    for batch in (1, 3):
        pixels = np.random.default_rng(0).random((batch, 1, 64, 64), dtype=np.float32)
        with torch.no_grad():
            np.testing.assert_allclose(run(exported, pixels), model(torch.tensor(pixels)).numpy(), rtol=1e-3, atol=1e-3)


def test_training_learns_and_is_the_same_from_the_same_seed(tmp_path, monkeypatch):
    monkeypatch.setattr(weights, "FOLDER", tmp_path)
    first, longer = train_detector(steps=2, progress=False), train_detector(steps=12, progress=False)
    assert longer < first
    assert train_detector(steps=2, progress=False) == first and (tmp_path / "detector.pt").stat().st_size < 1 << 20
