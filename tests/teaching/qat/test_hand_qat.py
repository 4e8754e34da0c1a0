"""Quantization-aware training by hand: against rounding done with numpy, and against the exported graph."""

import copy

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

from course_lib.errors import CourseError
from course_lib.models import Signature, export_onnx
from course_lib.precision import fake_quantize, train
from course_lib.teaching.qat.by_hand import export_wrapped, fold_norms, input_ranges, unwrap, wrap


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 3)

    def forward(self, image):
        x = torch.relu(self.norm(self.first(image)))
        return self.head((x + torch.relu(self.second(x))).mean((2, 3)))


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    made = Small()
    made.norm.running_mean.uniform_(-0.2, 0.2)
    made.norm.running_var.uniform_(0.5, 2)
    return made.eval()


@pytest.fixture(scope="module")
def folded(network):
    return fold_norms(network)


@pytest.fixture(scope="module")
def images():
    return torch.rand(32, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def without_gradients(model, images):
    with torch.no_grad():
        return model(images).numpy()


def test_folding_keeps_the_function_and_leaves_no_norm(network, folded, images):
    np.testing.assert_allclose(without_gradients(folded, images), without_gradients(network, images), atol=1e-5)
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in folded.modules())
    assert isinstance(network.norm, nn.BatchNorm2d)


def test_ranges_are_the_largest_magnitude_that_a_layer_reads(folded, images):
    ranges = input_ranges(folded, images)
    assert list(ranges) == ["first", "second", "head"]
    assert ranges["first"] == float(images.max())
    with torch.no_grad():
        assert ranges["second"] == pytest.approx(float(torch.relu(folded.first(images)).max()))


def test_a_wrapped_layer_rounds_input_and_weight_but_not_the_bias(images):
    conv = nn.Conv2d(1, 3, 3, stride=2, padding=1)
    found = without_gradients(wrap(nn.Sequential(conv), {"0": 0.7}, weight_bits=4, activation_bits=5), images)
    weight = conv.weight.detach().numpy()
    rounded_weight = torch.from_numpy(fake_quantize(weight, np.abs(weight).max((1, 2, 3), keepdims=True), 4))
    rounded_images = torch.from_numpy(fake_quantize(images.numpy(), 0.7, 5))
    with torch.no_grad():
        expected = functional.conv2d(rounded_images, rounded_weight, conv.bias, 2, 1)
    np.testing.assert_array_equal(found, expected.numpy())


def test_training_goes_through_the_rounding_and_lowers_the_loss(folded, images):
    labels = torch.arange(len(images)) % 2
    images = images * (0.2 + 0.8 * labels[:, None, None, None])  # dark and bright ones
    wrapped = wrap(folded, input_ranges(folded, images), weight_bits=3)
    losses = train(wrapped, [(images, labels)], epochs=30, learning_rate=1e-2, progress=False)
    assert losses[-1] < 0.8 * losses[0]
    assert not torch.equal(unwrap(wrapped).second.weight, folded.second.weight)


def test_unwrapping_gives_the_float_network_back(folded, images):
    wrapped = wrap(folded, input_ranges(folded, images), weight_bits=2)
    assert not np.array_equal(without_gradients(wrapped, images), without_gradients(folded, images))
    np.testing.assert_array_equal(without_gradients(unwrap(wrapped), images), without_gradients(folded, images))


def test_the_export_is_the_network_that_was_trained(folded, images):
    wrapped = wrap(folded, input_ranges(folded, images)).eval()
    signature = Signature(inputs={"image": ("batch", 1, 8, 8)}, outputs=("logits",))
    exported = export_wrapped(wrapped, lambda module: export_onnx(module, signature=signature))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(exported.SerializeToString(), options, providers=["CPUExecutionProvider"])
    logits = session.run(None, {"image": images.numpy()})[0]
    np.testing.assert_allclose(logits, without_gradients(wrapped, images), atol=2e-3)
    quantized = [node.input[0] for node in exported.graph.node if node.op_type == "QuantizeLinear"]
    assert len(quantized) == 6  # input and weight of three layers, nothing on the Add


def test_wrong_use_is_told_in_one_line(folded, images):
    ranges = input_ranges(folded, images)
    with pytest.raises(CourseError, match="no range for the input of layer 'first'"):
        wrap(folded, {})
    with pytest.raises(CourseError, match="only 8 bits become INT8 kernels, layer 'first'"):
        export_wrapped(wrap(folded, ranges, weight_bits=4), export_onnx)
    with pytest.raises(CourseError, match="no rounded layers"):
        export_wrapped(folded, export_onnx)
    with pytest.raises(CourseError, match="no Conv2d and no Linear"):
        input_ranges(nn.ReLU(), images)
    unused = copy.deepcopy(folded)
    unused.add_module("spare", nn.Linear(2, 2))
    with pytest.raises(CourseError, match="does not reach the layer 'spare'"):
        input_ranges(unused, images)
