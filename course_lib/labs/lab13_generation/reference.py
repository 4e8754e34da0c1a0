"""Lab 13's reference: the attention with a ring that is written in place, its recipe, and a host."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from course_lib.labs.lab13_generation.given import HEADS, KV_HEADS, LENGTH, MOST_NEW, SIZE, WINDOW, GraphWriter
from course_lib.recipe import Profile, Recipe

# One profile for prompts and one for single tokens, in which products have one row and get other kernels.
RECIPE = Recipe(
    precision="fp16",
    profiles=(
        Profile(tokens={"min": (1, 1), "opt": (1, MOST_NEW), "max": (1, MOST_NEW)}),
        Profile(tokens={"min": (1, 1), "opt": (1, 1), "max": (1, 1)}),
    ),
)
HOST = '''"""The host of the support tool."""


def serve(step, prompt, count, position):
    """The most likely bytes after `prompt`, whose first token has this position."""
    end = position + len(prompt)
    while position < end:
        new = min(end - position, 128, 256 - position % 256)
        scores, prompt = step(prompt[:new], position), prompt[new:]
        position += new
    answer = [int(scores.argmax())]
    while len(answer) < count and answer[-1] != 10:
        answer.append(int(step(answer[-1:], position).argmax()))
        position += 1
    return bytes(answer)
'''


def begin(graph: GraphWriter) -> tuple[str, str, str]:
    """The positions of the new tokens ``(1, new)``, the slot of the first one ``(1,)``, and the mask ``(1, 1, new, LENGTH)``."""
    slot = graph.add("Mod", "position", graph.constant([LENGTH]))
    positions = graph.add("Add", graph.add("Unsqueeze", "position", graph.constant([1])), graph.steps)
    column = graph.add("Unsqueeze", positions, graph.constant([1, 3]))
    ago = graph.add("Mod", graph.add("Sub", column, graph.constant(np.arange(LENGTH))), graph.constant([LENGTH]))
    near, written = graph.add("Less", ago, graph.constant([WINDOW])), graph.add("LessOrEqual", ago, column)
    shown, hidden = graph.constant(np.float32(0)), graph.constant(np.float32(-6e4))
    return positions, slot, graph.add("Where", graph.add("And", near, written), shown, hidden)


def attention(graph: GraphWriter, x: str, index: int, shared: tuple[str, str, str]) -> str:
    """Grouped heads with rotary positions, and new keys and values that are written into the ring."""
    positions, slot, mask = shared
    y = graph.linear(x, f"blocks.{index}.qkv")
    y = graph.add("Reshape", y, graph.constant([1, -1, HEADS + 2 * KV_HEADS, SIZE]))
    y = graph.add("Transpose", y, perm=[0, 2, 1, 3])
    rotated, value = graph.split(y, [HEADS + KV_HEADS, KV_HEADS], axis=1)
    rotated = graph.add("RotaryEmbedding", rotated, graph.cos, graph.sin, positions)
    query, key = graph.split(rotated, [HEADS, KV_HEADS], axis=1)
    keys, values = (
        graph.add("TensorScatter", f"past_{name}_{index}", new, slot, axis=2, result=f"present_{name}_{index}")
        for name, new in (("key", key), ("value", value))
    )
    y = graph.add("Attention", query, keys, values, mask)
    y = graph.add("Transpose", y, perm=[0, 2, 1, 3])
    y = graph.add("Reshape", y, graph.constant([1, -1, HEADS * SIZE]))
    return graph.linear(y, f"blocks.{index}.out")


@cache
def serialized() -> bytes:
    """The reference's ``decoder.onnx``."""
    with TemporaryDirectory() as folder:
        return GraphWriter().write(Path(folder, "decoder.onnx"), begin, attention).SerializeToString()


def write(folder: Path) -> None:
    """The decoder, its host and its recipe."""
    (folder / "decoder.onnx").write_bytes(serialized())
    (folder / "host.py").write_text(HOST, encoding="utf-8")
    RECIPE.save(folder / "recipe.toml")
