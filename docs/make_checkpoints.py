"""Train the course's networks and write their checkpoints: course_lib/models/checkpoints/*.pt.

    python docs/make_checkpoints.py small|wide|encoder|detector|gpt|uneven [--seed N]

On two CPU cores "small" took 15 to 24 s, "encoder" 51 to 69 s and "wide" 62 to 66 s. On one, "detector" took 346 s and "gpt"
606 s. The same seed gives the same weights on the same machine; another machine may add in another order and get slightly
different weights.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from rich.progress import track
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, interpolate

from course_lib.labs.lab06_qat.float_network import Network
from course_lib.labs.lab06_qat.layers import LAYERS
from course_lib.models import weights
from course_lib.models.digit_dataset import Digits, digits, fresh_digits, perturb
from course_lib.models.digit_video import SIDE, Frame, video
from course_lib.models.gpt import LONGEST, decoder
from course_lib.models.grid_detector import STRIDE, Detector, detector
from course_lib.models.residual_cnn import classifier
from course_lib.models.text_corpus import course_text
from course_lib.models.transformer import encoder
from course_lib.teaching.low_bits.loss import window_bits

Name = Literal["small", "wide", "encoder"]


@dataclass(frozen=True)
class Schedule:
    """The training parameters of a network.

    Attributes:
        epochs: passes over the 1347 training digits, with new perturbations in each pass.
        learning_rate: the peak; it rises over the first 30 % of the steps and falls to nearly zero over the rest.
        strength: strength of the perturbations, see ``digits.perturb``. It is larger than in graders.
    """

    epochs: int
    learning_rate: float
    strength: float = 2.0
    batch: int = 32
    weight_decay: float = 0.01


SCHEDULES: dict[Name, Schedule] = {
    "small": Schedule(epochs=20, learning_rate=6e-3),
    "wide": Schedule(epochs=9, learning_rate=2e-3),
    "encoder": Schedule(epochs=20, learning_rate=1e-3),
}


def train(name: Name, *, seed: int = 0, progress: bool = True) -> float:
    """Train one network from scratch, write its checkpoint, and return the accuracy of the stored weights.

    Args:
        name: "small", "wide" or "encoder".
        seed: seed of the initial weights, the order of the digits and their perturbations.
        progress: show a bar.

    Returns:
        The share of the 450 held-out digits that the stored half-precision weights get right.

    Raises:
        ValueError: an unknown name.
    """
    if name not in SCHEDULES:
        raise ValueError(f"name must be one of {', '.join(SCHEDULES)}, got {name!r}")
    schedule = SCHEDULES[name]
    rng = np.random.default_rng(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _network(name, pretrained=False).train()
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # CPU convolutions train in half the time
        steps = schedule.epochs * (len(digits("train")) // schedule.batch)
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=schedule.weight_decay)
        rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, schedule.learning_rate, total_steps=steps)
        for data in track(_digit_batches(schedule, rng), f"training {name}", total=steps, disable=not progress):
            optimizer.zero_grad()
            inputs = _inputs(name, data, rows=int(rng.integers(16, 49)))  # so that the encoder learns to read every length
            # Smoothed labels (Szegedy et al. 2015) keep logits moderate: half precision has little room above 65,504.
            cross_entropy(model(inputs), torch.from_numpy(data.labels), label_smoothing=0.05).backward()
            optimizer.step()
            rate.step()
    weights.save(model.eval(), name)
    return accuracy(name, digits("test"))


@torch.no_grad()
def accuracy(name: Name, data: Digits, *, rows: int = 32) -> float:
    """The share of ``data`` that the stored checkpoint ``name`` gets right, from 0 to 1; ``rows`` as in ``Digits.tokens``."""
    model = _network(name, pretrained=True)
    chunks = _inputs(name, data, rows=rows).split(64)  # all at once, the wide network's activations would fill gigabytes
    predicted = torch.cat([model(chunk).argmax(1) for chunk in chunks]).numpy()
    return float((predicted == data.labels).mean())


def _network(name: Name, *, pretrained: bool) -> nn.Module:
    return encoder(pretrained=pretrained) if name == "encoder" else classifier(name, pretrained=pretrained)


def _inputs(name: Name, data: Digits, *, rows: int) -> Tensor:
    """The input of the network: images, or sequences of ``rows`` rows for the encoder."""
    return torch.tensor(data.tokens(rows) if name == "encoder" else data.images)


def _digit_batches(schedule: Schedule, rng: np.random.Generator) -> Iterator[Digits]:
    """Full batches of perturbed training digits, in a new order each epoch; the rest of an epoch is dropped."""
    data = digits("train")
    for _ in range(schedule.epochs):
        images = perturb(data.images, rng, strength=schedule.strength)
        order = rng.permutation(len(data))
        for start in range(0, len(data) - schedule.batch + 1, schedule.batch):
            chosen = order[start : start + schedule.batch]
            yield Digits(images[chosen], data.labels[chosen])


# The detector.
DETECTOR_STEPS, FRAMES = 1250, 16
SIDES = (96, 112, 128)  # frames are shown at all of these, so that the network may be exported at each
_NEAR = 0.3  # part of a box around its center whose cells have to find it


def train_detector(*, seed: int = 0, progress: bool = True, steps: int = DETECTOR_STEPS) -> float:
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
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
        rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
        for frames in track(_frame_batches(seed, steps), "training detector", total=steps, disable=not progress):
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


def _frame_batches(seed: int, steps: int) -> Iterator[list[Frame]]:
    frames = video(seed, split="train", scene_frames=1)
    for _ in range(steps):
        yield list(itertools.islice(frames, FRAMES))


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


# The language model.
GPT_STEPS, PASSAGES = 1400, 4


def train_gpt(*, seed: int = 0, progress: bool = True, steps: int = GPT_STEPS) -> float:
    """Train the language model from scratch, write its checkpoint, and measure the stored weights.

    Args:
        seed: seed of the initial weights and of the passages.
        progress: show a bar.
        steps: number of batches of 4 passages of 512 bytes, each from a random place of the training text.

    Returns:
        Bits per byte of the stored half-precision weights on the held-out text.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = decoder(pretrained=False).train()
        matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
        others = [parameter for parameter in model.parameters() if parameter.ndim != 2]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95))
        rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps, pct_start=0.1, cycle_momentum=False)
        for passages in track(_passage_batches(seed, steps), "training gpt", total=steps, disable=not progress):
            optimizer.zero_grad()
            cross_entropy(model(passages[:, :-1]).flatten(0, 1), passages[:, 1:].flatten()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            rate.step()
    weights.save(model.eval(), "gpt")
    return float(window_bits(decoder(), course_text("test"), window=LONGEST).mean())


def _passage_batches(seed: int, steps: int) -> Iterator[Tensor]:
    """Int64 ``(4, 513)``: a passage and the byte after it."""
    rng = np.random.default_rng(seed)
    text = np.frombuffer(course_text("train"), np.uint8)
    for _ in range(steps):
        starts = rng.integers(0, len(text) - LONGEST, PASSAGES)
        yield torch.from_numpy(text[starts[:, None] + np.arange(LONGEST + 1)].astype(np.int64))


# The network of lab 06. Norms and weights start with channels of very different size, and training keeps the difference.
UNEVEN_EPOCHS, SPREAD = 40, 12.0  # channels start between the spread and its reciprocal
# Nothing but SiLU is between the norm of the first and the weight of the second.
_READERS = {
    **{"stem": "expand1", "expand1": "depth1", "depth1": "project1"},
    **{"expand2": "depth2", "depth2": "project2", "mix": "head"},
}


def train_uneven(*, seed: int = 0) -> Network:
    """Train the network of lab 06 from scratch and write its checkpoint."""
    torch.manual_seed(seed)
    network, rng, data, batch = Network(), np.random.default_rng(seed), digits("train"), 64
    _make_uneven(network)
    labels, steps = torch.from_numpy(data.labels), len(data) // batch
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, UNEVEN_EPOCHS * steps)
    for _ in range(UNEVEN_EPOCHS):
        images, order = torch.from_numpy(perturb(data.images, rng, strength=1.5)), rng.permutation(len(data))
        for chosen in np.split(order[: steps * batch], steps):
            optimizer.zero_grad()
            cross_entropy(network(images[chosen]), labels[chosen]).backward()
            optimizer.step()
            rate.step()
    weights.save(network.eval(), "uneven")
    return network


def _make_uneven(network: Network) -> None:
    """Enlarge some channels and shrink others, and divide the weights that read them, which is the same function but for SiLU."""
    with torch.no_grad():
        for name, reader in _READERS.items():
            factors = SPREAD ** (2 * torch.rand(LAYERS[name].outputs) - 1)
            layer: nn.Module = network.convs[reader] if LAYERS[reader].kernel else network.head
            weight, channels = layer.get_parameter("weight"), 0 if LAYERS[reader].groups > 1 else 1
            weight.div_(factors.reshape([-1 if axis == channels else 1 for axis in range(weight.ndim)]))
            network.norms[name].get_parameter("weight").mul_(factors)


def main() -> None:
    """Read the command line, train the network that it names, write the checkpoint and print the result."""
    parser = argparse.ArgumentParser(description="Train one of the course's networks and write its checkpoint.")
    parser.add_argument("name", choices=(*get_args(Name), "detector", "gpt", "uneven"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.perf_counter()
    if arguments.name == "detector":
        loss = train_detector(seed=arguments.seed)
        print(f"detector: loss {loss:.2f} at the end, trained in {time.perf_counter() - start:.0f} s")
        return
    if arguments.name == "uneven":
        train_uneven(seed=arguments.seed)
        print(f"uneven: trained in {time.perf_counter() - start:.0f} s")
        return
    if arguments.name == "gpt":
        bits = train_gpt(seed=arguments.seed)
        print(f"gpt: {bits:.3f} bits per held-out byte, trained in {time.perf_counter() - start:.0f} s")
        return
    held_out = train(arguments.name, seed=arguments.seed)
    seconds = time.perf_counter() - start
    fresh = accuracy(arguments.name, fresh_digits(2000, seed=1))
    print(f"{arguments.name}: held-out accuracy {held_out:.3f}, on fresh digits {fresh:.3f}, trained in {seconds:.0f} s")


if __name__ == "__main__":
    main()
