"""The process that runs a learner's exported graph with secret weights: nodes in, segments and errors out. It runs no learner code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from course_lib.errors import EngineError
from course_lib.labs.framework.isolation import transform


def question(nodes: Sequence[Any], seeds: Sequence[int]) -> bytes:
    """What the process reads: nodes as of `export_model`, and a seed for each set of secret weights and inputs."""
    return json.dumps({"nodes": nodes, "seeds": list(seeds)}).encode()


def answer(asked: bytes) -> bytes:
    """``segments``, ``in_pytorch``, ``attentions``, and the largest relative errors ``eager`` and ``compiled``.

    ``resembles`` names the mistake whose answers PyTorch gives for the learner's module, or is empty. ``narrow`` has the operators
    whose results are of a type with fewer digits than float32, each with the type, if the module is right with float32 in their place.

    Raises:
        EngineError: the nodes cannot be run.
    """
    import numpy as np
    import torch

    from course_lib.labs.lab11_torch_tensorrt.emulated import from_nodes

    torch.set_num_threads(1)
    request = json.loads(asked)
    eager: list[float] = []
    as_compiled: list[float] = []
    alike: list[set[str]] = []
    narrow: list[list[tuple[str, str]]] = []
    several = mistakes()
    for seed in request["seeds"]:
        weights, inputs, want = _drawn(np.random.default_rng(seed))
        made = from_nodes(request["nodes"], weights, inputs)
        found = made.values(inputs, eager=True)["output"]
        eager.append(_error(want, found))
        if eager[-1] > SAME:
            narrow.append(_blamed(made, inputs, want))
        as_compiled.append(_error(want, made.values(inputs)["output"]))
        resembled = several if eager[-1] > SAME else {}
        alike.append({name for name, kind in resembled.items() if _error(_answers(kind, weights, inputs), found) < SAME})
    return json.dumps(
        {
            "segments": [[one.in_tensorrt, list(one.operators)] for one in made.segments],
            "in_pytorch": made.in_pytorch(),
            "attentions": made.attentions(),
            "eager": max(eager),
            "compiled": max(as_compiled),
            "narrow": min(narrow, key=len, default=[]),
            "resembles": next(iter(sorted(set.intersection(*alike))), ""),
        }
    ).encode()


SAME = 1e-4  # relative to the largest logit; FP32 rounds to 3e-6
_CLEAR = 1e-4  # between the two largest values of a feature: no rounding of FP32 exchanges their rows
_WORST = 1e9  # in place of what is not a number


def _drawn(rng: Any) -> tuple[Mapping[str, Any], Any, Any]:
    """Secret weights and inputs, and the given module's answers in FP64."""
    from course_lib.labs.lab11_torch_tensorrt import network

    gaps: list[float] = []

    class Reader(network.Reader):
        def summary(self, x: Any) -> Any:
            largest, second = x.topk(2, dim=1).values.unbind(1)
            gaps.append(float((largest - second).min()))
            return super().summary(x)

    while True:
        weights, inputs = network.weights(rng), network.inputs(rng)
        want = _answers(Reader, weights, inputs)
        if gaps[-1] > _CLEAR:
            return weights, inputs, want


def _answers(kind: Callable[[], Any], weights: Mapping[str, Any], inputs: Any) -> Any:
    import torch

    model = kind()
    model.load_state_dict(weights)
    with torch.inference_mode():
        return model.double().eval()(inputs.double())


def _error(want: Any, found: Any) -> float:
    import torch

    if not isinstance(found, torch.Tensor) or found.shape != want.shape:
        raise EngineError(f"the module returns {_described(found)}, expected logits of shape {tuple(want.shape)}")
    error = float((found.double() - want).abs().max() / want.abs().max())
    return error if error < _WORST else _WORST


def _blamed(made: Any, inputs: Any, want: Any) -> list[tuple[str, str]]:
    """The narrow operators that explain wrong answers. Constants always do, because their lost digits cannot be restored."""
    from course_lib.labs.lab11_torch_tensorrt.emulated import CONSTANT

    several: list[tuple[str, str]] = made.narrow()
    try:
        if not several or _error(want, made.values(inputs, eager=True, wide=True)["output"]) <= SAME:
            return several
    except Exception:  # another type is not the only change: the graph reads bits, for example
        return several
    return [(name, kind) for name, kind in several if name == CONSTANT]


def _described(found: Any) -> str:
    return f"the shape {tuple(found.shape)}" if hasattr(found, "shape") else "no tensor"


def mistakes() -> dict[str, Callable[[], Any]]:
    """Usual wrong rewritings of the given model, by the words of the message."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    from course_lib.labs.lab11_torch_tensorrt.network import BATCH, HEADS, ROWS, WIDTH, Reader

    def row(x: Any, number: int) -> Any:
        return x.kthvalue(number, dim=1, keepdim=True).values

    def attended(qkv: Any, scale: float) -> Any:
        q, k, v = qkv.reshape(BATCH, ROWS, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        return scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2).reshape(BATCH, ROWS, WIDTH)

    class UpperMiddle(Reader):
        def middle(self, x: Any) -> Any:
            return row(x, ROWS // 2 + 1)

    class MeanOfMiddles(Reader):
        def middle(self, x: Any) -> Any:
            return (row(x, ROWS // 2) + row(x, ROWS // 2 + 1)) / 2

    class MeanOfRows(Reader):
        def middle(self, x: Any) -> Any:
            return x.mean(1, keepdim=True)

    class Summed(Reader):
        def faded(self, gates: Any) -> Any:
            return torch.stack([gates[:, : last + 1].sum(1) for last in range(ROWS)], 1)

    class WithoutRows(Reader):
        def summary(self, x: Any) -> Any:
            largest, where = x.max(1)
            return torch.cat([largest, where.to(x.dtype)], 1)

    class NotScaled(Reader):
        def attended(self, qkv: Any) -> Any:
            return attended(qkv, 1.0)

    class ScaledByWidth(Reader):
        def attended(self, qkv: Any) -> Any:
            return attended(qkv, WIDTH**-0.5)

    class Exchanged(Reader):
        def attended(self, qkv: Any) -> Any:
            q, k, v = qkv.chunk(3, -1)
            return super().attended(torch.cat([v, k, q], -1))

    return {
        "upper_middle": UpperMiddle,
        "mean_of_middles": MeanOfMiddles,
        "mean_of_rows": MeanOfRows,
        "summed": Summed,
        "rows_not_divided": WithoutRows,
        "not_scaled": NotScaled,
        "scaled_by_width": ScaledByWidth,
        "exchanged": Exchanged,
    }


def main() -> None:
    """The child's end."""
    transform(answer)
