"""The language model's graphs for TensorRT 8.6: a prompt and the steps after it compute what the model does in PyTorch."""

import itertools
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from benchmarks.attention_parts import fused_attention
from benchmarks.gpt2_parts import onnx_opset17
from benchmarks.gpt2_parts.onnx_opset17 import DOMAIN, NODE, export_for_tensorrt8
from benchmarks.gpt2_parts.torch_steps import gpt2_shape
from course_lib.models.gpt import GPT

DEPTH, HEADS, LENGTH, VOCABULARY = 2, 2, 24, 101
PROMPT = 9


@cache
def model() -> GPT:
    """Heads of 64 and a vocabulary that is not a multiple of 8. Weights are large enough for attention to be far from uniform."""
    made = gpt2_shape(DEPTH, 64 * HEADS, HEADS, VOCABULARY)
    for block in made.each_block():
        block.qkv.weight.data *= 6
    return made


class CourseCachedAttention(OpRun):  # type: ignore[misc]
    """What the plugin's node means, in float64; the cache is copied."""

    op_domain = DOMAIN

    def _run(
        self, qkv: Any, keys: Any, values: Any, position: Any, cos: Any, sin: Any, heads: int, **_: Any
    ) -> tuple[Any, ...]:
        batch, new, width = qkv.shape
        first = int(position[0]) if new == 1 else 0
        q, k, v = qkv.reshape(batch, new, 3, heads, width // heads // 3).astype(np.float64).transpose(2, 0, 3, 1, 4)
        where = slice(first, first + new)

        def rotated(x: np.ndarray) -> np.ndarray:
            a, b = np.split(x, 2, axis=-1)
            return np.concatenate((a * cos[where] - b * sin[where], b * cos[where] + a * sin[where]), axis=-1)

        q, k, keys, values = rotated(q), rotated(k), keys.copy(), values.copy()
        keys[:, :, where], values[:, :, where] = k, v
        scores = q @ keys[:, :, : where.stop].swapaxes(-1, -2).astype(np.float64) / np.sqrt(q.shape[-1])
        scores += np.triu(np.full(scores.shape[-2:], -np.inf), first + 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        answer = weights / weights.sum(-1, keepdims=True) @ values[:, :, : where.stop].astype(np.float64)
        return answer.swapaxes(1, 2).reshape(batch, new, -1).astype(qkv.dtype), keys, values


def run(form: Any, feeds: dict[str, np.ndarray], dtype: Any, **sizes: int) -> dict[str, np.ndarray]:
    exported = export_for_tensorrt8(model(), form, length=LENGTH, dtype=dtype, **sizes)
    names = [value.name for value in exported.graph.output]
    given = {value.name for value in exported.graph.input}
    feeds = {name: array for name, array in feeds.items() if name in given}
    if form == "plain":
        session: Any = onnxruntime.InferenceSession(exported.SerializeToString(), providers=["CPUExecutionProvider"])
    else:
        session = ReferenceEvaluator(exported, new_ops=[CourseCachedAttention])
    return dict(zip(names, session.run(names, feeds), strict=True))


@pytest.mark.parametrize(("dtype", "tolerance"), [("fp32", 2e-5), ("fp16", 5e-3)])
@pytest.mark.parametrize("form", ["plain", "plugin"])
def test_a_prompt_and_steps_compute_what_torch_does(form: str, dtype: str, tolerance: float) -> None:
    tokens = np.random.default_rng(0).integers(VOCABULARY, size=(3, PROMPT + 3), dtype=np.int32)
    with torch.inference_mode():
        want = model()(torch.from_numpy(tokens).long()).numpy()
    numbers = np.float16 if dtype == "fp16" else np.float32
    past = {
        f"{kind}_{block}": np.full((3, HEADS, LENGTH, 64), 7, numbers) for block in range(DEPTH) for kind in ("key", "value")
    }

    def computed(first: int, end: int) -> np.ndarray:
        """The logits of the last of these tokens; their keys and values enter `past`."""
        feeds = {"tokens": tokens[:, first:end], "position": np.array([first], np.int32)}
        feeds |= {f"past_{name}": array for name, array in past.items()}
        found = run(form, feeds, dtype, new=end - first, batch=3)
        for name, array in past.items():
            present = found[f"present_{name}"]
            assert present.dtype == numbers
            array[:, :, : present.shape[2]] = present  # a prompt in the plain form has its own slots only
        return found["logits"].astype(np.float32)

    for first, end in itertools.pairwise((0, PROMPT, PROMPT + 1, PROMPT + 2, PROMPT + 3)):
        error = np.linalg.norm(computed(first, end) - want[:, end - 1]) / np.linalg.norm(want[:, end - 1])
        assert error < tolerance, (first, end, error)
    cached = model().empty_cache(LENGTH, 3)
    with torch.inference_mode():
        model().step(torch.from_numpy(tokens).long(), torch.tensor([0]), cached)
    for (name, found), wanted in zip(past.items(), cached, strict=True):
        filled = slice(PROMPT + 3)
        np.testing.assert_allclose(found[:, :, filled], wanted[:, :, filled], atol=30 * tolerance, err_msg=name)
        assert (found[:, :, PROMPT + 3 :] == 7).all(), "slots after the last token stay as they are"


def test_the_forms_differ_in_their_operators_and_all_shapes_are_fixed() -> None:
    for new in (1, PROMPT):
        forms = {form: export_for_tensorrt8(model(), form, new=new, length=LENGTH) for form in ("plain", "plugin")}
        plain, plugin = (Counter(node.op_type for node in exported.graph.node) for exported in forms.values())
        assert plugin[NODE] == DEPTH and not {"Softmax", "Transpose", "Concat"} & plugin.keys()
        assert plain["Softmax"] == DEPTH and NODE not in plain
        assert plain["Where"] == (2 * DEPTH + 1 if new == 1 else 0)
        onnx.checker.check_model(forms["plain"], full_check=True)
        assert forms["plain"].opset_import[0].version == 17
        for value in (*forms["plain"].graph.input, *forms["plain"].graph.output):
            assert all(dim.dim_value > 0 for dim in value.type.tensor_type.shape.dim), value.name


def test_the_node_is_the_plugins() -> None:
    for name in ("DOMAIN", "VERSION", "NAMESPACE", "HEAD_SIZE"):
        assert getattr(onnx_opset17, name) == getattr(fused_attention, name), name
    assert fused_attention.CACHED_NAME == NODE
    assert f'kName = "{NODE}"' in (fused_attention.FOLDER / "cpp" / "plugin_v2.cpp").read_text()
