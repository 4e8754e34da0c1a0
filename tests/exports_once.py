"""The course's networks are exported to ONNX once for all processes of a run and all runs: torch takes 1 to 5 seconds for each.

An export is taken from a file if the network's classes, weights and settings are those of one that was made before, and the
library's files, the packages and the arguments, too. A network with a class from elsewhere, or with anything in it that
is neither a weight nor a plain value, is exported each time.
"""

import hashlib
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from tests import unchanged
from tests.warm_processes import list_operators_once

_BOOKKEEPING = ("_parameters", "_buffers", "_modules")


def install() -> None:
    """Let torch's current exporter be asked once in this process and those that it forks. What it made is still checked each time."""
    from course_lib.models import export, gpt_onnx

    if not hasattr(export._with_dynamo, "asked_each_time"):
        export._with_dynamo = _once(export._with_dynamo)
        gpt_onnx._exported = _once(gpt_onnx._exported)


def uninstall() -> None:
    """Every export is made, from now on."""
    from course_lib.models import export, gpt_onnx

    export._with_dynamo = getattr(export._with_dynamo, "asked_each_time", export._with_dynamo)
    gpt_onnx._exported = getattr(gpt_onnx._exported, "asked_each_time", gpt_onnx._exported)


def _once(export: Callable[..., Any]) -> Callable[..., Any]:
    import onnx

    def exported(module: Any, example: Any, *how: Any) -> Any:
        def make() -> Any:
            list_operators_once()
            return export(module, example, *how)

        content = digest(module)
        if content is None:
            return make()
        shapes = [(str(one.dtype), tuple(one.shape)) for one in example]
        key = unchanged.key("export", content, shapes, how, files=_sources(_modules(module) | {export.__module__}))
        return onnx.load_from_string(unchanged.made(key, lambda: make().SerializeToString()))

    exported.asked_each_time = export  # type: ignore[attr-defined]
    return exported


def _modules(network: Any) -> frozenset[str]:
    return frozenset(type(part).__module__ for part in network.modules())


@cache
def _sources(modules: frozenset[str]) -> frozenset[Path]:
    own = [name for name in modules if name.startswith("course_lib.")]
    return frozenset(unchanged.imported("import course_lib.models\n" + "".join(f"import {name}\n" for name in own)))


def digest(network: Any) -> str | None:
    """SHA-256 of a network's classes, weights and settings; None if it has something else in it."""
    import torch

    found = hashlib.sha256(str(torch.get_default_dtype()).encode())
    seen: dict[int, int] = {}  # which weights are the same
    for name, part in network.named_modules(remove_duplicate=False):
        kind = type(part)
        if not kind.__module__.startswith(("course_lib.", "torch.nn.modules.")):
            return None
        if getattr(sys.modules[kind.__module__], kind.__qualname__, None) is not kind:
            return None
        settings = {key: _plain(key, value) for key, value in vars(part).items() if key not in _BOOKKEEPING}
        if None in settings.values():
            return None
        found.update(repr((name, kind.__module__, kind.__qualname__, sorted(settings.items()))).encode())
        weights = [*part._parameters.items(), *part._buffers.items()]
        for key, weight in weights:
            if weight is None:
                found.update(repr((key, None)).encode())
                continue
            if type(weight) not in (torch.Tensor, torch.nn.Parameter) or weight.device.type != "cpu":
                return None
            number = seen.setdefault(id(weight), len(seen))
            found.update(repr((key, number, str(weight.dtype), tuple(weight.shape))).encode())
            found.update(weight.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _plain(key: str, value: Any) -> str | None:
    """A setting as a text that says all of it; None if there is none."""
    if key.endswith("_hooks"):  # kept by a number that counts all hooks of the process; the library's have no state
        value = [re.sub(" at 0x.*", "", repr(hook)) for hook in value.values()]
    text = repr(value)
    return None if re.search(r" at 0x|tensor\(|array\(", text) else text
