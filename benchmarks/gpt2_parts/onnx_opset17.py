"""The language model with a cache of keys and values as ONNX for TensorRT 8.6: operator set 17, fixed shapes, tokens as int32.

================  ============================================================================================
form              attention
================  ============================================================================================
``plain``         products, a softmax, and `Where`, which puts the new key and value into a copy of the cache
``plugin``        one node `CourseCachedAttention`, which rotates, writes the cache in place, and attends
================  ============================================================================================

A graph takes one new token of each sequence (a step), or a prompt, which fills an empty cache. It computes the logits of the last token.

==================================  ===============================================================================================
input                               shape and type
==================================  ===============================================================================================
``tokens``                          ``(batch, new)``, int32
``position``                        ``(1,)``, int32: number of tokens in the cache
``past_key_0``, ``past_value_0``    ``(batch, heads, length, size)``, a pair for each block, in the graph's precision
==================================  ===============================================================================================

The outputs are ``logits`` ``(batch, vocabulary)`` and ``present_key_0``, ``present_value_0`` and so on. With the form "plugin", bind each
output of the cache to the address of its input. A prompt of the form "plain" has ``tokens`` as its only input, and its outputs of the
cache hold the prompt only, ``(batch, heads, new, size)``.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch.nn.functional import pad

from course_lib.models.gpt import GPT, MASKED, GPTBlock
from course_lib.models.gpt_onnx import NodeWriter

AttentionForm = Literal["plain", "plugin"]
# Of the plugin's node, as `attention_parts.fused_attention` has them; TensorRT's parser finds the plugin by these.
NODE, DOMAIN, VERSION, NAMESPACE, HEAD_SIZE = "CourseCachedAttention", "course", "1", "course", 64
_OPSET = 17  # the newest that TensorRT 8.6 reads
_ALIGNED = 8  # halves in 16 bytes: kernels of products load so many at once if every row of a matrix begins at such an address


def export_for_tensorrt8(
    model: GPT,
    form: AttentionForm,
    *,
    new: int = 1,
    batch: int = 1,
    length: int = 1024,
    dtype: Literal["fp32", "fp16"] = "fp16",
) -> onnx.ModelProto:
    """Write the graph of one step or of one prompt.

    Args:
        model: one KV head for each query head; it is not changed.
        form: see this module's table. The plugin's kernels compute in FP16 and for heads of 64.
        new: new tokens of each sequence: 1 for a step, more for a prompt.
        length: tokens of each sequence that the cache has room for.
    """
    return _Writer(model, form, new, batch, length, dtype).model()


class _Writer(NodeWriter):
    """Between attentions the tokens of all sequences are the rows of one matrix: 8.6 would multiply a batch of single rows one by one."""

    def __init__(self, model: GPT, form: AttentionForm, new: int, batch: int, length: int, dtype: str) -> None:
        super().__init__(dtype)
        self.source, self.form, self.new, self.batch, self.length = model, form, new, batch, length
        self.block = model.each_block()[0]
        self.has_past = form == "plugin" or new == 1

    def model(self) -> onnx.ModelProto:
        """The whole graph."""
        block = self.block
        inputs = [helper.make_tensor_value_info("tokens", TensorProto.INT32, [self.batch, self.new])]
        outputs = [helper.make_tensor_value_info("logits", self.type, [self.batch, self.source.embed.num_embeddings])]
        names = [f"{kind}_{index}" for index in range(len(self.source.blocks)) for kind in ("key", "value")]
        slots = self.length if self.has_past else self.new
        shape = [self.batch, block.heads, slots, block.size]
        if self.has_past:
            inputs.append(helper.make_tensor_value_info("position", TensorProto.INT32, [1]))
            inputs += [helper.make_tensor_value_info(f"past_{name}", self.type, shape) for name in names]
        outputs += [helper.make_tensor_value_info(f"present_{name}", self.type, shape) for name in names]
        self._body()
        graph = helper.make_graph(self.nodes, "GPT", inputs, outputs, self.weights)
        domains = [helper.make_opsetid("", _OPSET), *([helper.make_opsetid(DOMAIN, 1)] if self.form == "plugin" else [])]
        return helper.make_model(graph, opset_imports=domains, ir_version=8)

    def _body(self) -> None:
        width = self.source.embed.embedding_dim
        if self.form == "plain":
            self._prepare_plain()
        tokens = self.add("Reshape", "tokens", self.constant("/rows", [-1]), name="/tokens/Reshape")
        x = self.add("Gather", self.weight("embed.weight", self.source.embed.weight), tokens, name="/embed/Gather")
        for index, block in enumerate(self.source.each_block()):
            x = self._block(x, block, index)
        if self.new > 1:
            x = self.add("Reshape", x, self.constant("/sequences", [self.batch, self.new, width]), name="/last/Reshape")
            x = self.add("Gather", x, self.constant("/last", self.new - 1), name="/last/Gather", axis=1)
        self._head(self.norm(x, self.source.norm, "norm"))

    def _head(self, x: str) -> None:
        """The logits. The vocabulary is padded to a multiple of 8 for the product, and the scores of the padding are cut off."""
        vocabulary = self.source.embed.num_embeddings
        padding = -vocabulary % _ALIGNED
        result = "" if padding else "logits"
        head = self.weight("head.weight", pad(self.source.embed.weight, (0, 0, 0, padding)).T)
        scores = self.add("MatMul", x, head, name="/head/MatMul", result=result)
        if padding:
            ends = [
                self.constant(f"/head/{name}", [value]) for name, value in (("starts", 0), ("ends", vocabulary), ("axes", 1))
            ]
            self.add("Slice", scores, *ends, name="/head/Slice", result="logits")

    def _block(self, x: str, block: GPTBlock, index: int) -> str:
        path, own = f"blocks.{index}", f"/blocks/{index}"
        qkv = self.linear(self.norm(x, block.norm1, f"{path}.norm1"), block.qkv, f"{path}.qkv")
        attended = self._plugin(qkv, index) if self.form == "plugin" else self._plain(qkv, index)
        rows = self.constant("/width", [-1, block.heads * block.size])
        y = self.add("Reshape", attended, rows, name=f"{own}/out/Reshape")
        x = self.add("Add", x, self.linear(y, block.out, f"{path}.out"), name=f"{own}/Add")
        y = self.linear(self.norm(x, block.norm2, f"{path}.norm2"), block.up, f"{path}.up")
        return self.add("Add", x, self.linear(self._gelu(y, own), block.down, f"{path}.down"), name=f"{own}/Add_1")

    def _gelu(self, x: str, own: str) -> str:
        """x (1 + erf(x / sqrt(2))) / 2; the operator Gelu came with operator set 20."""
        one, half, root = (
            self.constant(f"/gelu/{name}", self.numpy_type(value))
            for name, value in (("one", 1), ("half", 0.5), ("root", 2**0.5))
        )
        erf = self.add("Erf", self.add("Div", x, root, name=f"{own}/gelu/Div"), name=f"{own}/gelu/Erf")
        product = self.add("Mul", x, self.add("Add", erf, one, name=f"{own}/gelu/Add"), name=f"{own}/gelu/Mul")
        return self.add("Mul", product, half, name=f"{own}/gelu/Mul_1")

    # ---- the plugin

    def _plugin(self, qkv: str, index: int) -> str:
        shape = self.constant("/qkv", [self.batch, self.new, 3 * self.block.heads * self.block.size])
        qkv = self.add("Reshape", qkv, shape, name=f"/blocks/{index}/qkv/Reshape")
        tables = (
            self.constant(name, table[: self.length].float().cpu().numpy())
            for name, table in (("cos", self.source.cos), ("sin", self.source.sin))
        )
        caches = [f"{kind}_{index}" for kind in ("key", "value")]
        attended = f"/blocks/{index}/attention_output_0"
        self.nodes.append(
            helper.make_node(
                NODE,
                [qkv, *(f"past_{name}" for name in caches), "position", *tables],
                [attended, *(f"present_{name}" for name in caches)],
                name=f"/blocks/{index}/attention",
                domain=DOMAIN,
                heads=self.block.heads,
                plugin_version=VERSION,
                plugin_namespace=NAMESPACE,
            )
        )
        return attended

    # ---- plain operators

    def _prepare_plain(self) -> None:
        """What all blocks share: the rotation of the new tokens, the slot that a step writes, and the mask ``(new, slots)``."""
        cos, sin = self.source.cos[: self.length], self.source.sin[: self.length]
        if self.new > 1:
            later = torch.ones(self.new, self.new, dtype=torch.bool).triu(1)
            self.mask = self.weight("mask", MASKED * later)
            self.rotation = self.weight("cos", cos[: self.new]), self.weight("sin", sin[: self.new])
            return
        slots = np.arange(self.length, dtype=np.int32)
        self.is_new = self.add("Equal", self.constant("/column", slots[:, None]), "position", name="/slots/Equal")
        seen = self.add("LessOrEqual", self.constant("/row", slots[None]), "position", name="/mask/LessOrEqual")
        zero, masked = (
            self.constant(f"/mask/{name}", self.numpy_type(value)) for name, value in (("zero", 0), ("masked", MASKED))
        )
        self.mask = self.add("Where", seen, zero, masked, name="/mask/Where")
        self.rotation = (
            self.add("Gather", self.weight("cos", cos), "position", name="/cos/Gather"),
            self.add("Gather", self.weight("sin", sin), "position", name="/sin/Gather"),
        )

    def _plain(self, qkv: str, index: int) -> str:
        heads, size, own = self.block.heads, self.block.size, f"/blocks/{index}"
        shape = self.constant("/heads", [self.batch, self.new, 3 * heads, size])
        y = self.add("Reshape", qkv, shape, name=f"{own}/heads/Reshape")
        y = self.add("Transpose", y, name=f"{own}/heads/Transpose", perm=[0, 2, 1, 3])
        present = {kind: f"present_{kind}_{index}" for kind in ("key", "value")}
        fresh = {kind: f"{own}/{kind}" for kind in present} if self.has_past else present
        turned, value = self.split(y, (2 * heads, heads), f"{own}/qkv/Split", results=(f"{own}/turned", fresh["value"]))
        turned = self._rotated(turned, own)
        query, key = self.split(turned, (heads, heads), f"{own}/qk/Split", results=(f"{own}/query", fresh["key"]))
        if self.has_past:
            key, value = (
                self.add("Where", self.is_new, fresh[kind], f"past_{kind}_{index}", name=f"{own}/{kind}/Where", result=name)
                for kind, name in present.items()
            )
        scale = self.constant("/scale", self.numpy_type(size**-0.5))
        query = self.add("Mul", query, scale, name=f"{own}/scale/Mul")
        key = self.add("Transpose", key, name=f"{own}/key/Transpose", perm=[0, 1, 3, 2])
        scores = self.add("MatMul", query, key, name=f"{own}/scores/MatMul")
        scores = self.add("Add", scores, self.mask, name=f"{own}/mask/Add")
        weights = self.add("Softmax", scores, name=f"{own}/Softmax", axis=-1)
        y = self.add("MatMul", weights, value, name=f"{own}/weighted/MatMul")
        return self.add("Transpose", y, name=f"{own}/out/Transpose", perm=[0, 2, 1, 3])

    def _rotated(self, x: str, own: str) -> str:
        """Feature i turns with feature i + size/2; see `gpt.GPTBlock.heads_of`."""
        half, (cos, sin), own = self.block.size // 2, self.rotation, f"{own}/rotation"
        first, second = self.split(x, (half, half), f"{own}/Split", axis=3)

        def sum_of(operator: str, a: str, b: str, name: str) -> str:
            products = (self.add("Mul", part, by, name=f"{own}/{name}/Mul_{by}") for part, by in ((a, cos), (b, sin)))
            return self.add(operator, *products, name=f"{own}/{name}/{operator}")

        turned = sum_of("Sub", first, second, "first"), sum_of("Add", second, first, "second")
        return self.add("Concat", *turned, name=f"{own}/Concat", axis=-1)
