"""The NumPy reference against three independent statements of the same thing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import course_lib.plugins
from course_lib.plugins import rope, rope_tables

SHAPE = (2, 9, 3, 10)


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(3).standard_normal(SHAPE)


def test_the_tables_of_a_small_head_by_hand() -> None:
    cos, sin = rope_tables(3, 4, dtype=np.float64)  # angles: position times 1 and times 1 / 100
    assert np.allclose(cos, np.cos([[0, 0], [1, 0.01], [2, 0.02]]), atol=0, rtol=1e-15)
    assert np.allclose(sin, np.sin([[0, 0], [1, 0.01], [2, 0.02]]), atol=0, rtol=1e-15)
    assert rope_tables(3, 4)[0].dtype == np.float32


def test_the_first_row_can_be_any_position() -> None:
    whole, part = rope_tables(20, 64), rope_tables(1, 64, first=19)
    assert all(np.array_equal(a[19:], b) for a, b in zip(whole, part, strict=True))


@pytest.mark.parametrize("interleaved", [False, True])
def test_it_is_multiplication_by_a_complex_number(x: np.ndarray, interleaved: bool) -> None:
    pairs = x.reshape(*SHAPE[:3], 5, 2) if interleaved else np.stack([x[..., :5], x[..., 5:]], axis=-1)
    angles = np.arange(9)[:, None] * 10000.0 ** (-np.arange(5) / 5)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * angles)[:, None]
    parts = np.stack([turned.real, turned.imag], axis=-1)
    want = parts.reshape(SHAPE) if interleaved else np.concatenate([parts[..., 0], parts[..., 1]], axis=-1)
    assert np.allclose(rope(x, *rope_tables(9, 10, dtype=np.float64), interleaved=interleaved), want, atol=1e-13)


def test_it_is_what_language_models_write_in_torch(x: np.ndarray) -> None:
    cos, sin = (torch.from_numpy(t).repeat(1, 2)[:, None] for t in rope_tables(9, 10, dtype=np.float64))
    t = torch.from_numpy(x)
    turned = torch.cat((-t[..., 5:], t[..., :5]), dim=-1)
    assert np.allclose(rope(x, *rope_tables(9, 10, dtype=np.float64)), (t * cos + turned * sin).numpy(), atol=1e-13)


@pytest.mark.parametrize("interleaved", [False, True])
def test_it_is_the_standard_operator(x: np.ndarray, interleaved: bool) -> None:
    """ONNX's RotaryEmbedding wants (batch, heads, sequence, head size) and tables by position."""
    cos, sin = rope_tables(9, 10, dtype=np.float64)
    infos = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in ("x", "cos", "sin", "y")]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, None)
    node = helper.make_node("RotaryEmbedding", ["x", "cos", "sin", "ids"], ["y"], interleaved=int(interleaved))
    graph = helper.make_graph([node], "g", [*infos[:3], ids], infos[3:])
    evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)]))
    ids_value = np.tile(np.arange(9), (2, 1))
    feeds = {"x": x.transpose(0, 2, 1, 3), "cos": cos, "sin": sin, "ids": ids_value}
    want = np.asarray(evaluator.run(None, feeds)[0]).transpose(0, 2, 1, 3)
    assert np.allclose(rope(x, cos, sin, interleaved=interleaved), want, atol=1e-13)


def test_the_two_conventions_are_the_same_up_to_the_order_of_the_numbers(x: np.ndarray) -> None:
    tables = rope_tables(9, 10, dtype=np.float64)
    order = np.arange(10).reshape(5, 2).T.ravel()  # even numbers first
    assert np.allclose(rope(x, *tables, interleaved=True)[..., order], rope(x[..., order], *tables), atol=1e-14)
    assert not np.allclose(rope(x, *tables, interleaved=True), rope(x, *tables), atol=0.1)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 5000), st.booleans())
def test_scores_depend_on_the_distance_only(m: int, n: int, shift: int, interleaved: bool) -> None:
    """Why it is used at all: query at m times key at n is a function of m - n."""
    q, k = np.random.default_rng(m).standard_normal((2, 1, 1, 1, 32))

    def score(i: int, j: int) -> float:
        at_i, at_j = (rope_tables(1, 32, first=p, dtype=np.float64) for p in (i, j))
        return float((rope(q, *at_i, interleaved=interleaved) * rope(k, *at_j, interleaved=interleaved)).sum())

    assert score(m, n) == pytest.approx(score(m + shift, n + shift), abs=1e-9)


@pytest.mark.parametrize(
    ("shape", "rows", "columns", "said"),
    [
        ((2, 9, 30), 9, 15, "batch, sequence, heads"),
        ((2, 9, 3, 9), 9, 4, "even head size"),
        ((2, 9, 3, 10), 8, 5, "at least 9 rows"),
        ((2, 9, 3, 10), 9, 10, "5 columns"),
    ],
)
def test_shapes_that_do_not_fit(shape: tuple[int, ...], rows: int, columns: int, said: str) -> None:
    table = np.zeros((rows, columns), np.float32)
    with pytest.raises(ValueError, match=said):
        rope(np.zeros(shape), table, table)


@pytest.mark.parametrize(("sequence", "head_size"), [(3, 5), (3, -2), (-1, 4)])
def test_sizes_that_no_table_has(sequence: int, head_size: int) -> None:
    with pytest.raises(ValueError, match="even head size"):
        rope_tables(sequence, head_size)


def test_the_package_gives_out_functions_not_modules() -> None:
    """A folder `rope` lies beside the function `rope`."""
    assert callable(course_lib.plugins.rope) and set(course_lib.plugins.__all__) <= set(dir(course_lib.plugins))
    assert all(getattr(course_lib.plugins, name) is not None for name in course_lib.plugins.__all__)
