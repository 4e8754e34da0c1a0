"""Why `torch.export` refuses a module, in a few lines."""

from __future__ import annotations

import contextlib
import io
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

_LOGS = ("torch.fx.experimental.symbolic_shapes", "torch._export", "torch.export")


def export_refusal(module: torch.nn.Module, *inputs: torch.Tensor, dynamic_shapes: Any = None, lines: int = 2) -> str:
    """What `torch.export` says about a module that it cannot export, the kind of error first; empty where it exports.

    PyTorch also prints the graph up to the place, and logs it: that is kept from the screen here.

    Args:
        inputs: examples for ``forward``.
        dynamic_shapes: as `torch.export.export` takes it.
        lines: how many lines of the message.
    """
    import torch

    loggers = [logging.getLogger(name) for name in _LOGS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with contextlib.redirect_stderr(io.StringIO()):
            torch.export.export(module, inputs, dynamic_shapes=dynamic_shapes)
    except Exception as error:  # classes of several parts of PyTorch, without a common public base
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        return "\n".join([type(error).__name__, *said[:lines]])
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
    return ""
