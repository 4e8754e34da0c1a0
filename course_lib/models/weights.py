"""The location and format of the shipped weights."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

FOLDER = Path(__file__).parent / "checkpoints"


def load(model: nn.Module, name: str) -> None:
    """Copy the shipped checkpoint ``name`` into ``model``, in the model's own dtype.

    Raises:
        FileNotFoundError: no such checkpoint; ``python docs/make_checkpoints.py NAME`` makes it.
        RuntimeError: the checkpoint is of another architecture.
    """
    path = FOLDER / f"{name}.pt"
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing: install the course again, or make it in a clone with  python docs/make_checkpoints.py {name}"
        )
    model.load_state_dict(torch.load(path, weights_only=True))  # weights only: a pickle could run code


def save(model: nn.Module, name: str) -> Path:
    """Write ``model``'s weights as checkpoint ``name``, in half precision: half the size.

    The rounding does not change the class of any of the 450 held-out digits or of 2000 fresh ones.
    """
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{name}.pt"
    state = {key: value.half() if value.is_floating_point() else value for key, value in model.state_dict().items()}
    torch.save(state, path)
    return path
