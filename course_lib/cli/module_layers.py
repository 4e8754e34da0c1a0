"""`course layers` for PyTorch modules: blocks and layer tables of what ``package.module:factory`` or a Python file makes."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.cli.shape_option import check_names, shapes_of
from course_lib.errors import BuildError, CourseError

if TYPE_CHECKING:
    import torch

    from course_lib.engines.backends.torch_tensorrt.blocks import Blocks

FACTORY = "factory"  # the function of a Python file, unless the command names another one
_RETURNS = "a factory returns a torch.nn.Module, or a pair of a module and a dictionary of its inputs"


def names_module(target: str) -> bool:
    """Whether the argument of `course layers` is a module's factory, not a file with a graph or a plan."""
    path, _, name = target.rpartition(":")
    return target.endswith(".py") or path.endswith(".py") or (name.isidentifier() and not Path(target).exists())


def blocks(target: str, inputs: Sequence[str], options: Sequence[str], *, time_limit_s: float) -> Blocks:
    """Call the factory, and compile its module in a worker.

    Args:
        target: ``package.module:factory``, ``FILE.py`` or ``FILE.py:factory``.
        inputs: see `shapes_of`. They are needed if the factory returns only a module, and the module has no `Signature`.
        options: ``NAME=VALUE``, keywords of ``torch_tensorrt.compile`` with JSON values.

    Raises:
        CourseError: there is no such factory, or its inputs are missing.
        BuildError: see `blocks.module_blocks`.
    """
    import torch

    from course_lib.engines.backends.torch_tensorrt.blocks import module_blocks

    factory = _factory(target)
    try:
        made = factory()
    except Exception as error:  # the learner's own code
        raise CourseError(f"{target} failed: {type(error).__name__} {' '.join(str(error).split())[:300]}") from None
    module, given = made if isinstance(made, tuple) and len(made) == 2 else (made, {})
    if not isinstance(module, torch.nn.Module):
        raise CourseError(f"{target} returned {type(module).__name__}: {_RETURNS}")
    wanted, known = shapes_of(inputs), _arguments(module)
    examples = {**_examples(module), **(given if isinstance(given, Mapping) else {})}
    names = (known if examples.keys() <= set(known) else list(examples)) or list(wanted)
    check_names(wanted, names)
    shapes = {**examples, **wanted}
    if not shapes:
        raise CourseError(f"the inputs of {target} are not known: pass --shape NAME=4x1x32x32, or return them ({_RETURNS})")
    in_order = {name: shapes[name] for name in names if name in shapes}
    return module_blocks(module, in_order, time_limit_s=time_limit_s, **dict(map(_option, options)))


def _arguments(module: torch.nn.Module) -> list[str]:
    """The names of ``forward``'s arguments in their order; none if it takes any number of them."""
    arguments = inspect.signature(module.forward).parameters.values()
    return [] if any(one.kind is one.VAR_POSITIONAL for one in arguments) else [one.name for one in arguments]


def _examples(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """By the names of ``forward``, from the module's own ``signature()`` if it has one."""
    from course_lib.models import Signature

    method, signature = getattr(module, "signature", None), None
    with contextlib.suppress(Exception):  # a method of this name may be the module's own
        signature = method() if callable(method) else None
    return dict(zip(signature.inputs, signature.example(), strict=True)) if isinstance(signature, Signature) else {}


def _factory(target: str) -> Callable[[], Any]:
    path, _, name = (target, "", FACTORY) if target.endswith(".py") else target.rpartition(":")
    if path.endswith(".py"):
        if not Path(path).is_file():
            raise CourseError(f"{path}: no such file")
        known = runpy.run_path(path)
    else:
        sys.path.insert(0, str(Path.cwd()))
        try:
            found = importlib.import_module(path)
        except ModuleNotFoundError as error:
            raise CourseError(f"there is no module {error.name!r}: run the command in the folder that has it") from None
        known = {name: getattr(found, name)} if hasattr(found, name) else {}
    if not callable(known.get(name)):
        raise CourseError(f"{path} has no function {name}: define it, or name another one, {path}:FUNCTION ({_RETURNS})")
    factory: Callable[[], Any] = known[name]
    return factory


def _option(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value.lower() if value in ("True", "False") else value)
    except (ValueError, RecursionError):
        raise BuildError(
            f"--option {text}: expected NAME=VALUE, such as min_block_size=1 or use_fast_partitioner=false"
        ) from None


def show(found: Blocks, options: Sequence[str]) -> None:
    """Print the blocks and, for each engine, its kernels."""
    from course_lib.cli import console

    rows = found.rows()
    console.table(found.heading(), list(rows[0]) if rows else [], [list(row.values()) for row in rows])
    if found.convertible and not found.engines and "min_block_size" not in dict(map(_option, options)):
        console.note("TensorRT gets blocks of at least 5 operators by default: add --option min_block_size=1")
    for number, block in enumerate(found.blocks):
        if block.in_tensorrt:
            kernels = block.layers.rows()
            columns = ("kernel", "kind", "types", "shape")
            title = f"block {number}: {len(kernels)} kernel{'s' * (len(kernels) != 1)}"
            console.table(title, columns, [[row[column] for column in columns] for row in kernels], ("kernel",))
