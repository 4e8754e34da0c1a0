"""The reference of lab 04, made by code: scores are scaled before the product, and everything else that overflows stays in FP32."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.labs.lab04_mixed_precision import given
from course_lib.labs.lab04_mixed_precision.given import OPSET
from course_lib.recipe import Recipe

if TYPE_CHECKING:
    from course_lib.labs.lab04_mixed_precision.network import LoudEncoder

RECIPE = Recipe(precision="fp16", profiles=(given.SERVICE,))

# Ten places of the given network break. In nine of them maker and reader stay FP32: the squares of seven norms and an inner tensor of
# an MLP overflow, and in the quiet norm the variance vanishes until its root is taken. Swish overflows too, and nothing comes of it ...
NORMS = (*(f"/blocks.{block}/norm{place}" for block in (1, 2, 3) for place in (1, 2)), "/norm")
KEEP = (
    *(f"/blocks.0/norm2/{node}" for node in ("Mul_1", "ReduceMean_1", "Add", "Sqrt")),
    *(f"{norm}/{node}" for norm in NORMS for node in ("Mul", "ReduceMean_1")),
    *("/blocks.1/mlp/Mul_2", "/blocks.1/mlp/down/MatMul"),
)
SHARP_BLOCK = 2  # ... and in the tenth, the scores of this block, the scale is applied before the product


def scale_queries(network: LoudEncoder) -> None:
    """Let the attention in `SHARP_BLOCK` divide its queries instead of its scores, in place, by dividing what makes them."""
    attention: Any = network.get_submodule(f"blocks.{SHARP_BLOCK}.attention")
    for values in (attention.qkv.weight.data, attention.qkv.bias.data):
        values.unflatten(0, (attention.heads, 3, attention.width))[:, 0] /= attention.temperature
    attention.temperature = 1.0


@cache
def serialized() -> bytes:
    """The reference's model.onnx."""
    from course_lib.labs.lab04_mixed_precision.network import loud_encoder
    from course_lib.models import export_onnx
    from course_lib.precision import cast

    network = loud_encoder()
    scale_queries(network)
    return bytes(cast(export_onnx(network, opset=OPSET), "fp16", keep=KEEP).SerializeToString())


@cache
def findings() -> dict[str, float]:
    """The nodes that break, with the largest magnitudes on 64 held-out digits."""
    from course_lib.models import digits

    largest = given.magnitudes(given.network(), digits("test").tokens()[:64])
    return {node: largest[node] for node in (*KEEP, f"/blocks.{SHARP_BLOCK}/attention/MatMul")}


def write(folder: Path) -> None:
    """Write the three files of the reference's submission."""
    given.write(findings(), folder / given.FILE)
    (folder / "model.onnx").write_bytes(serialized())
    RECIPE.save(folder / "recipe.toml")
