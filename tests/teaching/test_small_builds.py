"""Small networks, really built by TensorRT for RTX."""

import pytest
import torch
from torch import nn

from course_lib.engines import LayerTable
from course_lib.teaching.small_builds import attention, between_convs, layers_of


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
