"""Lecture 7: figures of training with quantization, and a network whose channels differ so much that one scale per tensor fails.

Training produces such networks, above all with depthwise convolutions, when batch norms are folded into weights of very
different size. A Relu allows a positive factor of a channel to be moved from the layer that writes it to the one that reads it.
This is also the remedy.

Source: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction (2019).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from course_lib import style
from course_lib.precision.quantization.fake_quant import straight_through
from course_lib.precision.quantization.qdq import fake_quantize

if TYPE_CHECKING:
    from torch import Tensor, nn


def gradient_figure(amax: float = 1.0, bits: int = 3) -> style.Figure:
    """Draw rounding and clipping as a function, and below it the gradient of `straight_through` from autograd.

    Args:
        amax: the largest represented magnitude.
        bits: bits of the integers; few, so that the steps are visible.
    """
    import torch

    x = torch.linspace(-1.6 * amax, 1.6 * amax, 2001, requires_grad=True)
    y = straight_through(x, amax, bits)
    y.sum().backward()
    assert x.grad is not None
    values, rounded, gradient = x.detach().numpy(), y.detach().numpy(), x.grad.numpy()
    drawn, (above, below) = style.subplots(4.6, 2, 1, sharex=True)
    above.plot(values, values, color="#777777", lw=1, ls="--", label="no rounding")
    above.plot(values, rounded, color=style.color(0), lw=1.8, label=f"{bits} bits")
    above.set(ylabel="value after rounding")
    above.set_title("Forward: rounded and clipped", loc="left")
    style.name_lines(above)
    below.axhline(0, color=style.color(1), lw=1.8, label="true derivative")
    below.plot(values, gradient, color=style.color(2), lw=1.8, label="straight-through")
    cut = values[gradient == 0]
    below.set(xlabel="value", ylabel="gradient that passes", ylim=(-0.15, 1.2))
    below.set_title(f"Backward: cut below {cut[cut < 0].max():.2f} and above {cut[cut > 0].min():.2f}", loc="left")
    style.name_lines(below)
    return drawn


def descent_figure(target: float, start: float, *, steps: int = 40) -> style.Figure:
    """Draw the training of one rounded weight toward `target`, with its true derivative and with the straight-through estimator.

    The loss is the squared difference between the rounded weight and the target; integers of 3 bits reach from -1 to 1.

    Args:
        target, start: target and start value of the weight, in [-1, 1].
        steps: number of steps of gradient descent, at least 1.
    """
    import torch

    weight = torch.tensor(start, requires_grad=True)
    path = [start]
    for _ in range(steps):
        loss = (straight_through(weight, 1.0, 3) - target) ** 2
        (gradient,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight -= 0.1 * gradient
        path.append(float(weight.detach()))
    rounded = fake_quantize(np.array(path), 1.0, 3)
    drawn, axes = style.subplots(3.2)
    axes.axhline(target, color="#777777", lw=1, ls="--", label=f"target {target:g}")
    axes.plot([0, steps], [start, start], color=style.color(1), lw=1.4, label="true derivative: 0, it never moves")
    axes.plot(path, color=style.color(2), lw=1.8, label="straight-through: the weight")
    axes.step(range(steps + 1), rounded, where="post", color=style.color(0), lw=1.2, label="... and what it is rounded to")
    axes.set(xlabel="step of gradient descent", ylabel="weight", xlim=(0, steps))
    style.name_lines(axes)
    late = sorted({round(float(value), 3) for value in rounded[len(rounded) // 2 :]})
    axes.set_title(f"Straight through, the rounded weight ends at {' or '.join(f'{value:g}' for value in late)}", loc="left")
    return drawn


def loss_figure(losses: Mapping[str, Sequence[float]], floor: float) -> style.Figure:
    """The loss of several trainings, for each epoch, and the loss of the float network.

    Args:
        losses: name of the training, to the mean loss of each epoch; the first entry is the loss before training.
        floor: loss of the float network.
    """
    drawn, axes = style.subplots(3.2)
    for index, (name, values) in enumerate(losses.items()):
        axes.plot(values, "o-", ms=4, color=style.color(index), label=name)
    axes.axhline(floor, color="#777777", lw=1, ls="--", label="float network")
    axes.set_yscale("log")
    longest = max(len(values) for values in losses.values())
    axes.set_xticks(range(longest), ["before", *map(str, range(1, longest))])
    axes.set(xlabel="epoch", ylabel="cross entropy (log)")
    style.name_lines(axes)
    best = min(losses, key=lambda name: losses[name][-1])
    axes.set_title(f"{best} ends lowest: {losses[best][0]:.2g} before, {losses[best][-1]:.2g} after training", loc="left")
    return drawn


def accuracies(shares: Mapping[str, float], images: int, title: str, highlight: str) -> style.Figure:
    """Dots for the share of right answers of each network, with the 95 % interval of Wilson (1927).

    Args:
        shares: 0 to 1, by name of the network.
        images: number of images that each network classified.
        title: the takeaway.
        highlight: name of the network that the title is about.
    """
    drawn, axes = style.subplots(1.0 + 0.32 * len(shares))
    weight = 1.96**2 / images
    for row, (name, share) in enumerate(shares.items()):
        middle = (share + weight / 2) / (1 + weight)
        half = (weight * (share * (1 - share) + weight / 4)) ** 0.5 / (1 + weight)
        low, high = 100 * (middle - half), 100 * (middle + half)
        hue = style.color(name == highlight)
        axes.plot([low, high], [row, row], color=hue, lw=7, alpha=0.35, solid_capstyle="butt")
        axes.plot(100 * share, row, "o", ms=4, color=hue)
        axes.annotate(f"{100 * share:.1f}", (high, row), (5, 0), textcoords="offset points", va="center")
    style.name_rows(axes, list(shares))
    axes.margins(x=0.2)
    axes.grid(axis="y", color="#eeeeee")
    axes.set_xlabel(f"accuracy on {images} images (%)\nwith 95 % intervals")
    drawn.suptitle(title)
    return drawn


def uneven(module: nn.Module, pairs: Mapping[str, str], spread: float) -> nn.Module:
    """A copy in which channel k between two convolutions is multiplied by a factor between ``1 / spread`` and ``spread``.

    Args:
        module: a module in which only a Relu is between the two layers of a pair; it is not changed.
        pairs: name of the reading Conv2d by the name of the Conv2d that writes the channels.
        spread: 1 or more; factors are drawn evenly on a logarithmic scale.
    """
    import torch

    changed = copy.deepcopy(module)
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for first, second in pairs.items():
            writer, reader = _both(changed, first, second)
            exponent = 2 * torch.rand(len(writer.weight), generator=rng) - 1
            _rescale(writer, reader, spread**exponent)
    return changed


def equalized(module: nn.Module, pairs: Mapping[str, str]) -> nn.Module:
    """The remedy: a copy in which both convolutions of each pair have the same largest weight for a channel.

    Channel k is divided by ``sqrt(a / b)``, where a and b are the largest weights that write and read it.

    Args:
        module, pairs: as in `uneven`.
    """
    import torch

    changed = copy.deepcopy(module)
    with torch.no_grad():
        for first, second in pairs.items():
            writer, reader = _both(changed, first, second)
            written = writer.weight.abs().flatten(1).amax(1)
            read = reader.weight.abs().transpose(0, 1).flatten(1).amax(1)
            _rescale(writer, reader, torch.sqrt(read / written))
    return changed


def _both(module: nn.Module, first: str, second: str) -> tuple[nn.Conv2d, nn.Conv2d]:
    return cast("nn.Conv2d", module.get_submodule(first)), cast("nn.Conv2d", module.get_submodule(second))


def _rescale(writer: nn.Conv2d, reader: nn.Conv2d, factors: Tensor) -> None:
    writer.weight.mul_(factors[:, None, None, None])
    if writer.bias is not None:
        writer.bias.mul_(factors)
    reader.weight.div_(factors[None, :, None, None])
