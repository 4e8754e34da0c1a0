"""Training of the detector's checkpoint: ``python -m course_lib.models.training detector``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import torch
from rich.progress import track
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, interpolate

from course_lib.models import weights
from course_lib.models.digit_video import SIDE, Frame, video
from course_lib.models.grid_detector import STRIDE, Detector, detector

STEPS, BATCH, LEARNING_RATE, WEIGHT_DECAY = 1250, 16, 5e-3, 0.01
SIDES = (96, 112, 128)  # frames are shown at all of these, so that the network may be exported at each
_NEAR = 0.3  # part of a box around its center whose cells have to find it


def train_detector(*, seed: int = 0, progress: bool = True, steps: int = STEPS) -> float:
    """Train the detector from scratch and write its checkpoint.

    Args:
        seed: seed of the initial weights and of the frames.
        progress: show a bar.
        steps: number of batches of 16 frames. No frame occurs twice.

    Returns:
        The mean loss of the last fifty steps.
    """
    rng = np.random.default_rng(seed)
    losses = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        grids = {side: detector(side, pretrained=False).centers for side in SIDES}
        model = detector(SIDE, pretrained=False).train()
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # CPU convolutions train in half the time
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=WEIGHT_DECAY)
        rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
        for frames in track(_batches(seed, steps), "training detector", total=steps, disable=not progress):
            side = int(rng.choice(SIDES))
            model.side, model.centers = side, grids[side]
            optimizer.zero_grad()
            loss = _loss(model, frames)
            loss.backward()
            optimizer.step()
            rate.step()
            losses.append(loss.item())
    weights.save(model.eval(), "detector")
    return float(np.mean(losses[-50:]))


def _batches(seed: int, steps: int) -> Iterator[list[Frame]]:
    frames = video(seed, split="train", scene_frames=1)
    for _ in range(steps):
        yield list(itertools.islice(frames, BATCH))


def _loss(model: Detector, frames: list[Frame]) -> Tensor:
    """Objectness everywhere; class and box at the cells in the middle of a digit."""
    images = torch.from_numpy(np.stack([frame.image for frame in frames])[:, None]).float() / 255
    scale = model.side / SIDE
    if scale != 1:
        images = interpolate(images, size=(model.side, model.side), mode="bilinear", align_corners=False)
    raw = model.raw(images)
    centers = model.centers.numpy()
    targets = [_targets(scale * frame.boxes, centers) for frame in frames]
    owner = torch.from_numpy(np.stack(targets))  # (N, cells): which box of its frame a cell has to find, -1 for none
    busy = owner >= 0
    objectness = binary_cross_entropy_with_logits(raw[:, 4], busy.float(), reduction="sum")
    image, cell = torch.nonzero(busy, as_tuple=True)
    box = torch.stack(
        [torch.from_numpy(frames[i].boxes)[owner[i, c]] for i, c in zip(image.tolist(), cell.tolist(), strict=True)]
    )
    digit = torch.stack(
        [torch.tensor(frames[i].classes[owner[i, c]]) for i, c in zip(image.tolist(), cell.tolist(), strict=True)]
    )
    classes = cross_entropy(raw[image, 5:, cell], digit, reduction="sum")
    overlap = _iou(model.boxes(raw)[image, :, cell], scale * box)
    return (objectness + classes + 2 * (1 - overlap).sum()) / len(box)


def _targets(boxes: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """The box that each cell must find, -1 for none. These are the cells near a box's center, at least the one that contains it."""
    owner = np.full(centers.shape[1], -1)
    for index, (x, y, width, height) in enumerate(boxes):
        away_x, away_y = np.abs(centers[0] - x), np.abs(centers[1] - y)
        owner[(away_x <= max(_NEAR * width / 2, STRIDE / 2)) & (away_y <= max(_NEAR * height / 2, STRIDE / 2))] = index
    return owner


def _iou(ours: Tensor, truth: Tensor) -> Tensor:
    """Generalized intersection over union of pairs of boxes (Rezatofighi et al. 2019), in (-1, 1]."""
    low, high = ours[:, :2] - ours[:, 2:] / 2, ours[:, :2] + ours[:, 2:] / 2
    true_low, true_high = truth[:, :2] - truth[:, 2:] / 2, truth[:, :2] + truth[:, 2:] / 2
    inside = (torch.minimum(high, true_high) - torch.maximum(low, true_low)).clamp(min=0).prod(1)
    union = ours[:, 2:].prod(1) + truth[:, 2:].prod(1) - inside
    around = (torch.maximum(high, true_high) - torch.minimum(low, true_low)).prod(1)
    return inside / union - (around - union) / around
