"""Options that Torch-TensorRT would accept and ignore, rejected with the way that works.

Source: the code of the installed package.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from course_lib.engines.backends.torch_tensorrt.keywords import Keywords, read_package
from course_lib.errors import BuildError

_INSTEAD = {  # options of older versions, and what took their place
    "enabled_precisions": "the types are the module's own: call module.half() or module.bfloat16(), or pass enable_autocast=True",
    "use_explicit_typing": "the types are always the module's own: leave it out",
    "calibrator": "quantize the module with modelopt, whose Q/DQ it converts",
    "truncate_long_and_double": "use truncate_double; int64 no longer needs truncation",
    "refit": "say immutable_weights=False",
    "make_refittable": "say immutable_weights=False",
    "debug": "compile within torch_tensorrt.dynamo.Debugger()",
    "torch_executed_modules": "name operators in torch_executed_ops",
    "enable_cross_compile_for_windows": "call torch_tensorrt.dynamo.cross_compile_for_windows",
    "use_python_runtime": "the installed packages determine the runtime: leave it out",
    "ir": "it is 'dynamo': leave it out",
    "arg_inputs": "the shapes describe them: leave it out",
}
_NEEDS = (  # options that do nothing without another one
    (("cache_built_engines", "reuse_cached_engines", "strip_engine_weights", "refit_identical_engine_weights"), "immutable_weights", False),
    (("cpu_memory_budget",), "enable_resource_partitioning", True),
    (("min_block_size",), "require_full_compilation", False),
)  # fmt: skip
_DEFAULTS = {"immutable_weights": True, "enable_resource_partitioning": False, "require_full_compilation": False}
_CACHE_DETAILS = ("engine_cache_dir", "engine_cache_size", "custom_engine_cache")


def keywords_of(torch_tensorrt: Any) -> tuple[Keywords, str]:
    """The keywords that this package reads, and its version as ``"major.minor"``."""
    version = ".".join(torch_tensorrt.__version__.split(".")[:2])
    return read_package(Path(torch_tensorrt.__file__).parent), version


def check_compile_options(options: Mapping[str, Any], keywords: Keywords, version: str) -> None:
    """Reject options of ``torch_tensorrt.compile``, with ``require_full_compilation`` among them.

    Raises:
        BuildError: an option does not exist, was replaced, or would be ignored.
    """
    for name in options:
        ignored = name in keywords["ignored"]
        # the runtime could be chosen until 2.12; the others are wrong in every version
        if name in _INSTEAD and (ignored or name != "use_python_runtime"):
            raise BuildError(f"torch_tensorrt {version} {'ignores' if ignored else 'takes no'} {name}: {_INSTEAD[name]}")
        if ignored:
            raise BuildError(f"torch_tensorrt {version} ignores {name}: leave it out")
        if name not in keywords["compile"]:
            near = difflib.get_close_matches(name, keywords["compile"], n=1)
            raise BuildError(
                f"torch_tensorrt.compile {version} does not read the keyword {name!r} and would ignore it without a message"
                + (f": did you mean {near[0]!r}?" if near else "")
            )
    for names, other, value in _NEEDS:
        for name in names:
            if options.get(name) and options.get(other, _DEFAULTS[other]) != value:
                raise BuildError(f"torch_tensorrt ignores {name} unless {other}={value}: pass that too")
    for name in _CACHE_DETAILS:
        if name in options and not (options.get("cache_built_engines") or options.get("reuse_cached_engines")):
            raise BuildError(
                f"torch_tensorrt ignores {name} without cache_built_engines or reuse_cached_engines: pass one of them"
            )
    for name in options:
        if name.startswith("autocast_") and not options.get("enable_autocast"):
            raise BuildError(f"torch_tensorrt ignores {name} unless enable_autocast=True: pass that too")
    _check_operators(options.get("torch_executed_ops", ()))


def _check_operators(operators: Collection[Any]) -> None:
    """Torch-TensorRT skips a name that matches no operator, so a misspelled operator would still run in TensorRT."""
    import torch

    if isinstance(operators, str):
        raise BuildError(f"torch_executed_ops needs a set of names, found the text {operators!r}: put it in braces")
    for operator in operators:
        if isinstance(operator, torch._ops.OpOverload):
            continue
        if not isinstance(operator, str) or not _resolves(operator):
            raise BuildError(
                f"torch_executed_ops: {operator!r} matches no operator and would be ignored: {_spelling(operator)}"
            )


def _resolves(name: str) -> bool:
    import torch

    parts = name.split(".")
    if parts[:2] != ["torch", "ops"] or len(parts) != 5:
        return False
    with contextlib.suppress(AttributeError, RuntimeError):
        found = getattr(getattr(getattr(torch.ops, parts[2]), parts[3]), parts[4])
        return isinstance(found, torch._ops.OpOverload)
    return False


def _spelling(operator: Any) -> str:
    """The correct spelling of the operator that was probably meant."""
    import torch

    words = [word for word in re.split(r"[.:]+", str(operator)) if word not in ("torch", "ops", "")]
    with contextlib.suppress(AttributeError, RuntimeError, IndexError):
        packet = getattr(getattr(torch.ops, words[0]), words[1])
        names = [f"torch.ops.{words[0]}.{words[1]}.{overload}" for overload in packet.overloads()]
        return f"one of {', '.join(names[:4])}"
    return "write its full name with the overload, such as 'torch.ops.aten.mul.Tensor'"
