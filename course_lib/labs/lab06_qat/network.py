"""What lab 06 gives: a float network that calibration alone cannot save, its training images, and its forward pass."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from course_lib.labs.lab06_qat.sandboxed.torch_forward import LAYERS as LAYERS
from course_lib.labs.lab06_qat.sandboxed.torch_forward import forward as forward
from course_lib.models import Digits, digits
from course_lib.models.digit_dataset import perturb

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from course_lib.labs.lab06_qat.float_network import Network

WEIGHTS = {name: int(np.prod(shape.weight)) for name, shape in LAYERS.items()}  # their number, by layer
NORM_EPS = 1e-5
CALIBRATION = 500  # of the training images; more change no range by much
_COPIES = 4  # of each training digit, each with another perturbation


@cache
def float_model() -> Network:
    """The float network with its batch norms, in eval mode: a function of images to logits. Do not change it: it is made once."""
    import torch

    from course_lib.labs.lab06_qat.float_network import trained

    with torch.inference_mode(False):  # also where the first call comes from inside inference mode
        return trained().requires_grad_(False)


def layers() -> dict[str, dict[str, Tensor]]:
    """The weights by layer, new float32 tensors: ``weight``, and ``bias`` (head) or the norm's ``gamma``, ``beta``, ``mean``, ``variance``.

    A weight is ``(out, in / groups, k, k)``, or ``(out, in)`` of the head; everything else is ``(out,)``.
    """
    given = float_model()
    found = {}
    for name, shape in LAYERS.items():
        if not shape.kernel:
            found[name] = {"weight": given.head.weight.clone(), "bias": given.head.bias.clone()}
            continue
        norm: torch.nn.BatchNorm2d = given.norms[name]  # type: ignore[assignment]
        assert norm.running_mean is not None and norm.running_var is not None and norm.eps == NORM_EPS
        found[name] = {"weight": given.convs[name].weight.clone(), "gamma": norm.weight.clone(), "beta": norm.bias.clone()}  # type: ignore[operator]
        found[name] |= {"mean": norm.running_mean.clone(), "variance": norm.running_var.clone()}
    return found


def training_images(seed: int = 0) -> Digits:
    """5388 images in random order: each digit of the training part four times, moved, rotated, dimmed and made noisy.

    Args:
        seed: of the perturbations and the order.
    """
    rng, data = np.random.default_rng([seed, _COPIES]), digits("train")
    order = rng.permutation(np.tile(np.arange(len(data)), _COPIES))
    return Digits(perturb(data.images[order], rng), data.labels[order])
