"""The language model: what the shipped weights know, and that every way to its next byte finds the same one."""

import itertools
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from course_lib.models import CachedSession, course_text, decoder, export_cached, export_onnx
from course_lib.models.gpt import GPT
from course_lib.teaching.low_bits.loss import window_bits
from docs.make_checkpoints import train_gpt
from tests.sessions import session

HELD_OUT = course_text("test")
PROMPT = HELD_OUT[1000:1040]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Steps are so short that threads which share their processors with another process mostly wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@cache
def trained() -> GPT:
    return decoder()


@cache
def cached(form: Any = "tensor_scatter", dtype: Any = "fp32", length: int = 256, **options: Any) -> onnx.ModelProto:
    return export_cached(trained(), form, dtype=dtype, length=length, **options)


def in_steps(step: Any, tokens: np.ndarray) -> np.ndarray:
    """The logits of a prompt of 9 tokens, then of 2, then of one at a time."""
    cuts = [0, 9, 11, *range(12, tokens.shape[1] + 1)]
    return np.concatenate([step(tokens[:, a:b]).copy() for a, b in itertools.pairwise(cuts)], axis=1)


def greedily(opened: CachedSession, prompt: bytes, count: int) -> bytes:
    """The `count` most likely bytes after `prompt`, from an empty cache."""
    opened.position[:] = 0
    found = list(prompt)
    new = found
    for _ in range(count):
        new = [int(opened.step(np.array([new]))[0, -1].argmax())]
        found += new
    return bytes(found[len(prompt) :])


# ---------------------------------------------------------------- the network


def test_shipped_weights_know_the_course() -> None:
    assert window_bits(trained(), HELD_OUT[:16_384], window=512).mean() < 2.05  # 2.00 seen
    assert b"TensorRT" in greedily(CachedSession(cached()), b"The engine was built by Tens", 60)


def test_no_token_sees_a_later_one() -> None:
    tokens = torch.randint(256, (2, 20))
    other = tokens.clone()
    other[:, 12:] = (other[:, 12:] + 1) % 256
    with torch.inference_mode():
        once, again = trained()(tokens), trained()(other)
    assert torch.equal(once[:, :12], again[:, :12]) and not torch.equal(once[:, 12:], again[:, 12:])


@pytest.mark.parametrize("in_place", [True, False])
def test_steps_with_a_cache_compute_what_the_whole_sequence_does(in_place: bool) -> None:
    tokens = torch.randint(256, (3, 20))
    kept, position = trained().empty_cache(32, batch=3), 0
    before = [tensor.clone().fill_(7) for tensor in kept]  # what is beyond the position must not matter
    kept = before

    def step(new: np.ndarray) -> np.ndarray:
        nonlocal kept, position
        logits, *kept = trained().step(torch.from_numpy(new), torch.tensor([position]), kept, in_place=in_place)
        position += new.shape[1]
        return logits.numpy()

    with torch.inference_mode():
        assert np.allclose(in_steps(step, tokens.numpy()), trained()(tokens).numpy(), atol=2e-5)
    assert (kept[0] is before[0]) == in_place


def test_training_writes_what_it_reports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("course_lib.models.weights.FOLDER", tmp_path)
    monkeypatch.setattr("docs.make_checkpoints.PASSAGES", 1)
    monkeypatch.setattr("docs.make_checkpoints.course_text", lambda split: course_text(split)[:1200])
    reported = train_gpt(progress=False, steps=2)
    first = (tmp_path / "gpt.pt").read_bytes()
    assert 5 < reported < 8, "two steps learn which bytes are frequent"
    assert train_gpt(progress=False, steps=2) == reported and (tmp_path / "gpt.pt").read_bytes() == first
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------- ONNX


@pytest.mark.parametrize(("form", "dtype"), [("tensor_scatter", "fp32"), ("tensor_scatter", "fp16"), ("scatter_nd", "fp32")])
def test_static_caches_agree_with_torch(form: str, dtype: str) -> None:
    tokens = np.frombuffer(PROMPT, np.uint8).astype(np.int64)[None]
    with torch.inference_mode():
        want = trained()(torch.from_numpy(tokens)).numpy()
    have = in_steps(CachedSession(cached(form, dtype)).step, tokens)
    assert np.linalg.norm(have - want) / np.linalg.norm(want) < (1e-5 if dtype == "fp32" else 1e-2)
    copied = in_steps(CachedSession(cached(form, dtype), in_place=False).step, tokens)
    assert np.array_equal(have, copied)


def test_a_cache_that_grows_agrees_with_torch() -> None:
    tokens = np.frombuffer(PROMPT, np.uint8).astype(np.int64)[None]
    with torch.inference_mode():
        want = trained()(torch.from_numpy(tokens)).numpy()
    opened = session(cached("concat"))
    names = [info.name for info in opened.get_inputs()[2:]]
    past = dict.fromkeys(names, np.zeros((1, 2, 0, 32), np.float32))

    def step(new: np.ndarray) -> np.ndarray:
        position = np.array([next(iter(past.values())).shape[2]])
        logits, *present = opened.run(None, {"tokens": new, "position": position, **past})
        past.update(zip(names, present, strict=True))
        return logits

    assert np.linalg.norm(in_steps(step, tokens) - want) / np.linalg.norm(want) < 1e-5


def test_sequences_of_a_batch_have_positions_of_their_own() -> None:
    opened = CachedSession(cached(batch=2, length=64))
    rows = np.frombuffer(HELD_OUT[:60], np.uint8).astype(np.int64).reshape(2, 30)
    opened.step(rows[:, :20])
    opened.position[:] = 20, 7  # the second one goes back, and says something else
    have = opened.step(np.stack([rows[0, 20:], rows[1, :10]]))
    texts = [rows[0], np.concatenate([rows[1, :7], rows[1, :10]])]
    with torch.inference_mode():
        want = [trained()(torch.from_numpy(text[None]))[0, -10:].numpy() for text in texts]
    assert np.allclose(have, want, atol=1e-4)


def test_greedy_bytes_are_torchs_over_200_steps() -> None:
    tokens = torch.tensor([list(PROMPT)])
    with torch.inference_mode():
        for _ in range(200):  # without a cache: each new byte computes all bytes before it again
            tokens = torch.cat([tokens, trained()(tokens)[:, -1:].argmax(-1)], dim=1)
    want = bytes(tokens[0, len(PROMPT) :].tolist())
    opened = CachedSession(cached())
    assert greedily(opened, b"something else", 20) != want[:20]
    assert greedily(opened, PROMPT, 200) == want, "and nothing of the text before is left"
    assert greedily(CachedSession(cached("scatter_nd")), PROMPT, 200) == want
    assert greedily(CachedSession(cached(last_only=True)), PROMPT, 200) == want


def test_the_whole_sequence_is_exported_as_every_network_is() -> None:
    model = export_onnx(trained(), dtype="fp16")
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.INT64
    tokens = np.frombuffer(HELD_OUT[:90], np.uint8).astype(np.int64).reshape(3, 30)
    with torch.inference_mode():
        want = trained()(torch.from_numpy(tokens)).numpy()
    (have,) = session(model).run(None, {"tokens": tokens})
    assert have.dtype == np.float32
    assert np.linalg.norm(have - want) / np.linalg.norm(want) < 1e-2


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="tensor_scatter, scatter_nd, concat"):
        export_cached(trained(), "paged")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 to 512, the model's longest, and batch at least 1, got 600 and 1"):
        export_cached(trained(), length=600)
    with pytest.raises(ValueError, match="export it with form='tensor_scatter'"):
        CachedSession(cached("concat"))
    with pytest.raises(
        ValueError, match="40 tokens and 300 new ones are more than 256, the room for one sequence: ask for fewer"
    ):
        opened = CachedSession(cached())
        opened.position[:] = 40
        opened.step(np.zeros((1, 300), np.int64))
    with pytest.raises(ValueError, match="at least one new token, got 0"):
        CachedSession(cached()).step(np.zeros((1, 0), np.int64))
