"""Graphs for lab 13 that are right in everything but one thing, and hosts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx

from course_lib.labs.lab13_generation import reference
from course_lib.labs.lab13_generation.given import HEADS, KV_HEADS, LENGTH, POSITIONS, SIZE, WINDOW, GraphWriter
from course_lib.models import decoder, export_cached

Part = Callable[..., str]


def positions(graph: GraphWriter) -> str:
    return graph.add("Add", graph.add("Unsqueeze", "position", graph.constant([1])), graph.steps)


def column(graph: GraphWriter, where: str) -> str:
    return graph.add("Unsqueeze", where, graph.constant([1, 3]))


def slots(graph: GraphWriter) -> str:
    return graph.constant(np.arange(LENGTH))


def shown(graph: GraphWriter, seen: str) -> str:
    return graph.add("Where", seen, graph.constant(np.float32(0)), graph.constant(np.float32(-3e4)))


def ring(graph: GraphWriter, where: str, keys: str) -> str:
    """From the position that each slot holds, where the reference computes how many tokens ago it was written."""
    col = column(graph, where)
    lap = graph.add(
        "Mul", graph.add("Div", graph.add("Sub", col, slots(graph)), graph.constant([LENGTH])), graph.constant([LENGTH])
    )
    held = graph.add("Add", slots(graph), lap)
    after = graph.add("Greater", held, graph.add("Sub", col, graph.constant([WINDOW])))
    return shown(graph, graph.add("And", after, graph.add("LessOrEqual", held, col)))


def into_ring(graph: GraphWriter, past: str, new: str, where: str, result: str) -> str:
    slot = graph.add("Mod", "position", graph.constant([LENGTH]))
    return graph.add("TensorScatter", past, new, slot, axis=2, result=result)


def operator(graph: GraphWriter, query: str, keys: str, values: str, mask: str) -> str:
    return graph.add("Attention", query, keys, values, mask)


@dataclass(frozen=True)
class Parts:
    """The parts of an attention. The defaults are right."""

    angles: Part = positions
    mask: Part = ring
    write: Part = into_ring
    attend: Part = operator

    def model(self) -> bytes:
        """The whole decoder."""
        with TemporaryDirectory() as folder:
            return GraphWriter().write(Path(folder, "decoder.onnx"), positions, self.attention).SerializeToString()

    def attention(self, graph: GraphWriter, x: str, index: int, where: str) -> str:
        y = graph.linear(x, f"blocks.{index}.qkv")
        y = graph.add("Reshape", y, graph.constant([1, -1, HEADS + 2 * KV_HEADS, SIZE]))
        y = graph.add("Transpose", y, perm=[0, 2, 1, 3])
        query, key, value = graph.split(y, [HEADS, KV_HEADS, KV_HEADS], axis=1)
        angles = self.angles(graph)
        query, key = (graph.add("RotaryEmbedding", x, graph.cos, graph.sin, angles) for x in (query, key))
        keys = self.write(graph, f"past_key_{index}", key, where, f"present_key_{index}")
        values = self.write(graph, f"past_value_{index}", value, where, f"present_value_{index}")
        y = self.attend(graph, query, keys, values, self.mask(graph, where, keys))
        y = graph.add("Reshape", graph.add("Transpose", y, perm=[0, 2, 1, 3]), graph.constant([1, -1, HEADS * SIZE]))
        return graph.linear(y, f"blocks.{index}.out")


def no_window(graph: GraphWriter, where: str, keys: str) -> str:
    return shown(graph, graph.add("LessOrEqual", slots(graph), column(graph, where)))


def no_ring(graph: GraphWriter, where: str, keys: str) -> str:
    col = column(graph, where)
    near = graph.add("Greater", slots(graph), graph.add("Sub", col, graph.constant([WINDOW])))
    return shown(graph, graph.add("And", near, graph.add("LessOrEqual", slots(graph), col)))


def empty_slots_hidden(graph: GraphWriter, where: str, keys: str) -> str:
    """Hides slots that hold zeros, and not those of the conversation before: right on a cache that was cleared."""
    ago = graph.add("Mod", graph.add("Sub", column(graph, where), slots(graph)), graph.constant([LENGTH]))
    largest = graph.add("ReduceMax", graph.add("Abs", keys), graph.constant([1, 3]), keepdims=1)
    used = graph.add("Greater", graph.add("Reshape", largest, graph.constant([1, 1, 1, LENGTH])), graph.constant(np.float32(0)))
    return shown(graph, graph.add("And", used, graph.add("Less", ago, graph.constant([WINDOW]))))


def beyond_half(graph: GraphWriter, where: str, keys: str) -> str:
    return graph.add("Mul", ring(graph, where, keys), graph.constant(np.float32(1e5)))


def at_position(graph: GraphWriter, past: str, new: str, where: str, result: str) -> str:
    return graph.add("TensorScatter", past, new, "position", axis=2, result=result)


def scatter_nd(graph: GraphWriter, past: str, new: str, where: str, result: str) -> str:
    past, new = (graph.add("Transpose", name, perm=[2, 0, 1, 3]) for name in (past, new))
    rows = graph.add("Reshape", graph.add("Mod", where, graph.constant([LENGTH])), graph.constant([-1, 1]))
    return graph.add("Transpose", graph.add("ScatterND", past, rows, new), perm=[1, 2, 0, 3], result=result)


def clears_at_zero(graph: GraphWriter, past: str, new: str, where: str, result: str) -> str:
    """Right, except that the first call of a conversation writes zeros to all other slots."""
    first = graph.add("Equal", "position", graph.constant([0]))
    kept = graph.add("Where", first, graph.constant(np.float32(0)), past)
    return into_ring(graph, kept, new, where, result)


def repeated(graph: GraphWriter, query: str, keys: str, values: str, mask: str) -> str:
    """Attention as a pattern, with keys and values repeated for each query head."""
    wide, flat = graph.constant([1, KV_HEADS, HEADS // KV_HEADS, LENGTH, SIZE]), graph.constant([1, HEADS, LENGTH, SIZE])
    keys, values = (
        graph.add("Reshape", graph.add("Expand", graph.add("Unsqueeze", x, graph.constant([2])), wide), flat)
        for x in (keys, values)
    )
    query = graph.add("Mul", query, graph.constant(np.float32(SIZE**-0.5)))
    scores = graph.add("MatMul", query, graph.add("Transpose", keys, perm=[0, 1, 3, 2]))
    return graph.add("MatMul", graph.add("Softmax", graph.add("Add", scores, mask), axis=-1), values)


def in_groups(graph: GraphWriter, query: str, keys: str, values: str, mask: str) -> str:
    """Right, without copies, and not recognized by the compiler: products of five dimensions."""
    query = graph.add("Reshape", query, graph.constant([1, KV_HEADS, HEADS // KV_HEADS, -1, SIZE]))
    keys, values = (graph.add("Unsqueeze", name, graph.constant([2])) for name in (keys, values))
    query = graph.add("Mul", query, graph.constant(np.float32(SIZE**-0.5)))
    scores = graph.add("Add", graph.add("MatMul", query, graph.add("Transpose", keys, perm=[0, 1, 2, 4, 3])), mask)
    found = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), values)
    return graph.add("Reshape", found, graph.constant([1, HEADS, -1, SIZE]))


def of_the_lecture() -> bytes:
    """What lecture 15 exports: no window, and no ring."""
    return export_cached(decoder(longest=POSITIONS), length=LENGTH, last_only=True).SerializeToString()


def table_of_answers() -> bytes:
    """No network: logits of the last token alone, from a table, and caches that are written as they should be."""
    from course_lib.labs.lab13_generation import network

    model = onnx.load_model_from_string(reference.serialized())
    head = next(node for node in model.graph.node if "logits" in node.output)
    head.output[0] = "unused"
    table = np.concatenate([network.logits_after(np.array([token])) for token in range(256)])
    model.graph.initializer.extend(
        [onnx.numpy_helper.from_array(table, "table"), onnx.numpy_helper.from_array(np.array([-1]), "end")]
    )
    model.graph.node.extend([
        onnx.helper.make_node("Gather", ["tokens", "end"], ["last"], name="last", axis=1),
        onnx.helper.make_node("Gather", ["table", "last"], ["logits"], name="look_up"),
    ])  # fmt: skip
    return model.SerializeToString()


ANOTHER = Parts().model
# How it is made, the task, the tier, and words of the message.
MISTAKES = {
    "no_window": (Parts(mask=no_window).model, "answers", "none", "of a decoder without a window"),
    "no_ring": (Parts(mask=no_ring).model, "answers", "partial", "whose mask compares slot numbers with positions"),
    "written_at_position": (Parts(write=at_position).model, "answers", "partial", "It fails beyond position 255: "),
    "old_entries_seen": (
        Parts(mask=empty_slots_hidden).model,
        "requests",
        "none",
        "In the scene 'a second conversation in the same buffers', the scores have",
    ),
    "scatter_nd": (Parts(write=scatter_nd).model, "fused", "partial", "0 of 8 (others by Transpose)"),
    "split": (Parts(attend=in_groups).model, "fused", "none", "attentions in one kernel, for prompts is 0 of 4"),
    "repeated": (Parts(attend=repeated).model, "fused", "partial", "a single token's kernels write is 16"),
    "beyond_half": (Parts(mask=beyond_half).model, "fused", "none", "has the size 1e+05, and FP16 ends at 65504"),
    # cheats
    "table": (table_of_answers, "answers", "none", "The first wrong scores are those after"),
    "clears": (Parts(write=clears_at_zero).model, "requests", "none", "at position 0 changes slot"),
}
