"""Options that Torch-TensorRT would accept and ignore, rejected with the way that works.

Source: the code of the installed package, or the table in `keywords` for a release without its source.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from course_lib.engines.backends.torch_tensorrt.keywords import Keywords, read_package, table
from course_lib.errors import BackendUnavailable, BuildError

_INSTEAD = {  # options of older versions, and what took their place
    "enabled_precisions": "the types are the module's own: call module.half() or module.bfloat16(), or pass enable_autocast=True",
    "use_explicit_typing": "the types are always the module's own: leave it out",
    "calibrator": "quantize the module with modelopt, whose Q/DQ it converts, and set precision='int8'",
    "truncate_long_and_double": "use truncate_double; int64 no longer needs truncation",
    "refit": "say immutable_weights=False",
    "make_refittable": "say immutable_weights=False",
    "debug": "compile within torch_tensorrt.dynamo.Debugger()",
    "torch_executed_modules": "name operators in torch_executed_ops",
    "enable_cross_compile_for_windows": "call torch_tensorrt.dynamo.cross_compile_for_windows",
    "use_python_runtime": "the installed packages determine the runtime: leave it out",
    "ir": "compile_module is ir='dynamo': leave it out",
    "arg_inputs": "give them as the second argument",
}
_INSTEAD_OF_2_2 = {
    "calibrator": "only torch_tensorrt.compile(ir='ts') reads it",
    "use_explicit_typing": "the types come from the precision: leave it out",
}
_NEEDS = (  # options that do nothing without another one
    (("cache_built_engines", "reuse_cached_engines", "strip_engine_weights", "refit_identical_engine_weights"), "immutable_weights", False),
    (("cpu_memory_budget",), "enable_resource_partitioning", True),
    (("min_block_size",), "require_full_compilation", False),
)  # fmt: skip
_DEFAULTS = {"immutable_weights": True, "enable_resource_partitioning": False, "require_full_compilation": False}
_CACHE_DETAILS = ("engine_cache_dir", "engine_cache_size", "custom_engine_cache")


def keywords_of(torch_tensorrt: Any) -> tuple[Keywords, str]:
    """The keywords that this package reads, and its version as ``"major.minor"``.

    Raises:
        BackendUnavailable: the package has no source, and its version is not in the table.
    """
    version = ".".join(torch_tensorrt.__version__.split(".")[:2])
    if file := getattr(torch_tensorrt, "__file__", None):
        return read_package(Path(file).parent), version
    known = table()
    if version not in known:
        raise BackendUnavailable(
            f"the keywords of Torch-TensorRT {version} were not recorded (known: {', '.join(known)}): "
            f"python -m course_lib.engines.backends.torch_tensorrt.keywords {version}.0"
        )
    return known[version], version


def chooses_types(keywords: Keywords) -> bool:
    """Whether ``enabled_precisions`` chooses the engine's types, as it did before autocast: in 2.2, of the versions in the table."""
    return "enable_autocast" not in keywords["compile"]


def check_compile_options(options: Mapping[str, Any], keywords: Keywords, version: str) -> None:
    """Reject options of ``torch_tensorrt.compile``, with ``require_full_compilation`` among them.

    Raises:
        BuildError: an option does not exist, was replaced, or would be ignored.
    """
    for name in options:
        ignored = name in keywords["ignored"]
        if chooses_types(keywords) and name in keywords["compile"] and not ignored:
            _check_set_by_course(name, version)
            continue
        if chooses_types(keywords) and name in _INSTEAD_OF_2_2:
            raise BuildError(f"torch_tensorrt {version} ignores {name}: {_INSTEAD_OF_2_2[name]}")
        # the runtime could be chosen until 2.12; the others are wrong in every version
        if name in _INSTEAD and (ignored or name != "use_python_runtime"):
            raise BuildError(f"torch_tensorrt {version} {'ignores' if ignored else 'takes no'} {name}: {_INSTEAD[name]}")
        if ignored:
            raise BuildError(f"torch_tensorrt {version} ignores {name}: leave it out")
        _check_known(name, keywords["compile"], f"torch_tensorrt.compile {version}")
    for names, other, value in _NEEDS:
        for name in names:
            met = other in keywords["ignored"] or options.get(other, _DEFAULTS.get(other)) == value
            if options.get(name) and not met:
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


def _check_set_by_course(name: str, version: str) -> None:
    """In an old release: what `compile_module` passes itself."""
    for ours, advice in (
        ("enabled_precisions", "say precision='fp16'"),
        ("output_format", "it is 'fx'"),
        ("inputs", "give them as the second argument"),
    ):
        if name == ours:
            raise BuildError(f"compile_module sets {name} for torch_tensorrt {version}: {advice}, and leave it out")


def check_save_options(options: Mapping[str, Any], keywords: Keywords, version: str) -> None:
    """Reject options of ``torch_tensorrt.save``.

    Raises:
        BuildError: one does not exist or would be ignored.
    """
    form = options.get("output_format", "exported_program")
    readers = {**dict.fromkeys(keywords["save_executorch"], "executorch"), "inductor_configs": "aot_inductor"}
    for name in options:
        if name in ("inputs", "arg_inputs"):
            raise BuildError(f"torch_tensorrt.save: the {name} are those that the module was compiled for: leave it out")
        if readers.get(name, form) != form:
            raise BuildError(f"torch_tensorrt.save ignores {name} unless output_format={readers[name]!r}, found {form!r}")
        if name not in readers:
            _check_known(name, keywords["save"], f"torch_tensorrt.save {version}")


def _check_known(name: str, known: Sequence[str], where: str) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        raise BuildError(
            f"{where} does not read the keyword {name!r} and would ignore it without a message"
            + (f": did you mean {near[0]!r}?" if near else "")
        )


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
