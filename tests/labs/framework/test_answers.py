"""Answers of engines, in whatever form they come."""

from __future__ import annotations

import json

import numpy as np
import pytest

from course_lib.errors import EngineError
from course_lib.labs import Examiner
from course_lib.labs.framework.racing import (
    NOT_FINITE_DB,
    check_every_size,
    decibels,
    fresh_images,
    logits,
)

IMAGES = np.random.default_rng(0).random((20, 1, 32, 32), dtype=np.float32)


class Engine:
    """Ten sums of each image; what it was sent is kept."""

    def __init__(self, change=lambda outputs: outputs):
        self.change, self.batches = change, []

    def infer(self, feeds):
        image = feeds["image"]
        self.batches.append(len(image))
        return self.change({"logits": image.reshape(len(image), 16, 64).sum(2)[:, :10]})


@pytest.mark.parametrize(
    ("sizes", "sent"), [([1, 3, 8], [1, 3, 8, 1, 3, 8]), ([20], [20]), ([8], [8, 8, 8]), ([7, 6], [7, 6, 7])]
)
def test_each_image_is_answered_once_and_in_order(sizes, sent):
    engine = Engine()
    found = logits(engine, IMAGES, sizes)
    assert engine.batches == sent
    assert found.dtype == np.float64
    assert np.array_equal(found, IMAGES.reshape(20, 16, 64).sum(2)[:, :10])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda outputs: {}, "outputs are none, expected one called logits"),
        (lambda outputs: {"x" * 1000: outputs["logits"]}, "outputs are xxx"),
        (lambda outputs: {**outputs, "more": outputs["logits"]}, "outputs are logits, more"),
        (
            lambda outputs: {"logits": outputs["logits"][:-1]},
            r"a batch of 4 was answered with logits of shape \(3, 10\), expected \(4, 10\)",
        ),
        (lambda outputs: {"logits": outputs["logits"][:, :9]}, r"shape \(4, 9\)"),
        (lambda outputs: {"logits": np.float32(1)}, r"shape \(\)"),
    ],
)
def test_another_form_is_one_short_line(change, words):
    with pytest.raises(EngineError, match=words) as caught:
        logits(Engine(change), IMAGES, [4])
    assert len(str(caught.value)) < 200 and "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_decibels_are_json(value):
    want = np.ones((2, 10))
    assert decibels(want, np.where(np.eye(2, 10) > 0, value, 1)) == NOT_FINITE_DB
    assert decibels(want, want) == 200
    assert decibels(want, 1.1 * want) == pytest.approx(20)
    json.dumps(decibels(want, want), allow_nan=False)


def test_images_come_from_the_graders_seed_or_from_nowhere():
    assert np.array_equal(fresh_images(Examiner(seed=1), 4).images, fresh_images(Examiner(seed=1), 4).images)
    assert not np.array_equal(fresh_images(Examiner(), 4).images, fresh_images(Examiner(), 4).images)


@pytest.mark.parametrize("wrong", [1, 17, 20])
def test_no_batch_size_has_other_answers_than_the_rest(wrong):
    """A graph can read a factor for each batch size from a table, and be right wherever somebody looks."""

    def at_one_size(outputs):
        return {"logits": -outputs["logits"]} if len(outputs["logits"]) == wrong else outputs

    check_every_size(Engine(), Engine(), IMAGES, range(1, 21), 100)
    with pytest.raises(EngineError, match=f"a batch of {wrong} is answered with -6 dB SQNR, at least 18 dB"):
        check_every_size(Engine(), Engine(at_one_size), IMAGES, range(1, 21), 18)
