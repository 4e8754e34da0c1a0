"""Training of the shipped checkpoints: ``python -m course_lib.models.training small|wide|encoder|detector|gpt``.

On two CPU cores "small" took 15 to 24 s, "encoder" 51 to 69 s and "wide" 62 to 66 s. On one, "detector" took 346 s and "gpt"
606 s. The same seed gives the same weights on the same machine; another machine may add in another order and get slightly
different weights.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from rich.progress import track
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from course_lib.models import weights
from course_lib.models.detector_training import train_detector
from course_lib.models.digit_dataset import Digits, digits, fresh_digits, perturb
from course_lib.models.gpt_training import train_gpt
from course_lib.models.residual_cnn import classifier
from course_lib.models.transformer import encoder

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
        for data in track(_batches(schedule, rng), f"training {name}", total=steps, disable=not progress):
            optimizer.zero_grad()
            inputs = _inputs(name, data, rows=int(rng.integers(16, 49)))  # so that the encoder learns to read every length
            # Smoothed labels (Szegedy et al. 2015) keep logits moderate: half precision has little room above 65 504.
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


def _batches(schedule: Schedule, rng: np.random.Generator) -> Iterator[Digits]:
    """Full batches of perturbed training digits, in a new order each epoch; the rest of an epoch is dropped."""
    data = digits("train")
    for _ in range(schedule.epochs):
        images = perturb(data.images, rng, strength=schedule.strength)
        order = rng.permutation(len(data))
        for start in range(0, len(data) - schedule.batch + 1, schedule.batch):
            chosen = order[start : start + schedule.batch]
            yield Digits(images[chosen], data.labels[chosen])


def main() -> None:
    """Read the command line, train the network that it names, write the checkpoint and print the result."""
    parser = argparse.ArgumentParser(description="Train one of the course's networks and write its checkpoint.")
    parser.add_argument("name", choices=(*get_args(Name), "detector", "gpt"))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    start = time.perf_counter()
    if arguments.name == "detector":
        loss = train_detector(seed=arguments.seed)
        print(f"detector: loss {loss:.2f} at the end, trained in {time.perf_counter() - start:.0f} s")
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
