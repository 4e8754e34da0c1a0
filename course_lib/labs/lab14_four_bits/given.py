"""What lab 14 gives: a decoder with a few large channels, the products whose weights are stored, what they read, and arrays for task 1."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from course_lib.labs.framework import instance

if TYPE_CHECKING:
    from torch import Tensor

    from course_lib.models.gpt import GPT

BUDGET = 0.005  # lost bits per byte that a submission may have
LENGTH, VOCABULARY, BLOCKS = 256, 256, 4
HEADS, SHARED, SIZE = 6, 2, 32  # of queries, and of keys and values, with so many features
_SHAPES = {"qkv": (192, 320), "out": (192, 192), "up": (192, 576), "down": (576, 192)}
# Each product's weight in the graph, (in, out), by the product's name.
PRODUCTS = {f"blocks.{index}.{name}": shape for index in range(BLOCKS) for name, shape in _SHAPES.items()}
WEIGHTS = sum(rows * columns for rows, columns in PRODUCTS.values())
# Channels that are 32 times as large after a norm, as large models have them: block, norm, product, channel. A power of two changes
# neither FP32 nor FP16, so the decoder computes what the course's own decoder computes.
_LARGE = ((1, "norm2", "up", 17), (2, "norm1", "qkv", 101))
_TIMES = 32.0
_CALIBRATION = slice(100_000, 108_192)  # bytes of the training text


@lru_cache(maxsize=4)  # a class has many learners
def model(learner: str = "") -> GPT:
    """A learner's decoder, float32, in eval mode. Do not change it: it is made once.

    All decoders compute the same. The features of the values in each head of attention have an order that is drawn from the id, so
    codes and scales of one decoder do not fit another one.
    """
    import torch

    from course_lib.models import decoder

    with torch.inference_mode(False), torch.no_grad():  # also where the first call comes from inside inference mode
        made = decoder()
        for index, norm, product, channel in _LARGE:
            block = made.each_block()[index]
            for parameter in (getattr(block, norm).weight, getattr(block, norm).bias):
                parameter[channel] *= _TIMES
            getattr(block, product).weight[:, channel] /= _TIMES
        rng, values = instance.rng(learner, "lab14"), SIZE * (HEADS + SHARED)
        for block in made.each_block():
            orders = [rng.permutation(SIZE) for _ in range(SHARED)]
            rows = np.concatenate([SIZE * head + order for head, order in enumerate(orders)])
            columns = np.concatenate([SIZE * head + orders[head * SHARED // HEADS] for head in range(HEADS)])
            block.qkv.weight[values:] = block.qkv.weight[values:][rows]
            block.out.weight[:] = block.out.weight[:, columns]
    return made


def weights(learner: str = "") -> dict[str, np.ndarray]:
    """A copy of the weight of each product, float32 ``(out, in)`` as PyTorch has it, by name such as ``"blocks.0.qkv"``."""
    return {name: _layer(name, learner).weight.detach().numpy().copy() for name in PRODUCTS}  # type: ignore[operator]


def packing_arrays() -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Two arrays of codes for `pack`, int8 by name, and bytes for `unpack`, which hold int8 codes of the shape (16, 20)."""
    rng = np.random.default_rng(14)
    codes = {"even": rng.integers(-8, 8, (24, 32)), "odd": rng.integers(-8, 8, (5, 5))}
    return {name: array.astype(np.int8) for name, array in codes.items()}, rng.integers(0, 256, 160).astype(np.uint8)


@lru_cache(maxsize=4)  # a class has many learners
def graph(learner: str = "") -> bytes:
    """The given decoder with a cache as ONNX, in FP16: `export_cached` of lecture 15."""
    from course_lib.models import export_cached

    return export_cached(model(learner), dtype="fp16", length=LENGTH).SerializeToString()


def empty_cache() -> dict[str, np.ndarray]:
    """The graph's inputs for a cache without tokens."""
    import onnx

    inputs = onnx.load_model_from_string(graph()).graph.input
    shapes = {one.name: [axis.dim_value for axis in one.type.tensor_type.shape.dim] for one in inputs}
    return {name: np.zeros(shape, np.float16) for name, shape in shapes.items() if name.startswith("past_")}


@lru_cache(maxsize=4)  # a class has many learners
def importance(learner: str = "") -> dict[str, np.ndarray]:
    """The mean square of what each input channel of a product reads on a part of the training text, float32 ``(in,)`` by name."""
    import torch

    from course_lib.models import course_text

    found: dict[str, np.ndarray] = {}

    def keep(name: str, read: Tensor) -> None:
        found[name] = read.reshape(-1, read.shape[-1]).square().mean(0).numpy()

    hooks = [
        _layer(name, learner).register_forward_pre_hook(lambda _, read, name=name: keep(name, read[0])) for name in PRODUCTS
    ]
    rows = np.frombuffer(course_text("train")[_CALIBRATION], np.uint8).reshape(-1, LENGTH).astype(np.int64)
    try:
        with torch.inference_mode():
            model(learner)(torch.from_numpy(rows))
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _layer(name: str, learner: str) -> GPT:
    return model(learner).get_submodule(name)  # type: ignore[return-value]
