"""Torch-TensorRT: a PyTorch module whose graph runs in TensorRT, without ONNX between them.

Three thin functions over ``torch_tensorrt.compile(ir="dynamo")``, ``save`` and ``load``. Those functions silently
accept keywords that they do not read, old options without effect, and operator names that match nothing. The
result would run in another precision or outside TensorRT without notice. Here each is an error that names the remedy.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from course_lib.engines.backends.torch_tensorrt import release_2_2
from course_lib.engines.backends.torch_tensorrt.options import (
    check_compile_options,
    check_save_options,
    chooses_types,
    keywords_of,
)
from course_lib.errors import BackendUnavailable, BuildError, PlanError, PrecisionError

if TYPE_CHECKING:
    import torch

Shape = Sequence[int]
Inputs = Mapping[str, "Shape | Mapping[str, Shape]"]
_WHOLE = "require_full_compilation"
_INPUTS = "course_inputs"  # where a compiled module keeps the description of its inputs, which saving needs again


def compile_module(module: torch.nn.Module, inputs: Inputs, *, precision: str = "fp32", **options: Any) -> torch.nn.Module:
    """Compile a module on the GPU with TensorRT.

    By default, TensorRT must run the whole graph (``require_full_compilation=True``), so that no part of it stays in PyTorch
    unnoticed. `options` can change that.

    Args:
        module: in eval mode, on the GPU.
        inputs: shapes by the name of ``forward``'s arguments, in their order. A shape may be a range, ``{"min": ..., "opt": ...,
            "max": ...}``, as in a recipe's profile. The type is the module's, or float32 with autocast.
        precision: the type in which the engine must compute, ``"fp32"``, ``"fp16"`` or ``"bf16"``; ``"int8"`` or ``"fp8"`` for a module
            that modelopt quantized. It is a claim about the module, which decides; see the errors.
        options: keywords of ``torch_tensorrt.compile``.

    Raises:
        BackendUnavailable: Torch-TensorRT is not installed, cannot be imported, or is a version whose keywords are not known.
        BuildError: an option does not exist or would be ignored, or the compiler rejects the module. The message names the remedy.
        PrecisionError: the module does not have the precision.

    Source: https://docs.pytorch.org/TensorRT/, "Compiling with Dynamo".
    """
    torch_tensorrt = imported()
    keywords, version = keywords_of(torch_tensorrt)
    whole = options.get(_WHOLE, not options.get("torch_executed_ops") and not options.get("fallback_data_dependent_ops"))
    old = chooses_types(keywords)
    if old:  # it ignores the option, so the result is checked below
        options = {"min_block_size": 1 if whole else 5, **{name: value for name, value in options.items() if name != _WHOLE}}
    else:
        options = {_WHOLE: whole, **options}
    check_compile_options(options, keywords, version)
    options.update(_autocast(module, precision, options, offered=not old))
    specs = _specs(torch_tensorrt, module, inputs)
    with _one_line("torch_tensorrt rejects the module"):
        if old:
            compiled = release_2_2.compile_graph(torch_tensorrt, module, specs, _dtype(module), options)
        else:
            compiled = torch_tensorrt.compile(module, ir="dynamo", arg_inputs=specs, **options)
    # the partitioner names what goes to TensorRT like this; a dry run stops before there is anything to find
    if not options.get("dryrun") and not any("_run_on_acc" in name for name, _ in compiled.named_modules()):
        raise BuildError("TensorRT would run no part of the module, so all of it would run in PyTorch: pass min_block_size=1")
    if old and whole:
        release_2_2.require_none_left(compiled)
    compiled.meta[_INPUTS] = specs
    return compiled


def compile_exported(
    program: torch.export.ExportedProgram, shapes: Inputs, examples: Sequence[torch.Tensor], options: Mapping[str, Any]
) -> torch.fx.GraphModule:
    """Compile an exported program. A block that TensorRT cannot run stays in PyTorch if the options say so.

    Args:
        shapes: of the inputs in order, as for `compile_module`.
        examples: one tensor an input, for its type.

    Raises:
        BuildError: an option does not exist or would be ignored, or the compiler rejects the program.
    """
    torch_tensorrt = imported()
    check_compile_options(options, *keywords_of(torch_tensorrt))
    specs = [
        _spec(torch_tensorrt, name, shape, example.dtype)
        for (name, shape), example in zip(shapes.items(), examples, strict=True)
    ]
    with _one_line("torch_tensorrt rejects the module"):
        compiled: torch.fx.GraphModule = torch_tensorrt.dynamo.compile(program, arg_inputs=specs, **options)
    return compiled


def save_module(compiled: torch.nn.Module, path: str | Path, **options: Any) -> None:
    """Write a module of `compile_module` to a file. It holds plans, which are executable code: never load one from an unknown source.

    Args:
        options: keywords of ``torch_tensorrt.save``.

    Raises:
        BuildError: an option does not exist or would be ignored, or the module cannot be saved.
    """
    torch_tensorrt = imported()
    keywords, version = keywords_of(torch_tensorrt)
    if not keywords["save"]:
        raise BuildError(
            f"torch_tensorrt {version} has no save: use torch.save(module, path), and torch.load after importing it"
        )
    check_save_options(options, keywords, version)
    specs = getattr(compiled, "meta", {}).get(_INPUTS)
    if specs is None:
        raise BuildError(
            "save_module writes what compile_module returned; torch.compile compiles when it is called, with nothing to save"
        )
    with _one_line(f"torch_tensorrt cannot save to {path}"):
        torch_tensorrt.save(compiled, str(path), arg_inputs=specs, **options)


def load_module(path: str | Path) -> torch.nn.Module:
    """The module that `save_module` wrote in its default format, ready to be called.

    Raises:
        PlanError: no such file, or not one of these.
    """
    torch_tensorrt = imported()
    if not Path(path).is_file():
        raise PlanError(f"{path}: no such file")
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # it prints the traceback of its first attempt
            loaded = torch_tensorrt.load(str(path))
        return loaded.module()
    except Exception as error:  # whatever torch.export or torch.jit made of the bytes
        raise PlanError(f"{path} is not a module that save_module wrote: {_line(error)}") from None


def imported() -> ModuleType:
    """The package ``torch_tensorrt`` of this process.

    Raises:
        BackendUnavailable: it is not installed, or cannot be imported.
    """
    try:
        import torch_tensorrt
    except ModuleNotFoundError as error:
        advice = (
            "pip install 'tensorrt-course[gpu]' on a machine with an NVIDIA GPU. Without one, blocks.module_blocks compiles in a "
            "worker, and without_gpu.load() prepares a process of its own"
        )
        raise BackendUnavailable(f"torch_tensorrt is not usable here, {error.name} is missing: {advice}") from None
    except (ImportError, OSError, RuntimeError) as error:  # a TensorRT or a torch of another version
        advice = "torch, torch-tensorrt and tensorrt must fit together, pip install 'tensorrt-course[gpu]' has a set"
        raise BackendUnavailable(f"torch_tensorrt cannot be imported ({_line(error)}): {advice}") from None
    return torch_tensorrt


def _autocast(module: Any, precision: str, options: Mapping[str, Any], *, offered: bool) -> dict[str, object]:
    """Prove that the module has the precision, and complete autocast's options, which alone do not reduce anything."""
    import torch

    types = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    if precision in ("int8", "fp8"):
        if not any("Quantizer" in type(part).__name__ for part in module.modules()):
            raise PrecisionError(f"the module has no quantizers, so no {precision}: quantize it with modelopt first")
        return {}
    if precision not in types:
        raise BuildError(f"unknown precision {precision!r}: choose one of {', '.join(types)}, int8, fp8")
    wanted, found = types[precision], _float_types(module)
    if options.get("enable_autocast"):
        low = options.get("autocast_low_precision_type") or wanted
        if precision == "fp32" or low != wanted or found != {torch.float32}:
            raise PrecisionError(
                f"autocast reduces a float32 module to fp16 or bf16, found a module with {_spell(found)}, {low} and "
                f"precision {precision!r}: make them agree"
            )
        return {"autocast_low_precision_type": wanted}
    if found - {wanted}:
        way = {"fp32": "module.float()", "fp16": "module.half()", "bf16": "module.bfloat16()"}[precision]
        also = ", or pass enable_autocast=True" if offered and precision != "fp32" else ""
        raise PrecisionError(f"{precision} was requested, but the module computes in {_spell(found)}: call {way}{also}")
    return {}


def _specs(torch_tensorrt: Any, module: torch.nn.Module, inputs: Inputs) -> list[Any]:
    """Torch-TensorRT's description of each input."""
    return [_spec(torch_tensorrt, name, shape, _dtype(module)) for name, shape in inputs.items()]


def _spec(torch_tensorrt: Any, name: str, shape: Shape | Mapping[str, Shape], dtype: torch.dtype) -> Any:
    if isinstance(shape, Mapping):
        bounds = {f"{bound}_shape": tuple(shape[bound]) for bound in ("min", "opt", "max")}
        return torch_tensorrt.Input(**bounds, dtype=dtype, name=name)
    return torch_tensorrt.Input(shape=tuple(shape), dtype=dtype, name=name)


def _dtype(module: torch.nn.Module) -> torch.dtype:
    import torch

    return next(iter(_float_types(module)), torch.float32)


def _float_types(module: torch.nn.Module) -> set[torch.dtype]:
    return {parameter.dtype for parameter in module.parameters() if parameter.is_floating_point()}


def _spell(types: set[torch.dtype]) -> str:
    return " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in types)) or "no floating point"


@contextlib.contextmanager
def _one_line(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # asserts, and classes of torch.export, TensorRT and its own
        raise BuildError(f"{what}: {_line(error)}") from None


def _line(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:300]
