"""Builds of small networks: many in one process, and a network with a module between two convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal

from course_lib.engines import LayerTable, Worker
from course_lib.teaching.pictures import bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor, nn

_OPSET = 17  # TensorRT 8.6 reads it too, and its exporter is quick
_TARGETS = ("sm89",)  # always, so that the tables are alike on every machine
_TIMEOUT_S = 120.0  # for one network


def layers_of(
    networks: Mapping[str, nn.Module],
    shape: tuple[int, ...],
    *,
    precision: Literal["fp32", "fp16"] = "fp32",
    outputs: Mapping[str, int] | None = None,
) -> dict[str, LayerTable]:
    """The layer table of each network, built for one fixed input shape by TensorRT for RTX, all in one process of the compiler.

    Batch norms stay in the graph, so that the layer table shows whether the compiler folds them.

    Args:
        networks: networks by name; each takes one float32 tensor.
        shape: shape of that tensor ``x``; its first dimension is the batch.
        precision: "fp16" computes in half precision between casts at inputs and outputs.
        outputs: number of tensors that a network returns, if it is not one.

    Raises:
        BuildError, PrecisionError: see `build`.
    """
    from course_lib.models import Signature, export_onnx
    from course_lib.recipe import Recipe

    tables = {}
    recipe = Recipe(precision=precision, targets=_TARGETS)
    with Worker() as worker, TemporaryDirectory() as folder:
        for name, network in networks.items():
            count = (outputs or {}).get(name, 1)
            signature = Signature(inputs={"x": shape}, outputs=tuple(f"y{i}" for i in range(count)))
            file = Path(folder, "model.onnx")
            export_onnx(
                network, file, dtype=precision, dynamic_batch=False, keep_batchnorm=True, opset=_OPSET, signature=signature
            )
            tables[name] = worker.build("tensorrt_rtx", file, recipe.wire(), timeout_s=_TIMEOUT_S).layers
    return tables


def between_convs(
    between: Callable[[Tensor], Tensor | tuple[Tensor, ...]], channels: int = 64, *, after: int | None = None
) -> nn.Module:
    """Two 3x3 convolutions with a module between them, to count its kernels.

    Args:
        between: a module or a function of the first convolution's result. Only the first element of a tuple is used further; the others
            are outputs of the network.
        channels: channels of the input, of the first convolution's result and of the output.
        after: number of channels after `between`, if it changes them.
    """
    from torch import nn

    class BetweenConvs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(channels, channels, 3, padding=1)
            self.between = between
            self.last = nn.Conv2d(after or channels, channels, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
            y = self.between(self.first(x))
            return (self.last(y[0]), *y[1:]) if isinstance(y, tuple) else self.last(y)

    return BetweenConvs().eval().requires_grad_(False)


def attention(
    mix: Callable[[Tensor, Tensor, Tensor], Tensor | tuple[Tensor, ...]], width: int = 128, heads: int = 4
) -> nn.Module:
    """Self-attention over ``(N, S, width)`` with input and output projections and a custom part in the middle.

    Args:
        mix: a function of queries ``(N, heads, S, width / heads)``, transposed keys ``(N, heads, width / heads, S)`` and values,
            with the shape of the queries. It returns this shape. Of a tuple, only the first element is used further; others are outputs.
    """
    from torch import nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
            n, s, _ = x.shape
            q, k, v = self.qkv(x).view(n, s, heads, 3 * width // heads).transpose(1, 2).chunk(3, dim=-1)
            mixed = mix(q, k.transpose(-1, -2), v)
            first, *others = mixed if isinstance(mixed, tuple) else (mixed,)
            result = self.out(first.transpose(1, 2).reshape(n, s, width))
            return (result, *others) if others else result

    return Attention().eval().requires_grad_(False)


def extra_kernels(tables: Mapping[str, LayerTable], plain: str, title: str) -> Figure:
    """Draw the number of additional kernels of each network relative to one of them.

    Args:
        tables: from `layers_of`.
        plain: name of the network to compare with, which has no bar.
        title: the takeaway.
    """
    fewest = len(tables[plain].kernels)
    extra = {name: len(table.kernels) - fewest for name, table in tables.items() if name != plain}
    return bars(extra, f"kernels more than with {plain}", title, form="{:+.0f}")
