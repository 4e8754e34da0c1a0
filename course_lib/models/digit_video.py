"""Endless video with known boxes, made from a seed: real handwritten digits that move over real photographs.

Source of the photographs: "china.jpg" and "flower.jpg", which scikit-learn ships (CC BY). Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from course_lib.models.digit_dataset import bilinear_matrix, digits, perturb

SIDE = 128  # pixels of a frame, both ways
SCENE_FRAMES = 25  # after that many frames the camera looks elsewhere, at other digits
DIGITS = (2, 4)  # fewest and most in a scene
HEIGHTS = (20.0, 38.0)  # pixels, before a digit grows and shrinks by a fifth
FASTEST = 4.0  # pixels per frame along each axis
_INK_SEEN = 0.3  # ink from which a pixel belongs to a digit's box


@dataclass(frozen=True)
class Frame:
    """One image of a video with its boxes and classes.

    Attributes:
        image: uint8, shape ``(128, 128)``, gray.
        boxes: float32, shape ``(n, 4)``: center x, center y, width and height in pixels, x to the right and y down.
        classes: int64, shape ``(n,)``, the digit 0-9 in each box.
    """

    image: np.ndarray
    boxes: np.ndarray
    classes: np.ndarray


@dataclass(frozen=True)
class _Actor:
    """A moving digit: cut out tightly, it bounces between the edges, grows and shrinks."""

    ink: np.ndarray
    digit: int
    height: float
    start: np.ndarray  # in [0, 1) of the way that it has
    velocity: np.ndarray  # pixels per frame
    phase: float
    brightness: float

    def at(self, time: int) -> tuple[np.ndarray, int, int]:
        """Its ink, resized, and the pixel of its upper left corner, as row and column."""
        height = round(self.height * (1 + 0.2 * np.sin(self.phase + time / 8)))
        width = max(round(height * self.ink.shape[1] / self.ink.shape[0]), 4)
        free = SIDE - np.array([height, width])
        there = (self.start * free + self.velocity * time) % (2 * free)
        row, column = np.rint(np.minimum(there, 2 * free - there)).astype(int)  # back at each edge
        ink = bilinear_matrix(self.ink.shape[0], height) @ self.ink @ bilinear_matrix(self.ink.shape[1], width).T
        return ink, int(row), int(column)


def video(seed: int, *, split: Literal["train", "test"] = "test", scene_frames: int = SCENE_FRAMES) -> Iterator[Frame]:
    """Endless frames. The same arguments give the same frames.

    Args:
        seed: seed of all random choices.
        split: the part of the scans to use. No checkpoint was trained on "test".
        scene_frames: length of a scene; 1 makes every frame its own picture, for training.
    """
    scans = digits(split)
    return _frames(np.random.default_rng(seed), scans.images, scans.labels, scene_frames)


def prepared(images: np.ndarray, side: int = SIDE, *, channels: int = 1) -> np.ndarray:
    """Frames as the input of a detector: float32 in [0, 1], ``(N, channels, side, side)``.

    Args:
        images: uint8, ``(N, 128, 128)``.
        side: size in pixels. If it is not 128, frames are resized bilinearly.
        channels: with 3, the gray values are repeated for detectors that expect colors.
    """
    pixels = images.astype(np.float32) / 255
    if side != SIDE:
        weights = bilinear_matrix(SIDE, side).astype(np.float32)
        pixels = weights @ pixels @ weights.T
    return np.ascontiguousarray(np.broadcast_to(pixels[:, None], (len(pixels), channels, side, side)))


def _frames(rng: np.random.Generator, images: np.ndarray, labels: np.ndarray, scene_frames: int) -> Iterator[Frame]:
    while True:
        backdrop, pan = _backdrop(rng), rng.uniform(-1, 1, 2)
        chosen = rng.choice(len(images), rng.integers(DIGITS[0], DIGITS[1] + 1), replace=False)
        moved = perturb(images[chosen], rng)[:, 0]
        actors = [_actor(rng, ink, int(label)) for ink, label in zip(moved, labels[chosen], strict=True)]
        for time in range(scene_frames):
            yield _frame(rng, backdrop, pan, actors, time)


def _frame(rng: np.random.Generator, backdrop: np.ndarray, pan: np.ndarray, actors: list[_Actor], time: int) -> Frame:
    room = np.array(backdrop.shape) - SIDE
    row, column = (room / 2 + np.clip(pan * time, -room / 2, room / 2)).astype(int)
    canvas = backdrop[row : row + SIDE, column : column + SIDE].copy()
    boxes = []
    for actor in actors:
        ink, top, left = actor.at(time)
        height, width = ink.shape
        part = canvas[top : top + height, left : left + width]
        part += np.clip(1.2 * ink, 0, 1) * (actor.brightness - part)
        boxes.append((left + width / 2, top + height / 2, width, height))
    canvas += rng.normal(0, 5, canvas.shape)
    image = np.clip(canvas, 0, 255).astype(np.uint8)
    return Frame(image, np.array(boxes, np.float32), np.array([actor.digit for actor in actors]))


def _actor(rng: np.random.Generator, ink: np.ndarray, digit: int) -> _Actor:
    rows, columns = (np.flatnonzero(ink.max(axis) > _INK_SEEN) for axis in (1, 0))
    tight = np.clip(ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1], 0, 1)
    return _Actor(
        ink=tight,
        digit=digit,
        height=rng.uniform(*HEIGHTS),
        start=rng.uniform(0, 1, 2),
        velocity=rng.uniform(-FASTEST, FASTEST, 2),
        phase=rng.uniform(0, 2 * np.pi),
        brightness=rng.uniform(200, 255),
    )


def _backdrop(rng: np.random.Generator) -> np.ndarray:
    """A piece of a photograph, somewhat larger than a frame, dimmed so that white ink shows: float32."""
    photo = _photographs()[rng.integers(2)]
    side = SIDE + 32
    row, column = rng.integers(0, np.array(photo.shape) - side + 1)
    piece = photo[row : row + side, column : column + side]
    return piece[:, ::-1] if rng.random() < 0.5 else piece


@lru_cache(maxsize=1)
def _photographs() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_sample_image

    china, flower = (20 + 0.55 * load_sample_image(name).mean(axis=2, dtype=np.float32) for name in ("china.jpg", "flower.jpg"))
    return china, flower
