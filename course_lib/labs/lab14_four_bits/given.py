"""What lab 14 gives: a decoder with a few large channels, arrays for task 1, and the forms in which weights are stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from course_lib._util.npz_files import read_arrays
from course_lib.errors import BuildError, CourseError
from course_lib.labs.framework import submission
from course_lib.recipe import Profile, Recipe

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto
    from torch import Tensor

    from course_lib.models.gpt import GPT

BUDGET = 0.005  # lost bits per byte that a submission may have
LENGTH, DEPTH = 256, 4
HEADS, SHARED, SIZE = 6, 2, 32  # of queries, and of keys and values, with so many features
_SHAPES = {"qkv": (192, 320), "out": (192, 192), "up": (192, 576), "down": (576, 192)}
# Each product's weight in the graph, (in, out), by the product's name.
PRODUCTS = {f"blocks.{index}.{name}": shape for index in range(DEPTH) for name, shape in _SHAPES.items()}
WEIGHTS = sum(rows * columns for rows, columns in PRODUCTS.values())
# Channels that are 32 times as large after a norm, as large models have them: block, norm, product, channel. A power of two changes
# neither FP32 nor FP16, so the decoder computes what the course's own decoder computes.
_LARGE = ((1, "norm2", "up", 17), (2, "norm1", "qkv", 101))
_TIMES = 32.0
_CALIBRATION = slice(100_000, 108_192)  # bytes of the training text
FILE, MAX_BYTES = "weights.npz", 8 << 20
BLOCKS = (16, 32, 64, 96, 192)  # sizes that a block may have, if they divide the number of inputs
LARGEST_E4M3 = 448.0
_NAN = 127  # bits of a code, without the sign
RECIPE = Recipe(
    precision="fp16",
    targets=("sm89",),  # TensorRT for RTX compiles for a GPU that need not be there
    profiles=(Profile(tokens={"min": (1, 1), "opt": (1, 128), "max": (1, LENGTH)}),),
)


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
        rng, values = submission.rng(learner, "lab14"), SIZE * (HEADS + SHARED)
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


# ---- forms of a weight


@dataclass(frozen=True)
class Int4:
    """A weight in INT4: each value is ``code * scale``, and the weights of a block share a scale.

    Attributes:
        packed: uint8 ``(in * out / 2,)``: the codes of the weight ``(in, out)``, row by row, as ONNX packs INT4.
        scales: ``(in / block, out)``; a file stores them in FP16.
    """

    packed: np.ndarray
    scales: np.ndarray
    key: ClassVar = "int4"  # of its codes in the file
    onnx_type: ClassVar = "INT4"
    layer_type: ClassVar = "Int4"  # in a layer table

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Codes and scales as a file has them."""
        return self.packed, self.scales.astype(np.float16)

    @property
    def bits(self) -> int:
        """What a file stores, without the names."""
        return 8 * self.packed.size + 16 * self.scales.size

    def codes(self) -> np.ndarray:
        """The codes, int8 ``(in, out)``."""
        halves = np.stack([self.packed & 15, self.packed >> 4], axis=1).ravel()
        return ((halves ^ 8).astype(np.int8) - 8).reshape(-1, self.scales.shape[1])

    def values(self) -> np.ndarray:
        """The weight that is stored, float32 ``(in, out)``."""
        return self.times(self.codes(), self.scales)

    @staticmethod
    def times(codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """Codes ``(in, out)`` times the scales of their blocks, ``(in / block, out)``."""
        return np.asarray(codes * np.repeat(scales.astype(np.float32), len(codes) // len(scales), axis=0))

    def problem(self, shape: tuple[int, int]) -> str:
        """Why this is not a weight ``(in, out)`` of this shape, "" if it is one. A wrong type changes the number of bytes, too."""
        rows, columns = shape
        packed, scales = np.asarray(self.packed), np.asarray(self.scales)
        if packed.dtype != np.uint8:
            return f"its packed codes are {packed.dtype}, expected uint8, as pack returns them"
        if packed.shape != (rows * columns // 2,):
            return f"its packed codes have the shape {packed.shape}, expected one axis with {rows * columns // 2} bytes"
        blocks = [block for block in BLOCKS if rows % block == 0]
        if scales.shape not in [(rows // block, columns) for block in blocks]:
            choice = ", ".join(map(str, blocks))
            return f"its scales have the shape {scales.shape}, expected ({rows} / block, {columns}) with a block of {choice}"
        return _problem_of_scales(scales)


@dataclass(frozen=True)
class Fp8:
    """A weight in FP8, with one scale for all of it.

    Attributes:
        codes: the bits of E4M3 numbers, uint8 ``(in, out)``.
        scale: a file stores it in FP16.
    """

    codes: np.ndarray
    scale: float
    key: ClassVar = "fp8"
    onnx_type: ClassVar = "FLOAT8E4M3FN"
    layer_type: ClassVar = "FP8"

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Codes and scale as a file has them."""
        return self.codes, np.asarray(self.scale, np.float16)

    @property
    def bits(self) -> int:
        """What a file stores, without the names."""
        return 8 * self.codes.size + 16

    def values(self) -> np.ndarray:
        """The weight that is stored, float32 ``(in, out)``."""
        import ml_dtypes

        return self.codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * np.float32(np.float16(self.scale))

    def problem(self, shape: tuple[int, int]) -> str:
        """Why this is not a weight ``(in, out)`` of this shape, "" if it is one."""
        codes = np.asarray(self.codes)
        if codes.dtype != np.uint8 or codes.shape != shape:
            return f"its codes are {codes.dtype} of the shape {codes.shape}, expected uint8 of (in, out) = {shape}"
        if ((codes & _NAN) == _NAN).any():
            return "a code is NaN, which a value beyond 448 becomes in E4M3: clip before the cast"
        return _problem_of_scales(np.asarray(self.scale))


@dataclass(frozen=True)
class Half:
    """A weight in FP16, as it is given: `numbers` is ``(in, out)``."""

    numbers: np.ndarray
    layer_type: ClassVar = "Half"

    @property
    def bits(self) -> int:
        """What a file stores, without the names."""
        return 16 * self.numbers.size

    def values(self) -> np.ndarray:
        """The weight that is stored, float32 ``(in, out)``."""
        return self.numbers.astype(np.float32)


Stored: TypeAlias = Int4 | Fp8 | Half


def fp8(weight: Any) -> Fp8:
    """A weight ``(out, in)`` in FP8: the largest magnitude gets the largest code, as in lecture 16."""
    import ml_dtypes

    values = np.asarray(weight, np.float32).T
    scale = np.float32(np.float16(max(float(np.abs(values).max()) / LARGEST_E4M3, 2.0**-24)))
    codes = np.clip(values / scale, -LARGEST_E4M3, LARGEST_E4M3).astype(ml_dtypes.float8_e4m3fn)
    return Fp8(np.ascontiguousarray(codes).view(np.uint8), float(scale))


def _problem_of_scales(scales: np.ndarray) -> str:
    with np.errstate(over="ignore"):
        half = scales.astype(np.float16)
    return "" if (np.isfinite(half) & (half > 0)).all() else "a scale is zero, negative or not finite in FP16"


# ---- the file


def save(stored: Mapping[str, Int4 | Fp8], path: str | Path = FILE) -> None:
    """Write weights in other forms. A product that is not among them keeps its FP16 weight.

    Raises:
        CourseError: an unknown product, or codes and scales that do not fit its shape.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, one in stored.items():
        if name not in PRODUCTS:
            raise CourseError(f"no product {str(name)[:60]!r}: the decoder has {', '.join(PRODUCTS)}")
        if problem := one.problem(PRODUCTS[name]):
            raise CourseError(f"{name}: {problem}")
        arrays[f"{name}.{one.key}"], arrays[f"{name}.scales"] = one.arrays
    np.savez(path, **arrays)  # type: ignore[arg-type]


def read(file: Path, learner: str = "") -> dict[str, Stored]:
    """The weights of all products in a file that `save` wrote, for a learner's decoder.

    Raises:
        BuildError: it has other arrays.
    """
    arrays, stored = read_arrays(file, MAX_BYTES), dict[str, Stored]()
    for name, shape in PRODUCTS.items():
        codes = {form: arrays.pop(f"{name}.{form.key}") for form in (Int4, Fp8) if f"{name}.{form.key}" in arrays}
        scales: Any = arrays.pop(f"{name}.scales", None)
        if not codes and scales is None:
            stored[name] = Half(weights(learner)[name].T.astype(np.float16))
            continue
        if scales is None or len(codes) != 1:
            raise BuildError(f"{file.name}: {name} needs scales, and codes in one form. Write the file with save(...)")
        ((form, array),) = codes.items()
        one: Int4 | Fp8 = form(array, scales)
        if problem := one.problem(shape):
            raise BuildError(f"{file.name}: {name}: {problem}")
        stored[name] = one
    if arrays:
        raise BuildError(
            f"{file.name}: {next(iter(arrays))[:60]!r} is not an array of a product. Write the file with save(...)"
        )
    return stored


def bits_per_weight(stored: Mapping[str, Stored]) -> float:
    """What is stored for all products, in bits per weight with its share of the scales."""
    return sum(one.bits for one in stored.values()) / WEIGHTS


# ---- the graph


def decoder(stored: Mapping[str, Stored], learner: str = "") -> ModelProto:
    """A learner's decoder as ONNX with weights in other forms. A product that is not among them keeps its FP16 weight."""
    import onnx

    model = onnx.load_model_from_string(graph(learner))
    nodes, constants = [], list(model.graph.initializer)
    for node in model.graph.node:
        name = node.input[1].removesuffix(".weight") if node.op_type == "MatMul" else ""
        if isinstance(one := stored.get(name), Int4 | Fp8):
            dequantize, codes, scales = _dequantized(name, one)
            constants = [*(tensor for tensor in constants if tensor.name != node.input[1]), codes, scales]
            node.input[1] = dequantize.output[0]
            nodes.append(dequantize)
        nodes.append(node)
    copies = [[type(one).FromString(one.SerializeToString()) for one in rows] for rows in (nodes, constants)]
    for field, rows in zip(("node", "initializer"), copies, strict=True):
        model.graph.ClearField(field)
        getattr(model.graph, field).extend(rows)
    return model


def product_of(node: str) -> str:
    """The product that a node of the graph computes or dequantizes, "" for another node."""
    path = node.removesuffix("/MatMul").removesuffix("/dequantize")
    name = path.strip("/").replace("/", ".")
    return name if path != node and name in PRODUCTS else ""


def _dequantized(name: str, one: Int4 | Fp8) -> tuple[NodeProto, TensorProto, TensorProto]:
    """The node that makes a product's weight of its codes and scales, and both constants."""
    from onnx import TensorProto, helper, numpy_helper

    data, scales = one.arrays
    block: dict[str, Any] = {"axis": 0, "block_size": PRODUCTS[name][0] // len(scales)} if scales.ndim else {}
    kind, raw = TensorProto.DataType.Value(one.onnx_type), np.ascontiguousarray(data).tobytes()
    codes = TensorProto(name=f"{name}.codes", dims=PRODUCTS[name], data_type=kind, raw_data=raw)
    constant = numpy_helper.from_array(np.ascontiguousarray(scales) if scales.ndim else scales, f"{name}.scales")
    path = f"/{name.replace('.', '/')}/dequantize"
    node = helper.make_node("DequantizeLinear", [codes.name, constant.name], [f"{name}/dequantized"], name=path, **block)
    return node, codes, constant
