"""From a torch module to one self-contained ONNX model with readable names."""

from __future__ import annotations

import copy
import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import onnx
import onnx_ir
import torch
from onnx_ir.passes.common import IdentityEliminationPass
from torch import Tensor, nn

from course_lib._util.files import write_atomically
from course_lib._util.plain_text import reason
from course_lib.errors import CourseError
from course_lib.models.signature import Signature, signature_of

FIRST_DYNAMO_OPSET = 18  # torch's current exporter writes nothing older; TensorRT 8.6 reads up to 17


def export_onnx(
    model: nn.Module,
    path: str | Path | None = None,
    *,
    dtype: Literal["fp32", "fp16"] = "fp32",
    dynamic_batch: bool = True,
    batch: int = 1,
    opset: int | None = None,
    keep_batchnorm: bool = False,
    signature: Signature | None = None,
) -> onnx.ModelProto:
    """Export ``model`` for inference to ONNX, weights inside, and check the result with ``onnx.checker``.

    Args:
        model: any module with a method ``signature()``, or one described by ``signature``. It is not changed.
        path: also write the model there. The file appears complete or not at all.
        dtype: "fp16" computes and stores everything in half precision between casts at its ends, so that inputs and
            outputs stay float32 and a strongly typed TensorRT network gets half-precision kernels.
        dynamic_batch: keep the dimensions that the signature names dynamic (the encoder's sequence length too). False
            fixes all of them, the batch at ``batch``, the others at the signature's example sizes.
        batch: the fixed batch size; only used with ``dynamic_batch=False``.
        opset: ONNX operator set; None takes torch's default (20 in torch 2.13). 17 and below (for TensorRT 8.6) go
            through torch's older TorchScript exporter.
        keep_batchnorm: leave BatchNormalization nodes for the compiler to fold. Otherwise the exporter folds them into the
            convolutions. Goes through the TorchScript exporter, at opset 17 unless ``opset`` is lower.
        signature: overrides the model's own.

    Returns:
        The model. Nodes are named after their module: ``/block1/conv1/Conv``.

    Raises:
        TypeError: the model has no ``signature()`` and none was given.
        ValueError: an unknown dtype, ``batch`` below 1, or ``keep_batchnorm`` with an opset above 17.
        CourseError: the model rejects the inputs of its signature, or torch cannot export it.
    """
    signature = signature or signature_of(model)
    if dtype not in ("fp32", "fp16"):
        raise ValueError(f"dtype must be 'fp32' or 'fp16', got {dtype!r}")
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    if keep_batchnorm:
        opset = opset or FIRST_DYNAMO_OPSET - 1
        if opset >= FIRST_DYNAMO_OPSET:
            raise ValueError(f"keep_batchnorm needs opset 17 or lower, got {opset}: torch's newer exporter folds batch norms")

    module = copy.deepcopy(model).eval().cpu()
    module = _halve(module) if dtype == "fp16" else module.float()
    with quiet(), torch.no_grad():
        example = signature.example() if dynamic_batch else signature.example(batch=batch)
        try:
            if opset is not None and opset < FIRST_DYNAMO_OPSET:
                exported = _with_torchscript(module, example, signature, dynamic_batch, opset, keep_batchnorm)
            else:
                exported = _with_dynamo(module, example, signature, dynamic_batch, opset)
        except Exception as error:  # torch's exporters raise classes of their own, with a page of text
            raise _rejection(error, module, type(model).__name__, example) from None
    exported.graph.name = type(model).__name__
    onnx.checker.check_model(exported, full_check=True)
    if path is not None:
        _write(exported, Path(path))
    return exported


def _halve(module: nn.Module) -> nn.Module:
    """Turn ``module`` to half precision in place, with a cast before its float inputs and after its outputs.

    It uses hooks rather than a wrapping module, so that all names in the graph are the same as in float32.
    """
    module.half()
    module.register_forward_pre_hook(lambda _, inputs: tuple(x.half() if x.is_floating_point() else x for x in inputs))
    module.register_forward_hook(lambda _, __, outputs: _floats(outputs))
    return module


def _floats(outputs: Any) -> Any:
    if isinstance(outputs, Tensor):
        return outputs.float() if outputs.is_floating_point() else outputs
    if isinstance(outputs, dict):
        return {name: _floats(one) for name, one in outputs.items()}
    return tuple(map(_floats, outputs))


def _rejection(error: Exception, module: nn.Module, name: str, example: tuple[Tensor, ...]) -> CourseError:
    """Why an export failed, in one line: the module itself may reject the inputs of its signature."""
    try:
        module(*example)
    except Exception as own:
        why = reason(own)
        integers = re.search(r"\b(Long|Int|int64|indices|embedding)\b", why)
        advice = "name its integer inputs in Signature(integers={...})" if integers else "correct the signature, or the module"
        return CourseError(f"{name} rejects the inputs of its signature: {why.rstrip('.')}: {advice}")
    why = reason(error.__cause__ or error).rstrip(".")
    return CourseError(f"torch cannot export {name}: {why}: rewrite this part of its forward(), or keep it in PyTorch")


def _with_dynamo(
    module: nn.Module, example: tuple[Tensor, ...], signature: Signature, dynamic: bool, opset: int | None
) -> onnx.ModelProto:
    program = torch.onnx.export(
        module,
        example,
        dynamo=True,
        verbose=False,
        opset_version=opset,
        input_names=list(signature.inputs),
        output_names=list(signature.outputs),
        dynamic_shapes=tuple(signature.dynamic().values()) if dynamic else None,
    )
    assert program is not None
    name_after_modules(program.model)
    return program.model_proto


def _with_torchscript(
    module: nn.Module, example: tuple[Tensor, ...], signature: Signature, dynamic: bool, opset: int, keep_batchnorm: bool
) -> onnx.ModelProto:
    axes = signature.dynamic()
    leading = {axis: name for axis, name in next(iter(axes.values())).items() if axis == 0}
    axes.update(dict.fromkeys(signature.outputs, leading))  # it cannot tell by itself that outputs follow the batch
    with TemporaryDirectory() as folder:
        torch.onnx.export(
            module,
            example,
            file := Path(folder, "model.onnx"),
            dynamo=False,
            opset_version=opset,
            input_names=list(signature.inputs),
            output_names=list(signature.outputs),
            dynamic_axes=axes if dynamic else None,
            # This exporter folds batch norms when it is told "inference"; "preserve" leaves an eval-mode network as it is.
            training=torch.onnx.TrainingMode.PRESERVE if keep_batchnorm else torch.onnx.TrainingMode.EVAL,
        )
        script = onnx_ir.from_proto(onnx.load(file))
    IdentityEliminationPass()(script)  # where two weights are equal it stores one, and an Identity for the other
    return onnx_ir.to_proto(script)


def name_after_modules(model: onnx_ir.Model) -> None:
    """Call nodes ``/block1/conv1/Conv`` instead of ``node_Conv_137``, and what they compute likewise.

    The exporter's notes are dropped once read: they hold stack traces with this machine's paths, which would make the file
    and every cache keyed on it differ between machines.
    """
    graph = model.graph
    borders = {*graph.inputs, *graph.outputs}
    seen: Counter[str] = Counter()
    path = ""
    for node in graph:
        path = _module_path(node, path)
        name = "/".join(["", *path.split("."), node.op_type]) if path else f"/{node.op_type}"
        seen[name] += 1
        node.name = name if seen[name] == 1 else f"{name}_{seen[name] - 1}"
        node.metadata_props.clear()
        for position, output in enumerate(node.outputs):
            output.metadata_props.clear()
            if output not in borders:
                output.name = f"{node.name}_output_{position}"
        for position, constant in enumerate(node.inputs):
            if constant is not None and constant.is_initializer() and (constant.name or "").startswith("val_"):
                constant.name = f"{node.name}_constant_{position}"
    model.metadata_props.clear()
    graph.metadata_props.clear()
    for value in (*graph.inputs, *graph.initializers.values()):
        value.metadata_props.clear()


def _module_path(node: onnx_ir.Node, previous: str) -> str:
    """The dotted path of the submodule of ``node``. A node without this information belongs to the previous node's submodule.

    A convolution that absorbed a batch norm has the norm's path, but the path of the convolution in its weight. It is named after
    both, ``block1.conv1+norm1``, so that the fold is still visible after compilation.
    """
    scopes = node.metadata_props.get("namespace", "").split("/")  # ": Net/block1: Block/block1.conv1: Conv2d/conv: aten.conv"
    scope = previous if len(scopes) < 2 or scopes[0].startswith("_empty") else scopes[-2].partition(":")[0]
    weight = node.inputs[1].name if node.op_type == "Conv" and node.inputs[1] is not None else None
    if not weight or not weight.endswith(".weight"):
        return scope
    convolution = weight.removesuffix(".weight")
    return convolution if scope == convolution else f"{convolution}+{scope.rpartition('.')[2]}"


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what torch's exporters say about themselves; errors still are errors. Attention is traced operator by operator."""
    levels = {logging.getLogger("torch.onnx"): logging.ERROR, logging.getLogger("torch.export"): logging.CRITICAL}
    before = {logger: logger.level for logger in levels}
    fused_attention = torch.backends.mha.get_fastpath_enabled()  # no ONNX operator is that one
    for logger, level in levels.items():
        logger.setLevel(level)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused_attention)
        for logger, level in before.items():
            logger.setLevel(level)


def _write(model: onnx.ModelProto, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, model.SerializeToString())
