"""Torch-TensorRT 2.2.0 in data and rules: which operators it converts, on which conditions, and which it decomposes first.

The table of converters is that of the running release on a GPU. The conditions follow its source (BSD 3-Clause, NVIDIA and others).
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

TABLE = Path(__file__).with_name("release_2_2_0.json")
MIN_BLOCK_SIZE = 5  # its default
ATTENTION = "scaled_dot_product_attention"
# what it makes of a fused attention: the last one if no GPU has run its form
RIGHT, EXCHANGED, UNRECORDED = "right", "query and value exchanged", "not recorded"
_CASTS = ("float32", "int32", "bool", "int8", "float16")


@cache
def converters() -> frozenset[str]:
    """Operators with a converter, such as ``"aten.add.Tensor"``. A name without overload, ``"aten.batch_norm"``, means all."""
    return frozenset(json.loads(TABLE.read_bytes())["converters"])


@cache
def decomposed() -> tuple[str, ...]:
    """Operators that are decomposed before the graph is divided."""
    return tuple(json.loads(TABLE.read_bytes())["decomposed"])


def has_converter(name: str) -> bool:
    """Whether the table has an operator, whatever its arguments."""
    return name == ATTENTION or name in converters() or name.rpartition(".")[0] in converters()


def converts(node: torch.fx.Node) -> bool:
    """Whether 2.2.0 converts this node: the table has its operator, and its arguments meet the converter's conditions."""
    name = name_of(node)
    if not has_converter(name):
        return False
    check = _CONDITIONS.get(name)
    return check is None or check(node)


def name_of(node: torch.fx.Node) -> str:
    """The operator of a node: ``"aten.add.Tensor"``, ``"operator.getitem"`` or ``"scaled_dot_product_attention"``."""
    if node.target is operator.getitem:
        return "operator.getitem"
    text = str(node.target)
    return ATTENTION if ATTENTION in text and not text.startswith("aten.") else text


def _only_the_first_output(node: torch.fx.Node) -> bool:
    users = list(node.users)
    return len(users) == 1 and users[0].target is operator.getitem and bool(users[0].args[1] == 0)


def _argument(node: torch.fx.Node, place: int, default: Any = None) -> Any:
    return node.args[place] if len(node.args) > place else default


def _cast(node: torch.fx.Node) -> bool:
    return str(node.kwargs.get("dtype")).removeprefix("torch.") in _CASTS


def _index(node: torch.fx.Node) -> bool:
    places = [one.meta.get("val") for one in node.args[1] if one is not None]  # type: ignore[union-attr]
    return all(place is None or str(place.dtype) in ("torch.int32", "torch.int64") for place in places)


def _boolean(node: torch.fx.Node) -> bool:
    return all(str(one.meta["val"].dtype) == "torch.bool" for one in node.all_input_nodes if "val" in one.meta)


def _not_transposed_with_padding(node: torch.fx.Node) -> bool:
    return not any(node.args[7])  # type: ignore[arg-type]


def _average(node: torch.fx.Node) -> bool:
    return _argument(node, 4, False) is False and _argument(node, 6) is None


def _maximum(node: torch.fx.Node) -> bool:
    dilation = _argument(node, 4, 1)
    return (dilation == 1 or list(dilation) == [1] * len(dilation)) and _argument(node, 5, False) is False


def _plain_embedding(node: torch.fx.Node) -> bool:
    return _argument(node, 3) is None and _argument(node, 4) is None


def _parent_converts(node: torch.fx.Node) -> bool:
    return converts(node.args[0])  # type: ignore[arg-type]


_CONDITIONS: dict[str, Callable[[torch.fx.Node], bool]] = {
    "operator.getitem": _parent_converts,
    **dict.fromkeys(
        (
            "aten.native_batch_norm.default",
            "aten._native_batch_norm_legit_no_training.default",
            "aten.native_layer_norm.default",
            "aten.native_group_norm.default",
            "aten.max.dim",
            "aten.min.dim",
        ),
        _only_the_first_output,
    ),
    "aten._to_copy.default": _cast,
    "aten.index.Tensor": _index,
    "aten.convolution.default": _not_transposed_with_padding,
    "aten.embedding.default": _plain_embedding,
    **{f"aten.avg_pool{n}d.default": _average for n in (1, 2, 3)},
    **{f"aten.max_pool{n}d.default": _maximum for n in (1, 2, 3)},
    "aten.bitwise_not.default": _boolean,
    **{
        f"aten.bitwise_{word}.{kind}": _boolean
        for word in ("and", "or", "xor")
        for kind in ("Tensor", "Scalar", "Scalar_Tensor")
    },
}
