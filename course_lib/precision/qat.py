"""Quantization-aware training (QAT): train a network with the rounding of INT8.

NVIDIA ModelOpt inserts a fake quantizer before both inputs of every Conv and Linear, and chooses the ranges on a few batches.
This step alone is post-training quantization (PTQ). Training then continues with the quantizers, gradients pass straight
through them (see `fake_quant.straight_through`), and weights move to values for which rounding causes less error.

If PTQ at 8 bits already has the float accuracy, as is common, QAT gains nothing and costs a training run. It helps with fewer
bits, and with ranges that cannot be chosen well.

ModelOpt is not among the course's own requirements: ``pip install "tensorrt-course[qat]"``.

Source: Jacob et al., Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference (2018); NVIDIA
Model Optimizer documentation, "PyTorch Quantization".
"""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from course_lib._util.progress_bar import track
from course_lib.errors import BackendUnavailable, CourseError

if TYPE_CHECKING:
    import onnx
    from torch import Tensor, nn

EXPORT_OPSET = 17  # ModelOpt's quantizers have a form in torch's TorchScript exporter only, which ends there
_QUANTIZED = ("nn.Conv1d", "nn.Conv2d", "nn.Conv3d", "nn.Linear")


def quantize_aware(module: nn.Module, batches: Iterable[Tensor]) -> nn.Module:
    """A copy of `module` with a fake quantizer on the input and the weight of every Conv and Linear, calibrated by min-max.

    In eval mode it is the network after post-training quantization; `train` makes it a quantization-aware one. Weights have a
    range for each output channel, activations one per tensor; all are symmetric, with zero point 0. Biases stay float.

    Args:
        module: a float32 module; it is not changed.
        batches: calibration inputs for `module`.

    Raises:
        BackendUnavailable: ModelOpt is not installed, or cannot be imported.
        CourseError: there is no batch.
    """
    quantization = _modelopt()
    import torch

    seen = 0

    def calibrate(model: nn.Module) -> None:
        nonlocal seen
        with torch.no_grad():
            for seen, batch in enumerate(batches, 1):  # noqa: B007
                model(batch)

    weights, activations = {"num_bits": 8, "axis": 0}, {"num_bits": 8, "axis": None}
    rules: list[dict[str, Any]] = [{"quantizer_name": "*", "enable": False}]
    for kind in _QUANTIZED:  # named one by one: ModelOpt would round the inputs of norms and pooling as well
        rules.append({"quantizer_name": "*weight_quantizer", "parent_class": kind, "cfg": weights})
        rules.append({"quantizer_name": "*input_quantizer", "parent_class": kind, "cfg": activations})
    config = {"quant_cfg": rules, "algorithm": "max"}
    with _quiet():
        quantized = quantization.quantize(copy.deepcopy(module).eval(), config, calibrate)
    if not seen:
        raise CourseError("there is no calibration batch: give a few hundred representative inputs")
    return quantized


def train(
    model: nn.Module,
    batches: Sequence[tuple[Tensor, Tensor]],
    *,
    epochs: int = 3,
    learning_rate: float = 1e-3,
    progress: bool = True,
) -> list[float]:
    """Fine-tune `model` in place with its quantizers, and leave it in eval mode. The ranges from calibration do not change.

    The optimizer is Adam with a learning rate that falls to zero along a cosine, because the network is already trained.

    Args:
        model: from `quantize_aware`. Any other module can be trained too, for a fair comparison.
        batches: inputs with their labels ``(N,)``, used in order once per epoch. The loss is the cross entropy.
        epochs: passes over the batches.
        learning_rate: rate at the start.
        progress: show a bar on stderr.

    Returns:
        The mean loss of each epoch.

    Raises:
        ValueError: no batch, or less than one epoch.
    """
    import torch

    if not batches or epochs < 1:
        raise ValueError(f"need at least one batch and one epoch, got {len(batches)} and {epochs}")
    steps = epochs * len(batches)
    optimizer = torch.optim.Adam(model.parameters(), learning_rate)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses: list[float] = []
    model.train()
    for step in track(range(steps), "training", shown=progress):
        inputs, targets = batches[step % len(batches)]
        optimizer.zero_grad()
        current = torch.nn.functional.cross_entropy(model(inputs), targets)
        current.backward()
        optimizer.step()
        rate.step()
        losses.append(float(current.detach()))
    model.eval()
    return [sum(losses[start : start + len(batches)]) / len(batches) for start in range(0, steps, len(batches))]


def export_qat_onnx(model: nn.Module, export: Callable[..., onnx.ModelProto]) -> onnx.ModelProto:
    """The quantized network as ONNX with symmetric INT8 Q/DQ pairs for TensorRT.

    Pairs replace ModelOpt's quantizers: on both inputs of Conv and Gemm, never on a bias or between a Conv and its Relu. The
    remains of torch's exporter (casts from float to float, constants as nodes) are removed.

    Args:
        model: from `quantize_aware`.
        export: `course_lib.models.export_onnx`, or a function with the same arguments (a module and ``opset=17``).

    Raises:
        CourseError: the network has no quantizers.
    """
    if not any(type(module).__name__ == "TensorQuantizer" for module in model.modules()):
        raise CourseError("the network has no quantizers: make it with quantize_aware first")
    with _quiet():
        return _tidied(export(model, opset=EXPORT_OPSET))


def _tidied(exported: onnx.ModelProto) -> onnx.ModelProto:
    import onnx
    import onnx_ir as ir
    from onnx_ir.passes.common import LiftConstantsToInitializersPass

    model = ir.from_proto(onnx.shape_inference.infer_shapes(exported, strict_mode=True))
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
    for node in list(model.graph):
        source = node.inputs[0] if node.inputs else None
        if node.op_type == "Cast" and source is not None and source.dtype == node.outputs[0].dtype == ir.DataType.FLOAT:
            node.outputs[0].replace_all_uses_with(source)
            model.graph.remove(node, safe=True)
    tidy = ir.to_proto(model)
    onnx.checker.check_model(tidy, full_check=True)
    return tidy


def _modelopt() -> ModuleType:
    """``modelopt.torch.quantization``.

    Raises:
        BackendUnavailable: it is missing, or a package that it needs is.
    """
    try:
        with _quiet():
            return import_module("modelopt.torch.quantization")
    except ImportError as error:
        raise BackendUnavailable(
            f"quantization-aware training needs NVIDIA ModelOpt, which cannot be imported ({error}): "
            'pip install "nvidia-modelopt>=0.47" huggingface_hub'
        ) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what ModelOpt prints and warns about; errors still are errors."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
