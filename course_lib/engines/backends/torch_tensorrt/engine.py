"""Torch-TensorRT: an exported PyTorch program whose graph runs in TensorRT, without ONNX between them.

``torch_tensorrt`` silently accepts keywords that it does not read, old options without effect, and operator names that match
nothing. The result would run in another precision or outside TensorRT without notice. Here each is an error that names the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from course_lib.engines.backends.torch_tensorrt.options import check_compile_options, keywords_of
from course_lib.errors import BuildError

if TYPE_CHECKING:
    import torch

Shape = Sequence[int]
Inputs = Mapping[str, "Shape | Mapping[str, Shape]"]


def compile_exported(
    program: torch.export.ExportedProgram, shapes: Inputs, examples: Sequence[torch.Tensor], options: Mapping[str, Any]
) -> torch.fx.GraphModule:
    """Compile an exported program. A block that TensorRT cannot run stays in PyTorch if the options say so.

    Call `without_gpu.load` first.

    Args:
        shapes: of the inputs by name, in order. A shape may be a range, ``{"min": ..., "opt": ..., "max": ...}``, as in a recipe's
            profile.
        examples: one tensor an input, for its type.
        options: keywords of ``torch_tensorrt.dynamo.compile``.

    Raises:
        BuildError: an option does not exist or would be ignored, or the compiler rejects the program.

    Source: https://docs.pytorch.org/TensorRT/, "Compiling with Dynamo".
    """
    import torch_tensorrt

    check_compile_options(options, *keywords_of(torch_tensorrt))
    specs = [_spec(name, shape, example.dtype) for (name, shape), example in zip(shapes.items(), examples, strict=True)]
    try:
        compiled: torch.fx.GraphModule = torch_tensorrt.dynamo.compile(program, arg_inputs=specs, **options)
    except Exception as error:  # asserts, and classes of torch.export, TensorRT and its own
        line = " ".join(str(error).split()) or type(error).__name__
        raise BuildError(f"torch_tensorrt rejects the module: {line[:300]}") from None
    return compiled


def _spec(name: str, shape: Shape | Mapping[str, Shape], dtype: torch.dtype) -> Any:
    """Torch-TensorRT's description of an input."""
    import torch_tensorrt

    if isinstance(shape, Mapping):
        bounds = {f"{bound}_shape": tuple(shape[bound]) for bound in ("min", "opt", "max")}
        return torch_tensorrt.Input(**bounds, dtype=dtype, name=name)
    return torch_tensorrt.Input(shape=tuple(shape), dtype=dtype, name=name)
