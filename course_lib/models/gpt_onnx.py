"""The language model with a cache of keys and values as ONNX, in three forms that differ in how the cache is written.

==================  ==================================  ==========================================================
form                cache                               operator that adds the new keys and values
==================  ==================================  ==========================================================
``tensor_scatter``  fixed length, written in place      `TensorScatter` (operator set 24)
``scatter_nd``      fixed length, written in place      `ScatterND` between transposes, torch's ``index_copy``
``concat``          grows, a new tensor in each step    `Concat`
==================  ==================================  ==========================================================

This module writes the first and the last form node by node. torch's exporter writes the other one. All three have the operator
`Attention` (operator set 23) with a mask that is added to the scores.

One graph serves prefill and decode, because the number of new tokens is dynamic:

==================================  ==================================================================================
input                               shape and type
==================================  ==================================================================================
``tokens``                          ``(batch, new)``, int64
``position``                        ``(batch,)``, int64: number of tokens in the cache; ``(1,)`` in the form ``scatter_nd``
``past_key_0``, ``past_value_0``    ``(batch, kv_heads, length, size)``, a pair for each block, in the graph's precision
==================================  ==================================================================================

The outputs are ``logits`` ``(batch, new, vocabulary)``, always float32, and ``present_key_0``, ``present_value_0`` and so on.
"""

from __future__ import annotations

import copy
from typing import Any, Literal, get_args

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from course_lib.models.export import name_after_modules, quiet
from course_lib.models.gpt import GPT, LONGEST, MASKED, GPTBlock

CacheForm = Literal["tensor_scatter", "scatter_nd", "concat"]
_OPSET = 24  # the first one with TensorScatter


def export_cached(
    model: GPT,
    form: CacheForm = "tensor_scatter",
    *,
    dtype: Literal["fp32", "fp16"] = "fp32",
    length: int = LONGEST,
    batch: int = 1,
    last_only: bool = False,
) -> onnx.ModelProto:
    """Export ``model.step``, prefill and decode in one graph, and check the result with ``onnx.checker``.

    Args:
        model: it is not changed.
        form: how the cache is written, see this module's table.
        dtype: "fp16" computes, stores weights and keeps the cache in half precision. ``logits`` are float32 either way.
        length: tokens of each sequence that a static cache has room for. The form "concat" has no cache of fixed length, and uses it
            as the largest position only.
        batch: number of sequences. Each has its own position, except in the form "scatter_nd", which reads one position for all.
        last_only: compute the logits of the last token only, ``(batch, 1, vocabulary)``.

    Raises:
        ValueError: an unknown form or dtype, a length below 1 or above ``model.longest``, or a batch below 1.
    """
    if form not in get_args(CacheForm) or dtype not in ("fp32", "fp16"):
        known = ", ".join(get_args(CacheForm))
        raise ValueError(f"form must be one of {known}, and dtype 'fp32' or 'fp16', got {form!r} and {dtype!r}")
    if not 1 <= length <= model.longest or batch < 1:
        raise ValueError(
            f"length must be 1 to {model.longest}, the model's longest, and batch at least 1, got {length} and {batch}"
        )
    if form == "scatter_nd":
        written = _exported(model, model.empty_cache(length, batch), dtype, last_only)
    else:
        written = _Writer(model, form, dtype, length, batch, last_only).model()
    onnx.checker.check_model(written, full_check=True)
    return written


class NodeWriter:
    """Collects nodes and weights. Each method adds the nodes of one part and returns the name of its result.

    Args:
        dtype: ``"fp32"`` or ``"fp16"``, of weights and arithmetic.
    """

    def __init__(self, dtype: str) -> None:
        self.type = TensorProto.FLOAT16 if dtype == "fp16" else TensorProto.FLOAT
        self.numpy_type = np.float16 if dtype == "fp16" else np.float32
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def norm(self, x: str, norm: nn.Module, path: str) -> str:
        """A layer norm; `path` is the module's name."""
        assert isinstance(norm, nn.LayerNorm)
        scale, bias = self.weight(f"{path}.weight", norm.weight), self.weight(f"{path}.bias", norm.bias)
        return self.add("LayerNormalization", x, scale, bias, name=f"{_slashed(path)}/LayerNormalization", epsilon=norm.eps)

    def linear(self, x: str, layer: nn.Linear, path: str) -> str:
        """A product with a layer's weights; `path` is the module's name."""
        return self.add("MatMul", x, self.weight(f"{path}.weight", layer.weight.T), name=f"{_slashed(path)}/MatMul")

    def split(
        self, x: str, sizes: tuple[int, int], name: str, *, axis: int = 1, results: tuple[str, str] | None = None
    ) -> tuple[str, str]:
        """Two parts of a tensor along an axis."""
        results = results or (f"{name}_output_0", f"{name}_output_1")
        split = self.constant("/split_" + "_".join(map(str, sizes)), list(sizes))
        self.nodes.append(helper.make_node("Split", [x, split], results, name=name, axis=axis))
        return results

    def add(self, operator: str, *inputs: str, name: str, result: str = "", **attributes: Any) -> str:
        """A node with one output."""
        result = result or f"{name}_output_0"
        self.nodes.append(helper.make_node(operator, inputs, [result], name=name, **attributes))
        return result

    def weight(self, name: str, weight: Tensor) -> str:
        """An initializer in the graph's precision."""
        return self.constant(name, weight.detach().cpu().numpy().astype(self.numpy_type))

    def constant(self, name: str, value: Any) -> str:
        """An initializer, int64 unless it is an array or a scalar of another type; equal names mean equal values."""
        if all(known.name != name for known in self.weights):
            self.weights.append(numpy_helper.from_array(np.asarray(value, order="C"), name))
        return name


def _slashed(path: str) -> str:
    return "/" + path.replace(".", "/")


class _Writer(NodeWriter):
    """Writes the graph. Each method adds the nodes of one part and returns the name of its result."""

    def __init__(self, model: GPT, form: CacheForm, dtype: str, length: int, batch: int, last_only: bool) -> None:
        super().__init__(dtype)
        self.source, self.form, self.length, self.batch, self.last_only = model, form, length, batch, last_only
        self.block = model.each_block()[0]

    def model(self) -> onnx.ModelProto:
        """The whole graph."""
        vocabulary, block = self.source.embed.num_embeddings, self.block
        old, new = (self.length, self.length) if self.form == "tensor_scatter" else ("past", "past_and_new")
        tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, [self.batch, "new"])
        position = helper.make_tensor_value_info("position", TensorProto.INT64, [self.batch])
        answered = 1 if self.last_only else "new"
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [self.batch, answered, vocabulary])
        names = [f"{kind}_{index}" for index in range(len(self.source.blocks)) for kind in ("key", "value")]

        def caches(prefix: str, slots: int | str) -> list[onnx.ValueInfoProto]:
            shape = [self.batch, block.kv_heads, slots, block.size]
            return [helper.make_tensor_value_info(f"{prefix}_{name}", self.type, shape) for name in names]

        self._body()
        graph = helper.make_graph(
            self.nodes, "GPT", [tokens, position, *caches("past", old)], [logits, *caches("present", new)], self.weights
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=11)

    def _body(self) -> None:
        count = self.add("Shape", "tokens", name="/new/Shape", start=1, end=2)
        steps = self.add(
            "Range",
            self.constant("/zero", 0),
            self.add("Squeeze", count, name="/new/Squeeze"),
            self.constant("/one", 1),
            name="/Range",
        )
        row = self.add("Unsqueeze", "position", self.constant("/axis_1", [1]), name="/positions/Unsqueeze")
        positions = self.add("Add", row, steps, name="/positions/Add")  # (batch, new)
        self.rotation = (*self._rotation(), positions)
        self.mask = ""
        embedding = self.weight("embed.weight", self.source.embed.weight)
        x = self.add("Gather", embedding, "tokens", name="/embed/Gather")
        for index, block in enumerate(self.source.each_block()):
            x = self._block(x, block, index, positions)
        if self.last_only:
            x = self.add("Gather", x, self.constant("/last", [-1]), name="/last/Gather", axis=1)
        x = self.norm(x, self.source.norm, "norm")
        head = self.add("Transpose", embedding, name="/head/Transpose", perm=[1, 0])
        logits = self.add("MatMul", x, head, name="/head/MatMul")
        self.add("Cast", logits, name="/head/Cast", to=TensorProto.FLOAT, result="logits")

    def _block(self, x: str, block: GPTBlock, index: int, positions: str) -> str:
        path, heads, grouped = f"blocks.{index}", block.heads, block.kv_heads
        own = f"/blocks/{index}"
        y = self.linear(self.norm(x, block.norm1, f"{path}.norm1"), block.qkv, f"{path}.qkv")
        shape = self.constant("/heads", [self.batch, -1, heads + 2 * grouped, block.size])
        y = self.add("Reshape", y, shape, name=f"{own}/heads/Reshape")
        y = self.add("Transpose", y, name=f"{own}/heads/Transpose", perm=[0, 2, 1, 3])
        turned, value = self.split(y, (heads + grouped, grouped), f"{own}/qkv/Split")
        turned = self.add("RotaryEmbedding", turned, *self.rotation, name=f"{own}/RotaryEmbedding")
        query, key = self.split(turned, (heads, grouped), f"{own}/qk/Split")
        keys, values = (self._cached(fresh, kind, index) for fresh, kind in ((key, "key"), (value, "value")))
        self.mask = self.mask or self._mask(keys, positions)
        y = self.add("Attention", query, keys, values, self.mask, name=f"{own}/Attention")
        y = self.add("Transpose", y, name=f"{own}/out/Transpose", perm=[0, 2, 1, 3])
        y = self.add("Reshape", y, self.constant("/width", [self.batch, -1, heads * block.size]), name=f"{own}/out/Reshape")
        x = self.add("Add", x, self.linear(y, block.out, f"{path}.out"), name=f"{own}/Add")
        y = self.linear(self.norm(x, block.norm2, f"{path}.norm2"), block.up, f"{path}.up")
        y = self.add("Gelu", y, name=f"{own}/Gelu")
        return self.add("Add", x, self.linear(y, block.down, f"{path}.down"), name=f"{own}/Add_1")

    def _cached(self, fresh: str, kind: str, index: int) -> str:
        """All keys or values that the new tokens may see, after the new ones entered the cache; an output of the graph."""
        past, own, result = f"past_{kind}_{index}", f"/blocks/{index}/{kind}", f"present_{kind}_{index}"
        if self.form == "concat":
            return self.add("Concat", past, fresh, name=f"{own}/Concat", axis=2, result=result)
        return self.add(
            "TensorScatter", past, fresh, "position", name=f"{own}/TensorScatter", axis=2, mode="linear", result=result
        )

    def _mask(self, keys: str, positions: str) -> str:
        """``(batch, 1, new, slots)``, added to the scores: 0 for the slots of a token and those before it. All blocks share it."""
        if self.form == "concat":
            size = self.add("Shape", keys, name="/mask/Shape", start=2, end=3)
            last = self.add("Squeeze", size, name="/mask/Squeeze")
            slots = self.add("Range", self.constant("/zero", 0), last, self.constant("/one", 1), name="/mask/Range")
        else:
            slots = self.constant("/slots", np.arange(self.length))
        column = self.add("Unsqueeze", positions, self.constant("/axes_1_3", [1, 3]), name="/mask/Unsqueeze")
        seen = self.add("LessOrEqual", slots, column, name="/mask/LessOrEqual")
        zero, masked = (
            self.constant(f"/mask/{name}", self.numpy_type(value)) for name, value in (("zero", 0), ("masked", MASKED))
        )
        return self.add("Where", seen, zero, masked, name="/mask/Where")

    def _rotation(self) -> tuple[str, str]:
        """Tables of cosines and sines by position, ``(length, size / 2)``."""
        tables = {"cos": self.source.cos[: self.length], "sin": self.source.sin[: self.length]}
        cos, sin = (self.weight(name, table) for name, table in tables.items())
        return cos, sin


class _Step(nn.Module):
    """``model.step`` as a module, for torch's exporter."""

    def __init__(self, model: GPT, last_only: bool) -> None:
        super().__init__()
        self.model, self.last_only = model, last_only

    def forward(self, tokens: Tensor, position: Tensor, cache: list[Tensor]) -> tuple[Tensor, ...]:
        logits, *cache = self.model.step(tokens, position, cache, in_place=False, last_only=self.last_only)
        return logits.float(), *cache


def _exported(model: GPT, cache: list[Tensor], dtype: str, last_only: bool) -> onnx.ModelProto:
    batch, _, length, _ = cache[0].shape
    step = _Step(copy.deepcopy(model).eval().cpu(), last_only)
    step = step.half() if dtype == "fp16" else step.float()
    cache = step.model.empty_cache(length, batch)
    names = [f"{kind}_{index}" for index in range(len(model.blocks)) for kind in ("key", "value")]
    with quiet(), torch.no_grad():
        program = torch.onnx.export(
            step,
            (torch.zeros(batch, 2, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), cache),
            dynamo=True,
            verbose=False,
            opset_version=_OPSET - 1,
            input_names=["tokens", "position", *(f"past_{name}" for name in names)],
            output_names=["logits", *(f"present_{name}" for name in names)],
            dynamic_shapes=({1: torch.export.Dim("new", max=length)}, None, [None] * len(cache)),
        )
    assert program is not None
    name_after_modules(program.model)
    return program.model_proto
