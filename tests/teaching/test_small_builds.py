"""Small networks, really built by TensorRT for RTX."""

import pytest
import torch
from torch import nn

from course_lib.engines import Layer, LayerTable
from course_lib.teaching.small_builds import attention, between_convs, extra_kernels, layers_of


@pytest.fixture(scope="module")
def tables() -> dict[str, LayerTable]:
    operations = {"ReLU": torch.relu, "sine": torch.sin, "two outputs": lambda y: (torch.relu(y), y)}
    return layers_of({name: between_convs(f, 16) for name, f in operations.items()}, (2, 16, 8, 8), outputs={"two outputs": 2})


def test_a_relu_is_inside_the_convolution_and_a_sine_is_not(tables):
    def home(table: LayerTable, node: str) -> str:
        return next(table.fused_operators(kernel) for kernel in table.kernels if node in kernel.onnx_nodes)

    assert home(tables["ReLU"], "/first/Conv") == "Conv + Relu"
    assert home(tables["sine"], "/first/Conv") == "Conv"
    assert len(tables["sine"].kernels) == len(tables["ReLU"].kernels) + 1


def test_the_second_of_a_tuple_is_an_output(tables):
    written = {tensor.name for kernel in tables["two outputs"].kernels for tensor in kernel.outputs}
    assert {"y0", "y1"} <= written


def test_batch_norms_reach_the_compiler():
    norm = nn.BatchNorm2d(16).eval()
    table = layers_of({"norm": between_convs(norm, 16)}, (2, 16, 8, 8))["norm"]
    assert "BatchNormalization" in table.operators.values()


def test_a_filling_may_change_the_channels():
    network = between_convs(lambda y: torch.cat([y, y], 1), 4, after=8)
    assert network(torch.zeros(1, 4, 6, 6)).shape == (1, 4, 6, 6)


def test_attention_is_what_pytorch_computes_and_fuses_in_half_precision():
    torch.manual_seed(0)
    network = attention(lambda q, kt, v: (q @ kt / 4).softmax(-1) @ v, width=64, heads=4)
    reference = nn.MultiheadAttention(64, 4, batch_first=True).eval()
    # ours cuts each head's columns into q, k, v; PyTorch's has all q, then all k, then all v
    columns = torch.arange(192).reshape(4, 3, 16).transpose(0, 1).flatten()
    reference.in_proj_weight.data, reference.in_proj_bias.data = network.qkv.weight[columns], network.qkv.bias[columns]
    reference.out_proj.weight.data, reference.out_proj.bias.data = network.out.weight, network.out.bias
    x = torch.randn(2, 10, 64)
    torch.testing.assert_close(network(x), reference(x, x, x, need_weights=False)[0])

    table = layers_of({"it": network}, (2, 32, 64), precision="fp16")["it"]
    assert any("mha" in kernel.name for kernel in table.kernels)
    assert table.dtype_counts()["Half"]


def test_attention_can_show_its_scores():
    network = attention(lambda q, kt, v: (v, q @ kt), width=8, heads=2)
    result, scores = network(torch.zeros(3, 5, 8))
    assert result.shape == (3, 5, 8) and scores.shape == (3, 2, 5, 5)


def test_bars_count_from_the_plain_one():
    def table(kernels: int) -> LayerTable:
        return LayerTable(tuple(Layer(f"k{i}", "kgen") for i in range(kernels)))

    axes = extra_kernels({"plain": table(4), "free": table(4), "costly": table(6)}, "plain", "title").axes[0]
    assert [bar.get_width() for bar in axes.patches] == [0, 2]
    assert [text.get_text() for text in axes.texts] == ["fused: 0", "+2"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["free", "costly"]
