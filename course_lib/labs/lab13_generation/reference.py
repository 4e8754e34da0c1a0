"""Lab 13's reference: the attention with a cache that is written in place, its recipe, and the calls of a host that serves requests."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from course_lib.labs.lab13_generation.calls import SERVICE, STOP, Call, Reply
from course_lib.labs.lab13_generation.network import LENGTH, GraphWriter
from course_lib.recipe import Profile, Recipe

# One profile for prompts and one for single tokens, in which products have one row and get other kernels.
RECIPE = Recipe(
    precision="fp16",
    profiles=(
        Profile(tokens={"min": (1, 1), "opt": (1, 128), "max": (1, LENGTH)}),
        Profile(tokens={"min": (1, 1), "opt": (1, 1), "max": (1, 1)}),
    ),
)


def begin(graph: GraphWriter) -> tuple[str, str]:
    """The positions of the new tokens ``(1, new)``, and the mask ``(1, 1, new, LENGTH)``."""
    from course_lib.models.gpt import MASKED

    row = graph.add("Unsqueeze", "position", graph.constant([1]))
    positions = graph.add("Add", row, graph.steps)
    column = graph.add("Unsqueeze", positions, graph.constant([1, 3]))
    seen = graph.add("LessOrEqual", graph.constant(np.arange(graph.length)), column)
    return positions, graph.add("Where", seen, graph.constant(np.float32(0)), graph.constant(np.float32(MASKED)))


def attention(graph: GraphWriter, x: str, index: int, shared: tuple[str, str]) -> str:
    """Grouped heads with rotary positions, and new keys and values that are written into the cache."""
    positions, mask = shared
    heads, kept = graph.heads, graph.kv_heads
    y = graph.linear(x, f"blocks.{index}.qkv")
    y = graph.add("Reshape", y, graph.constant([1, -1, heads + 2 * kept, graph.size]))
    y = graph.add("Transpose", y, perm=[0, 2, 1, 3])
    turned, value = graph.split(y, [heads + kept, kept], axis=1)
    turned = graph.add("RotaryEmbedding", turned, graph.cos, graph.sin, positions)
    query, key = graph.split(turned, [heads, kept], axis=1)
    keys, values = (
        graph.add("TensorScatter", f"past_{name}_{index}", new, "position", axis=2, result=f"present_{name}_{index}")
        for name, new in (("key", key), ("value", value))
    )
    y = graph.add("Attention", query, keys, values, mask)
    y = graph.add("Transpose", y, perm=[0, 2, 1, 3])
    y = graph.add("Reshape", y, graph.constant([1, -1, heads * graph.size]))
    return graph.linear(y, f"blocks.{index}.out")


@cache
def serialized() -> bytes:
    """The reference's ``decoder.onnx``."""
    with TemporaryDirectory() as folder:
        return GraphWriter().write(Path(folder, "decoder.onnx"), begin, attention).SerializeToString()


def replies() -> list[Reply]:
    """The service's requests as the reference's host serves them, with PyTorch's decoder."""
    import torch

    from course_lib.models import decoder

    model, found = decoder(), []
    for asked in SERVICE:
        kept, made, calls = model.empty_cache(LENGTH), bytearray(), [Call(0, tuple(asked.prompt))]
        with torch.inference_mode():
            while True:
                call = calls[-1]
                logits = model.step(torch.tensor([call.tokens]), torch.tensor([call.position]), kept, last_only=True)[0]
                made.append(int(logits[0, -1].argmax()))
                if made[-1] == STOP or len(made) == asked.most:
                    break
                calls.append(Call(call.position + len(call.tokens), (made[-1],)))
        found.append(Reply(tuple(calls), bytes(made)))
    return found
