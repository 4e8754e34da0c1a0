"""How much of the accuracy that calibration loses a quantized network has again, on secret images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from course_lib.engines import Plan
from course_lib.labs.framework.answers import fresh_images, logits
from course_lib.labs.framework.criteria import ALL, HALF, Criterion
from course_lib.labs.framework.examination import Examiner
from course_lib.labs.lab06_qat import network
from course_lib.labs.lab06_qat.calibrated import accuracy, calibration, codes_and_scale, share_right
from course_lib.labs.lab06_qat.graph_file import MODEL, graph
from course_lib.labs.lab06_qat.stored import Stored
from course_lib.models import Digits
from course_lib.recipe import Profile, Recipe

IMAGES, BATCH = 2000, 50
# Shares of the loss. Searching the ranges with labels reached 0.92 without training, and training with good ranges 0.99.
FULL, PARTIAL = 0.95, 0.8
_ALIKE = 0.99  # share of a weight's codes that are those of calibration, if nothing was trained
_USUAL_LOSS = 0.03  # of a network that is accurate
RECIPE = Recipe(
    precision="int8",
    profiles=(Profile(image={"min": (1, 1, 32, 32), "opt": (BATCH, 1, 32, 32), "max": (BATCH, 1, 32, 32)}),),
)


@dataclass(frozen=True)
class Secret:
    """Fresh images, and the accuracy that the given network has on them.

    Attributes:
        floating: the accuracy in float.
        calibrated: the accuracy after min-max calibration.
    """

    images: Digits
    floating: float
    calibrated: float

    @classmethod
    def drawn(cls, examiner: Examiner) -> Secret:
        """Images from the grader's seed, which are not part of the course."""
        import torch

        images = fresh_images(examiner, IMAGES)
        with torch.inference_mode():
            answers = network.float_model()(torch.from_numpy(images.images)).numpy()
        return cls(images, share_right(answers, images), accuracy(calibration(), images))


@dataclass(frozen=True)
class Recovered:
    """An accuracy on secret images."""

    accuracy: float
    secret: Secret

    @property
    def share(self) -> float:
        """Of the accuracy that calibration loses: 0 as after calibration, 1 as in float."""
        return (self.accuracy - self.secret.calibrated) / (self.secret.floating - self.secret.calibrated)

    @property
    def half_width(self) -> float:
        """Of the 95 % interval of the share."""
        error = np.sqrt(self.accuracy * (1 - self.accuracy) / len(self.secret.images))
        return float(1.96 * error / (self.secret.floating - self.secret.calibrated))

    def __str__(self) -> str:
        return f"Accuracy {self.accuracy:.1%} on secret images; float {self.secret.floating:.1%}, calibrated {self.secret.calibrated:.1%}."

    def criteria(self) -> tuple[list[Criterion], list[Criterion]]:
        """For all points, and for half of them."""
        return [self._criterion(FULL, ALL)], [self._criterion(PARTIAL, HALF)]

    def reaches(self, least: float) -> bool:
        """Whether the interval of the share reaches up to a bound. What is below it is proved to recover less."""
        return self.share + self.half_width >= least

    def _criterion(self, least: float, needed_for: str) -> Criterion:
        found, bound = f"{self.share:.3f} +/- {self.half_width:.3f}", f"at least {least:g}, or an interval that contains it"
        name = "share of the lost accuracy that is recovered"
        return Criterion(name, found, bound, self.reaches(least), needed_for)


def run(layers: Mapping[str, Stored], secret: Secret, examiner: Examiner, built: Plan | None = None) -> Recovered:
    """What an engine of the course's own graph with these numbers answers.

    Raises:
        BuildError, EngineError: the runner rejects the graph, or fails.
    """
    with TemporaryDirectory() as folder:
        plan = examiner.runnable(written(layers, folder), RECIPE, built)
        with examiner.engine(plan) as engine:
            answers = logits(engine, secret.images.images, [BATCH])
    return Recovered(share_right(answers, secret.images), secret)


def written(layers: Mapping[str, Stored], folder: str) -> Path:
    """The course's own graph with these numbers, as a file."""
    path = Path(folder, MODEL)
    path.write_bytes(graph(layers).SerializeToString())
    return path


def problem(layers: Mapping[str, Stored], found: Recovered, given: Mapping[str, np.ndarray]) -> tuple[str, str]:
    """Why a network loses so much, in words, and where to look; "" and "" if it does not.

    Args:
        given: the weights that the training began with, norms folded.
    """
    if found.reaches(FULL):
        return "", ""
    if all(_is_rounded(one, given[name]) for name, one in layers.items()):
        hint = "Is the gradient of your fake_quantize zero? Are the trained weights the ones that you return or export?"
        return "The codes are those of the given network: nothing was trained.", hint
    if found.share >= PARTIAL:
        hint = (
            "Which ranges do you begin with? Min-max leaves small channels few steps, and input scales can be trained as well. "
        )
        return "", hint + "A learning rate of a few thousandths that decays to 0 is a good start."
    without = accuracy(layers, found.secret.images, round_inputs=False)
    if without > found.secret.floating - _USUAL_LOSS:
        said = f"Without the rounding of inputs, these weights reach {without:.1%}: they were trained in float, or with other input scales."
        return said, "Round in the forward pass of the training, and export the input scales of the training."
    return "", "Does the loss fall during training? Compare the accuracy before the export with the accuracy of the file."


def _is_rounded(one: Stored, weight: np.ndarray) -> bool:
    """Whether a layer has the codes and scales of a weight, so that it was rounded and not trained."""
    codes, scale = codes_and_scale(weight)
    assert one.scale is not None
    return bool((one.weight == codes).mean() > _ALIKE and np.allclose(one.scale, scale, rtol=1e-3))
