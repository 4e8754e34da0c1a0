"""Quantization-aware training with ModelOpt: what it promises, what it exports, and where it beats PTQ.

What trains for real is marked slow and needs ``pip install "nvidia-modelopt>=0.47" huggingface_hub``.
"""

import sys
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from torch import nn

from course_lib import engines
from course_lib.benchmark.accuracy import argmax_agreement, sqnr_db
from course_lib.benchmark.one_node import runner
from course_lib.errors import BackendUnavailable, CourseError
from course_lib.models import classifier, digits, export_onnx
from course_lib.models.digit_dataset import perturb
from course_lib.precision import MinMaxCalibrator, calibrate, fake_quantize
from course_lib.precision.qat import export_qat_onnx, quantize_aware, train
from course_lib.recipe import Profile, Recipe

IMAGES = Profile(image={"min": (1, 1, 32, 32), "opt": (8, 1, 32, 32), "max": (32, 1, 32, 32)})


@pytest.fixture
def modelopt() -> None:
    try:
        import_module("modelopt.torch.quantization")
    except ImportError as error:
        pytest.skip(f'ModelOpt cannot be imported ({error}): pip install "nvidia-modelopt>=0.47" huggingface_hub')


@cache
def calibration(spoiled: float = 1.0, tokens: bool = False) -> tuple[torch.Tensor, ...]:
    """512 training digits; the very first may be `spoiled`: multiplied, as by a broken sensor."""
    data = digits("train")
    inputs = torch.tensor(data.tokens() if tokens else data.images)[:512].clone()
    inputs[0] *= spoiled
    return inputs.split(64)


@cache
def training() -> list[tuple[torch.Tensor, torch.Tensor]]:
    rng, data = np.random.default_rng(0), digits("train")
    images, order = perturb(data.images, rng), rng.permutation(len(data))
    return [
        (torch.tensor(images[order[i : i + 32]]), torch.tensor(data.labels[order[i : i + 32]]))
        for i in range(0, len(data) - 31, 32)
    ]


@torch.no_grad()
def accuracy(model: nn.Module) -> float:
    data = digits("test")
    return float((model(torch.tensor(data.images)).argmax(1).numpy() == data.labels).mean())


def onnx_accuracy(model: onnx.ModelProto) -> float:
    data = digits("test")
    return float((runner(model)({"image": data.images})[0].argmax(1) == data.labels).mean())


def int8_kernels(model: onnx.ModelProto, profile: Profile = IMAGES) -> int:
    plan = engines.build(model, Recipe(precision="int8", profiles=(profile,)), backend="tensorrt_rtx")
    return sum(kernel.kind in ("correlation", "gemm") and kernel.inputs[0].dtype == "Int8" for kernel in plan.layers.kernels)


# ---- with ModelOpt


@pytest.mark.slow
@pytest.mark.usefixtures("modelopt")
def test_calibration_finds_the_ranges_that_ours_finds() -> None:
    model = classifier("small")
    quantized = quantize_aware(model, calibration())
    exported = export_onnx(model)
    batches = [{"image": batch.numpy()} for batch in calibration()]
    ranges = calibrate(exported, batches, MinMaxCalibrator(), progress=False)
    read = {node.name: node.input[0] for node in exported.graph.node}
    for node, module in (
        ("/stem+norm/Conv", quantized.stem),
        ("/block2/conv2+norm2/Conv", quantized.block2.conv2),  # type: ignore[union-attr]
        ("/head/Gemm", quantized.head),
    ):
        assert float(module.input_quantizer.amax) == pytest.approx(ranges[read[node]], rel=1e-4)  # type: ignore[union-attr,arg-type]
    with torch.no_grad():  # and its rounding is ours
        weight = quantized.block1.conv1.weight  # type: ignore[union-attr]
        found = quantized.block1.conv1.weight_quantizer(weight).numpy()  # type: ignore[union-attr,operator]
    amax = weight.detach().abs().amax((1, 2, 3), keepdim=True).numpy()  # type: ignore[operator]
    np.testing.assert_allclose(found, fake_quantize(weight.detach().numpy(), amax), atol=float(amax.max()) / 127 * 1e-4)  # type: ignore[operator]
    assert type(model.stem) is nn.Conv2d and accuracy(quantized) > 0.99


@pytest.mark.slow
@pytest.mark.usefixtures("modelopt")
def test_eight_bits_train_and_become_int8_kernels() -> None:
    quantized = quantize_aware(classifier("small"), calibration())
    before = accuracy(quantized)
    losses = train(quantized, training(), epochs=2, progress=False)
    assert losses[1] < losses[0] and accuracy(quantized) >= before - 0.005 and before >= 0.99
    exported = export_qat_onnx(quantized, export_onnx)
    images = digits("test").images[:64]
    with torch.no_grad():
        want = quantized(torch.tensor(images)).numpy()
    (have,) = runner(exported)({"image": images})
    assert sqnr_db(want, have) > 45 and argmax_agreement(want, have) == 1
    _is_legal(exported, pairs=20)
    assert int8_kernels(exported) == 10


@pytest.mark.slow
@pytest.mark.usefixtures("modelopt")
def test_ranges_that_an_outlier_spoiled_are_learned_around() -> None:
    """An image times 100 leaves every other a step or two of the 127."""
    quantized = quantize_aware(classifier("small"), calibration(spoiled=100.0))
    before = accuracy(quantized)
    train(quantized, training(), epochs=3, progress=False)
    exported = export_qat_onnx(quantized, export_onnx)
    after = onnx_accuracy(exported)
    assert before < 0.3 and after > 0.8 and after == pytest.approx(accuracy(quantized), abs=0.01)
    assert int8_kernels(exported) == 10


def _is_legal(model: onnx.ModelProto, *, pairs: int) -> None:
    """Symmetric, constant positive scales, nothing on a bias, an output, or between a Conv or an Add and its Relu."""
    constants = {weight.name: numpy_helper.to_array(weight) for weight in model.graph.initializer}
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    makers = {name: node for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, position))
    quantizers = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    assert len(quantizers) == pairs and not [n for n in model.graph.node if n.op_type == "Constant"]
    for node in quantizers:
        assert (constants[node.input[1]] > 0).all() and constants[node.input[2]].dtype == np.int8
        assert not constants[node.input[2]].any()
        ((dequantize, _),) = readers[node.output[0]]
        assert dequantize.op_type == "DequantizeLinear" and list(dequantize.input[1:]) == list(node.input[1:])
        for reader, position in readers[dequantize.output[0]]:
            if reader.op_type == "Transpose":
                ((reader, position),) = readers[reader.output[0]]
            assert reader.op_type in ("Conv", "Gemm", "MatMul") and position < 2
        maker = makers.get(node.input[0])
        if maker is not None and maker.op_type in ("Conv", "Add", "BatchNormalization"):
            assert "Relu" not in {reader.op_type for reader, _ in readers[node.input[0]]}
    assert not {output.name for output in model.graph.output} & {n.output[0] for n in model.graph.node if "quant" in n.name}


# ---- without


def test_without_modelopt_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "modelopt", None)
    monkeypatch.setitem(sys.modules, "modelopt.torch.quantization", None)
    with pytest.raises(BackendUnavailable, match=r'pip install "nvidia-modelopt>=0.47" huggingface_hub') as raised:
        quantize_aware(nn.Linear(2, 2), [])
    assert "\n" not in str(raised.value)


def test_training_lowers_the_loss_and_ends_in_eval_mode() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 64, 8)
    batches = [(inputs, (inputs @ torch.arange(8.0) > 0).long()) for inputs in x]
    model = nn.Sequential(nn.Linear(8, 2), nn.Dropout(0.1))
    losses = train(model, batches, epochs=20, learning_rate=0.05, progress=False)
    assert len(losses) == 20 and losses[-1] < 0.5 * losses[0] and not model.training


def test_what_is_not_quantized_is_not_exported() -> None:
    def export(*_: Any, **__: Any) -> onnx.ModelProto:
        raise AssertionError("it was asked to export")

    with pytest.raises(CourseError, match="the network has no quantizers: make it with quantize_aware first"):
        export_qat_onnx(nn.Linear(2, 2), export)


def test_the_recorded_run_says_what_lecture_7_says() -> None:
    from course_lib.benchmark import recorded

    rows = {(row["network"], row["step"]): row for row in recorded("modelopt_digits_cpu").rows}
    accuracy = {key: row["accuracy"] for key, row in rows.items()}
    assert accuracy["even", "PTQ"] >= accuracy["even", "float"] - 0.01
    assert accuracy["uneven", "PTQ"] < accuracy["uneven", "float"] - 0.2
    assert accuracy["uneven", "QAT"] >= accuracy["uneven", "float"] - 0.01
    assert len({row["int8_kernels"] for row in rows.values() if "int8_kernels" in row}) == 1
