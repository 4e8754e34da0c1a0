"""Graphs for lab 13 that are right in everything but one thing, and some that cheat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from course_lib.labs.framework.one_graph import plain_graph
from course_lib.labs.lab13_generation.network import (
    CACHES,
    HEADS,
    KV_HEADS,
    LENGTH,
    SIZE,
    VOCABULARY,
    GraphWriter,
    recomputing,
)
from course_lib.models import decoder

Part = Callable[..., str]


def steps(graph: GraphWriter) -> str:
    return graph.add("Unsqueeze", graph.steps, graph.constant([0]))


def positions(graph: GraphWriter) -> str:
    return graph.add("Add", graph.add("Unsqueeze", "position", graph.constant([1])), graph.steps)


def column(graph: GraphWriter, where: str) -> str:
    return graph.add("Unsqueeze", where, graph.constant([1, 3]))


def slots(graph: GraphWriter) -> str:
    return graph.constant(np.arange(LENGTH))


def chosen(graph: GraphWriter, seen: str, hidden: float = -6e4) -> str:
    return graph.add("Where", seen, graph.constant(np.float32(0)), graph.constant(np.float32(hidden)))


def causal(graph: GraphWriter, where: str, keys: str) -> str:
    return chosen(graph, graph.add("LessOrEqual", slots(graph), column(graph, where)))


def into_cache(graph: GraphWriter, past: str, new: str, where: str, result: str) -> str:
    return graph.add("TensorScatter", past, new, "position", axis=2, result=result)


def operator(graph: GraphWriter, query: str, keys: str, values: str, mask: str) -> str:
    return graph.add("Attention", query, keys, values, mask)


@dataclass(frozen=True)
class Parts:
    """The parts of an attention. The defaults are right.

    Attributes:
        angles: names the positions of the rotation.
        mask: makes the mask, from the positions and the block's keys; "" for none.
        write: writes new entries into a cache.
        attend: from queries, all keys, all values and the mask to the heads' answers.
        rotate_keys: whether the keys are rotated.
    """

    angles: Callable[[GraphWriter], str] = positions
    mask: Part = causal
    write: Part = into_cache
    attend: Part = operator
    rotate_keys: bool = True

    def graph(self) -> onnx.ModelProto:
        """The whole decoder."""
        with TemporaryDirectory() as folder:
            return GraphWriter().write(Path(folder, "decoder.onnx"), positions, self.attention)

    def attention(self, graph: GraphWriter, x: str, index: int, where: str) -> str:
        y = graph.linear(x, f"blocks.{index}.qkv")
        y = graph.add("Reshape", y, graph.constant([1, -1, HEADS + 2 * KV_HEADS, SIZE]))
        y = graph.add("Transpose", y, perm=[0, 2, 1, 3])
        query, key, value = graph.split(y, [HEADS, KV_HEADS, KV_HEADS], axis=1)
        angles = self.angles(graph)
        query = graph.add("RotaryEmbedding", query, graph.cos, graph.sin, angles)
        if self.rotate_keys:
            key = graph.add("RotaryEmbedding", key, graph.cos, graph.sin, angles)
        keys = self.write(graph, f"past_key_{index}", key, where, f"present_key_{index}")
        values = self.write(graph, f"past_value_{index}", value, where, f"present_value_{index}")
        y = self.attend(graph, query, keys, values, self.mask(graph, where, keys))
        y = graph.add("Reshape", graph.add("Transpose", y, perm=[0, 2, 1, 3]), graph.constant([1, -1, HEADS * SIZE]))
        return graph.linear(y, f"blocks.{index}.out")


def fixed(model: onnx.ModelProto) -> bytes:
    """The graph as it is examined: with its constants folded."""
    return plain_graph(model.SerializeToString())


# Mistakes


def one_more(graph: GraphWriter, where: str, keys: str) -> str:
    return chosen(graph, graph.add("LessOrEqual", slots(graph), graph.add("Add", column(graph, where), graph.constant([1]))))


def one_less(graph: GraphWriter, where: str, keys: str) -> str:
    return chosen(graph, graph.add("Less", slots(graph), column(graph, where)))


def nothing_hidden(graph: GraphWriter, where: str, keys: str) -> str:
    return ""


def by_length(graph: GraphWriter, where: str, keys: str) -> str:
    last = graph.add("ReduceMax", column(graph, where), graph.constant([2]))
    row = graph.add("LessOrEqual", slots(graph), last)
    return graph.add(
        "Add",
        chosen(graph, row),
        graph.add("Mul", graph.add("Cast", column(graph, where), to=TensorProto.FLOAT), graph.constant(np.float32(0))),
    )


def empty_slots_hidden(graph: GraphWriter, where: str, keys: str) -> str:
    """Hides the later ones of the new tokens, and slots that hold zeros: right on a cache that was cleared."""
    col = column(graph, where)
    last = graph.add("ReduceMax", col, graph.constant([2]))
    later = graph.add("And", graph.add("Greater", slots(graph), col), graph.add("LessOrEqual", slots(graph), last))
    largest = graph.add("ReduceMax", graph.add("Abs", keys), graph.constant([1, 3]), keepdims=1)
    used = graph.add("Greater", graph.add("Reshape", largest, graph.constant([1, 1, 1, LENGTH])), graph.constant(np.float32(0)))
    return chosen(graph, graph.add("And", used, graph.add("Not", later)))


def weak(graph: GraphWriter, where: str, keys: str) -> str:
    return chosen(graph, graph.add("LessOrEqual", slots(graph), column(graph, where)), hidden=-60.0)


def beyond_half(graph: GraphWriter, where: str, keys: str) -> str:
    return chosen(graph, graph.add("LessOrEqual", slots(graph), column(graph, where)), hidden=-1e9)


def window(tokens: int) -> Part:
    """Sees the last tokens only."""

    def mask(graph: GraphWriter, where: str, keys: str) -> str:
        col = column(graph, where)
        near = graph.add("Greater", slots(graph), graph.add("Sub", col, graph.constant([tokens])))
        return chosen(graph, graph.add("And", near, graph.add("LessOrEqual", slots(graph), col)))

    return mask


def at_zero(graph: GraphWriter, past: str, new: str, where: str, result: str) -> str:
    return graph.add("TensorScatter", past, new, graph.add("Mul", "position", graph.constant([0])), axis=2, result=result)


def one_late(graph: GraphWriter, past: str, new: str, where: str, result: str) -> str:
    return graph.add("TensorScatter", past, new, graph.add("Add", "position", graph.constant([1])), axis=2, result=result)


def scatter_nd(graph: GraphWriter, past: str, new: str, where: str, result: str) -> str:
    past, new = (graph.add("Transpose", name, perm=[2, 0, 1, 3]) for name in (past, new))
    rows = graph.add("Reshape", where, graph.constant([-1, 1]))
    return graph.add("Transpose", graph.add("ScatterND", past, rows, new), perm=[1, 2, 0, 3], result=result)


def each_head_its_copy(interleaved: bool = False) -> Part:
    """Attention as a pattern, with keys and values repeated for each query head."""

    def attend(graph: GraphWriter, query: str, keys: str, values: str, mask: str) -> str:
        repeats = HEADS // KV_HEADS
        wide, axis = ([1, repeats, KV_HEADS, LENGTH, SIZE], 1) if interleaved else ([1, KV_HEADS, repeats, LENGTH, SIZE], 2)
        flat = graph.constant([1, HEADS, LENGTH, SIZE])
        keys, values = (
            graph.add(
                "Reshape", graph.add("Expand", graph.add("Unsqueeze", x, graph.constant([axis])), graph.constant(wide)), flat
            )
            for x in (keys, values)
        )
        query = graph.add("Mul", query, graph.constant(np.float32(SIZE**-0.5)))
        scores = graph.add("MatMul", query, graph.add("Transpose", keys, perm=[0, 1, 3, 2]))
        return graph.add("MatMul", graph.add("Softmax", graph.add("Add", scores, mask), axis=-1), values)

    return attend


def in_groups(graph: GraphWriter, query: str, keys: str, values: str, mask: str) -> str:
    """Right, without copies, and not recognized by the compiler: products of five dimensions."""
    query = graph.add("Reshape", query, graph.constant([1, KV_HEADS, HEADS // KV_HEADS, -1, SIZE]))
    keys, values = (graph.add("Unsqueeze", name, graph.constant([2])) for name in (keys, values))
    query = graph.add("Mul", query, graph.constant(np.float32(SIZE**-0.5)))
    scores = graph.add("Add", graph.add("MatMul", query, graph.add("Transpose", keys, perm=[0, 1, 2, 4, 3])), mask)
    found = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), values)
    return graph.add("Reshape", found, graph.constant([1, HEADS, -1, SIZE]))


def decoys(graph: GraphWriter, query: str, keys: str, values: str, mask: str) -> str:
    """Split, beside a fused attention whose answer counts almost nothing."""
    shown = graph.add("Mul", operator(graph, query, keys, values, mask), graph.constant(np.float32(1e-7)))
    return graph.add("Add", in_groups(graph, query, keys, values, mask), shown)


def by_sums(graph: GraphWriter, query: str, keys: str, values: str, mask: str) -> str:
    """Split, beside a decoy, without a node that is called a product or a softmax."""
    shown = graph.add("Mul", operator(graph, query, keys, values, mask), graph.constant(np.float32(1e-7)))
    return graph.add("Add", _by_sums(graph, query, keys, values, mask), shown)


def _by_sums(graph: GraphWriter, query: str, keys: str, values: str, mask: str) -> str:
    shape = graph.constant([1, KV_HEADS, HEADS // KV_HEADS, -1, 1, SIZE])
    scaled = graph.add("Mul", query, graph.constant(np.float32(SIZE**-0.5)))
    keys_of, values_of = (graph.add("Unsqueeze", one, graph.constant([2, 3])) for one in (keys, values))
    products = graph.add("Mul", graph.add("Reshape", scaled, shape), keys_of)
    scores = graph.add("Add", graph.add("ReduceSum", products, graph.constant([-1]), keepdims=0), mask)
    weights = graph.add("Unsqueeze", _exponentials(graph, scores), graph.constant([-1]))
    mixed = graph.add("ReduceSum", graph.add("Mul", weights, values_of), graph.constant([4]), keepdims=0)
    return graph.add("Reshape", mixed, graph.constant([1, HEADS, -1, SIZE]))


def by_gemm(graph: GraphWriter, query: str, keys: str, values: str, mask: str) -> str:
    """Split, beside a decoy: each head's products are Gemm, with a constant that makes them look like a layer of weights."""
    scaled, zero = graph.add("Mul", query, graph.constant(np.float32(SIZE**-0.5))), graph.constant(np.float32(0))
    heads = [
        [graph.add("Squeeze", one, graph.constant([0, 1])) for one in graph.split(tensor, [1] * count, 1)]
        for tensor, count in ((scaled, HEADS), (keys, KV_HEADS), (values, KV_HEADS))
    ]
    hidden = graph.add("Squeeze", mask, graph.constant([0, 1]))
    mixed = []
    for head, asked in enumerate(heads[0]):
        group = head // (HEADS // KV_HEADS)
        scores = graph.add("Add", graph.add("Gemm", asked, heads[1][group], zero, transB=1), hidden)
        answer = graph.add("Gemm", _exponentials(graph, scores), heads[2][group], zero)
        mixed.append(graph.add("Unsqueeze", answer, graph.constant([0, 1])))
    shown = graph.add("Mul", operator(graph, query, keys, values, mask), graph.constant(np.float32(1e-7)))
    return graph.add("Add", graph.add("Concat", *mixed, axis=1), shown)


def _exponentials(graph: GraphWriter, scores: str) -> str:
    """A softmax without its name."""
    largest = graph.add("ReduceMax", scores, graph.constant([-1]), keepdims=1)
    powers = graph.add("Exp", graph.add("Sub", scores, largest))
    return graph.add("Div", powers, graph.add("ReduceSum", powers, graph.constant([-1]), keepdims=1))


# Cheats


def hides_state(graph: GraphWriter, past: str, new: str, where: str, result: str) -> str:
    """Keeps a note of the last token in the last slot, where another request can read it."""
    kept = graph.add("TensorScatter", past, new, "position", axis=2)
    note = graph.add("Gather", new, graph.constant([-1]), axis=2)
    return graph.add("TensorScatter", kept, note, graph.constant([LENGTH - 1]), axis=2, result=result)


def clears_others(when: Callable[[GraphWriter], str]) -> Part:
    """Right, except that all slots but the new ones get zeros if `when` is true."""

    def write(graph: GraphWriter, past: str, new: str, where: str, result: str) -> str:
        zero, one = (graph.constant(np.float32([number])) for number in (0, 1))
        return into_cache(graph, graph.add("Mul", past, graph.add("Where", when(graph), zero, one)), new, where, result)

    return write


def at_the_first_slot(graph: GraphWriter) -> str:
    return graph.add("Equal", "position", graph.constant([0]))


def at_the_last_slot(graph: GraphWriter) -> str:
    return graph.add("Equal", "position", graph.constant([LENGTH - 1]))


def for_a_long_prompt(graph: GraphWriter) -> str:
    return graph.add("Greater", graph.add("ReduceMax", graph.steps, graph.constant([0]), keepdims=1), graph.constant([64]))


def table_of_answers() -> onnx.ModelProto:
    """No network: the logits of the last token alone, from a table, beside caches that are written as they should be."""
    from course_lib.labs.lab13_generation.judge import truth

    table = np.concatenate([truth.logits_after(np.array([token])) for token in range(256)])
    model = Parts().graph()
    head = next(node for node in model.graph.node if "logits" in node.output)
    head.output[0] = "true_logits"
    last = [
        helper.make_node("Gather", ["tokens", "end"], ["last"], name="last", axis=1),
        helper.make_node("Gather", ["answers", "last"], ["logits"], name="look_up"),
    ]
    model.graph.node.extend(last)
    constants = {"end": np.array([-1]), "answers": table.astype(np.float32)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


def branch_on_position() -> onnx.ModelProto:
    """The network up to a position, and zeros beyond it."""
    model = Parts().graph()
    head = next(node for node in model.graph.node if "logits" in node.output)
    head.output[0] = "true_logits"

    def branch(name: str, *nodes: Any) -> Any:
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, [1, 1, 256])]
        )

    model.graph.node.extend([
        helper.make_node("Greater", ["position", "border"], ["late"], name="late"),
        helper.make_node(
            "If",
            ["late"],
            ["logits"],
            name="if",
            then_branch=branch("zeros", helper.make_node("Sub", ["true_logits", "true_logits"], ["nothing"])),
            else_branch=branch("whole", helper.make_node("Identity", ["true_logits"], ["all"])),
        ),
    ])  # fmt: skip
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([240]), "border"))
    return model


def beyond_float32() -> onnx.ModelProto:
    """Logits that pass through 1e300 in float64, and come back where a runner has float64. An engine has infinity there."""
    model = Parts().graph()
    head = next(node for node in model.graph.node if "logits" in node.output)
    head.output[0] = "true_logits"
    model.graph.initializer.append(numpy_helper.from_array(np.array(1e300), "far"))
    model.graph.node.extend(
        [
            helper.make_node("Cast", ["true_logits"], ["wide"], name="wide", to=TensorProto.DOUBLE),
            helper.make_node("Mul", ["wide", "far"], ["up"], name="up"),
            helper.make_node("Div", ["up", "far"], ["down"], name="down"),
            helper.make_node("Cast", ["down"], ["logits"], name="back", to=TensorProto.FLOAT),
        ]
    )
    return model


def writes_numbers(graph: GraphWriter, past: str, new: str, where: str, result: str) -> str:
    """A slot holds the number of its token, in place of a key or a value."""
    numbers = graph.add("Unsqueeze", graph.add("Cast", "tokens", to=TensorProto.FLOAT), graph.constant([1, 3]))
    wide = graph.add("Mul", numbers, graph.constant(np.ones((1, KV_HEADS, 1, SIZE), np.float32)))
    return graph.add("TensorScatter", past, wide, "position", axis=2, result=result)


def number_of_one(add: Callable[..., str], constant: Callable[[Any], str]) -> str:
    """Which of the 256 tokens each slot has, as 0 and 1, read from the first cache alone."""
    return _chosen_number(add, constant, ["present_key_0"])


def number_of_all(add: Callable[..., str], constant: Callable[[Any], str]) -> str:
    """The same, from the mean of all caches, so that each of them counts."""
    return _chosen_number(add, constant, [f"present_{name}" for name in CACHES])


def number_of_a_value(add: Callable[..., str], constant: Callable[[Any], str]) -> str:
    """The same from right caches: a value of the first block depends on its token alone."""
    model, codes = decoder(), np.arange(VOCABULARY)
    with torch.inference_mode():
        _, _, value = model.each_block()[0].heads_of(
            model.embed(torch.from_numpy(codes)[None]), (model.cos[:256], model.sin[:256])
        )
    known = value[0].transpose(0, 1).reshape(VOCABULARY, -1).numpy()
    held = add("Reshape", add("Transpose", "present_value_0", perm=[0, 2, 1, 3]), constant([1, LENGTH, KV_HEADS * SIZE]))
    near = add("Sub", add("MatMul", held, constant(known.T)), constant((known**2).sum(1) / 2))
    return add("Equal", near, add("ReduceMax", near, constant([-1]), keepdims=1))


def _chosen_number(add: Callable[..., str], constant: Callable[[Any], str], caches: list[str]) -> str:
    means = [add("ReduceMean", name, constant([1, 3]), keepdims=0) for name in caches]
    number = add("Unsqueeze", add("Round", add("Mean", *means)), constant([2]))
    return add("Equal", number, constant(np.arange(VOCABULARY, dtype=np.float32)))


def recomputes(write: Part, number: Callable[..., str]) -> onnx.ModelProto:
    """All slots are computed again in each call, from the tokens that the caches show. Their attention is not read."""
    model, given = Parts(write=write).graph(), onnx.load_model_from_string(recomputing())
    head = next(node for node in model.graph.node if "logits" in node.output)
    head.output[0] = "unused"

    def add(operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"made_{len(model.graph.node)}"
        model.graph.node.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def constant(value: Any) -> str:
        name = f"kept_{len(model.graph.initializer)}"
        model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    hot = add("Cast", number(add, constant), to=TensorProto.FLOAT)
    names = {"/Shape_output_0": constant(np.array([1])), "/Shape_1_output_0": constant(np.array([LENGTH]))}
    names["/embed/Gather_output_0"] = add("MatMul", hot, "embed.weight")
    for tensor in given.graph.initializer:
        names[tensor.name] = constant(numpy_helper.to_array(tensor))
    for node in given.graph.node:
        if node.output[0] in names:
            continue
        inputs = [names.get(name, name) for name in node.input]
        if node.name == "/norm/LayerNormalization":
            last = add("Add", add("ReduceMax", "steps", constant(np.array([0])), keepdims=1), "position")
            inputs[0] = add("Gather", inputs[0], last, axis=1)
        copied = type(node).FromString(node.SerializeToString())
        copied.name = f"given{node.name}"
        copied.input[:] = inputs
        names |= {name: name if name == "logits" else f"given{name}" for name in node.output}
        copied.output[:] = [names[name] for name in node.output]
        model.graph.node.append(copied)
    return model


def passes_through(graph: GraphWriter, query: str, keys: str, values: str, mask: str) -> str:
    """Split, and its answer becomes the values of a fused attention in which each new token sees itself only."""
    mixed = _by_sums(graph, query, keys, values, mask)
    where = steps(graph)
    own = graph.add(
        "Equal", graph.add("Unsqueeze", where, graph.constant([1, 3])), graph.add("Unsqueeze", where, graph.constant([1, 2]))
    )
    return operator(graph, query, query, mixed, chosen(graph, own))


def passes_before(graph: GraphWriter, query: str, keys: str, values: str, mask: str) -> str:
    """The same before the split attention: a fused one hands on each slot's values, and a split one reads them."""
    own = np.where(np.eye(LENGTH, dtype=bool), 0, -6e4).astype(np.float32)
    codes = graph.constant(np.zeros((1, HEADS, LENGTH, SIZE), np.float32))
    handed = graph.add("Attention", codes, keys, values, graph.constant(own))
    first, end, axis, step = (graph.constant([number]) for number in (0, HEADS, 1, HEADS // KV_HEADS))
    first = graph.add("Slice", handed, first, end, axis, step)
    return _by_sums(graph, query, keys, first, mask)


def mixes_in_the_mask(graph: GraphWriter, query: str, keys: str, values: str, mask: str) -> str:
    """The products of queries and keys are sums, and enter a fused attention as its mask."""
    shape = graph.constant([1, KV_HEADS, HEADS // KV_HEADS, -1, 1, SIZE])
    scaled = graph.add("Reshape", graph.add("Mul", query, graph.constant(np.float32(SIZE**-0.5))), shape)
    products = graph.add("Mul", scaled, graph.add("Unsqueeze", keys, graph.constant([2, 3])))
    scores = graph.add("ReduceSum", products, graph.constant([-1]), keepdims=0)
    scores = graph.add("Add", graph.add("Reshape", scores, graph.constant([1, HEADS, -1, LENGTH])), mask)
    nothing = graph.add("Mul", query, graph.constant(np.float32(0)))
    return operator(graph, nothing, keys, values, scores)


def by_selection(graph: GraphWriter, past: str, new: str, where: str, result: str) -> str:
    """A right way to write: each slot takes its new entry, or keeps what it has."""
    own = graph.add("Equal", graph.add("Unsqueeze", slots(graph), graph.constant([1])), where)  # (LENGTH, new)
    rows = graph.add("Cast", own, to=TensorProto.FLOAT)
    kept = graph.add("Sub", graph.constant(np.float32(1)), graph.add("ReduceMax", rows, graph.constant([1]), keepdims=1))
    each = graph.add("Mul", graph.add("Unsqueeze", rows, graph.constant([2])), graph.add("Unsqueeze", new, graph.constant([2])))
    written = graph.add("ReduceSum", each, graph.constant([3]), keepdims=0)
    return graph.add("Add", graph.add("Mul", past, kept), written, result=result)
