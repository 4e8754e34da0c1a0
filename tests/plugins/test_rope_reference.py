"""The NumPy reference against three independent statements of the same thing."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

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
    whole, part = rope_tables(20, 64), rope_tables(1, 64, first=19)
    assert all(np.array_equal(a[19:], b) for a, b in zip(whole, part, strict=True)), "the first row can be any position"
    for shape, rows, columns, said in (
        ((2, 9, 30), 9, 15, "batch, sequence, heads"),
        ((2, 9, 3, 9), 9, 4, "even head size"),
        ((2, 9, 3, 10), 8, 5, "at least 9 rows"),
        ((2, 9, 3, 10), 9, 10, "5 columns"),
    ):
        with pytest.raises(ValueError, match=said):
            rope(np.zeros(shape), *[np.zeros((rows, columns), np.float32)] * 2)


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
