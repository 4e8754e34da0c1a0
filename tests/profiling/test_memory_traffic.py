"""Bytes are counted by hand for a network of three nodes, and for tables written here."""

import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.engines import Layer, LayerTable, LayerTensor
from course_lib.profiling.layer_tables.memory_traffic import RoundTrip, Traffic, kernel_traffic, node_traffic
from course_lib.teaching.fusion import compare_traffic, draw_traffic, growth


def parsed(inputs: str, body: str, outputs: str = "float y") -> onnx.ModelProto:
    text = f'<ir_version: 8, opset_import: ["" : 17]> net ({inputs}) => ({outputs}) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    for place, node in enumerate(model.graph.node):
        node.name = f"/{node.op_type}_{place}"
    return model


def small() -> onnx.ModelProto:
    """(2, 4) times (4, 3), a bias from a weight, a view, an activation."""
    model = parsed(
        "float[2,4] x",
        "p = MatMul(x, w) s = Add(p, b) shape = Constant<value_ints=[6]>() v = Reshape(s, shape) y = Relu(v)",
        "float[6] y",
    )
    for name, dims in (("w", (4, 3)), ("b", (3,))):
        model.graph.initializer.append(
            onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, dims, [0.5] * (4 * 3 if name == "w" else 3))
        )
    return model


def test_each_node_reads_and_writes_whole_tensors():
    traffic = node_traffic(small())
    matmul, add, relu = traffic.round_trips  # the view and the constant cost no round trip
    assert (matmul.reads, matmul.weights, matmul.writes) == ({"x": 4 * 8}, 4 * 12, {"p": 4 * 6})
    assert (add.read_bytes, add.weights, add.written_bytes, add.total_bytes) == (24, 12, 24, 60)
    assert (relu.name, relu.operators, relu.reads) == ("/Relu_4", "Relu", {"v": 24})
    assert (traffic.read_bytes, traffic.weights, traffic.written_bytes) == (32 + 24 + 24, 48 + 12, 24 * 3)
    assert traffic.total_bytes == 212
    assert str(traffic) == "0.0 MB in 3 round trips" and Traffic(traffic.round_trips[:1]).launches == "1 round trip"


def test_what_is_read_twice_counts_once_and_what_depends_on_shapes_alone_costs_nothing():
    assert node_traffic(parsed("float[8] x", "y = Mul(x, x)", "float[8] y")).round_trips[0].read_bytes == 32
    model = parsed("float[2,3] x", "s = Shape(x) t = Cast<to=1>(s) u = Relu(t) y = Exp(x)", "float[2,3] y")
    assert [round_trip.operators for round_trip in node_traffic(model).round_trips] == ["Exp"]
    with pytest.raises(ValueError, match="shape of tensor 'x' is not known: export the model with dynamic_batch=False"):
        node_traffic(parsed("float[N,3] x", "y = Relu(x)", "float[N,3] y"))


X, W = LayerTensor("x", (2, 8), "Float"), LayerTensor("w", (3,), "Float")
FUSED = Layer("k", "correlation", (X, W), (W,), (LayerTensor("y", (2, 4), "Half"),), onnx_nodes=("/c", "/r"))


def test_kernels_count_their_tensors_with_their_types_and_steps_on_the_host_and_views_nothing():
    view = Layer("v", "Reshape", (LayerTensor("y", (4,), "Float"),))
    table = LayerTable((Layer("s", "shape_call"), FUSED, view), {"/c": "Conv", "/r": "Relu"})
    (trip,) = kernel_traffic(table).round_trips
    assert (trip.operators, trip.reads, trip.weights, trip.writes) == ("Conv + Relu", {"x": 64}, 12, {"y": 16})


@pytest.mark.parametrize("bad", [LayerTensor("x", (-1, 3), "Float"), LayerTensor("x", (3,), "")])
def test_a_dynamic_shape_or_an_unknown_type_is_rejected(bad):
    with pytest.raises(ValueError, match=r"'x' .* fixed shapes, export the model with dynamic_batch=False"):
        kernel_traffic(LayerTable((Layer("k", "kgen", (bad,)),), {}))


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=8))
def test_the_total_is_what_the_bars_show(sizes):
    round_trips = tuple(
        RoundTrip(f"k{i}", "", {"a": read}, weights, {"b": written}) for i, (read, weights, written) in enumerate(sizes)
    )
    figure = draw_traffic(Traffic(round_trips), "all")
    shown = sum(bar.get_width() for bar in figure.axes[0].patches)
    assert shown == pytest.approx(Traffic(round_trips).total_bytes / 1e6)


def chain(*sizes: int) -> Traffic:
    """Round trips in a row, each writing so many bytes; the last reads the first one's result again."""
    round_trips = [RoundTrip("k0", "Conv", {}, 0, {"t0": sizes[0]})]
    for place, size in enumerate(sizes[1:], 1):
        again = {"t0": sizes[0]} if place == len(sizes) - 1 else {}
        round_trips.append(RoundTrip(f"k{place}", "Relu", {f"t{place - 1}": sizes[place - 1]} | again, 0, {f"t{place}": size}))
    return Traffic(tuple(round_trips))


def test_variants_show_totals_and_trips():
    axes = compare_traffic({"many": chain(10**6, 10**6), "one": Traffic(chain(10**6).round_trips)}, "title").axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["many\n2 round trips", "one\n1 round trip"]
    assert "1.0 MB" in {text.get_text() for text in axes.texts}


def test_growth_draws_a_line_a_variant():
    axes = growth((64, 128), {"a": [chain(10**6), chain(10**7)], "b": [chain(10**6)] * 2}, "S", "grows").axes[0]
    assert [list(line.get_ydata()) for line in axes.lines] == [[1.0, 10.0], [1.0, 1.0]]
