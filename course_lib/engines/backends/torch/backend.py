"""PyTorch as a backend of the course. It runs modules and does not build plans."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from course_lib.engines.backend import Availability, Backend
from course_lib.engines.plan import Engine, ModelSource


class Torch(Backend):
    """PyTorch as the baseline. It makes engines from a `ModelSource`, not from a plan."""

    name: ClassVar[str] = "torch"
    distributions: ClassVar[tuple[str, ...]] = ("torch",)
    install: ClassVar[str] = "pip install torch==2.13.0"

    def availability(self) -> Availability:
        """See `Backend.availability`."""
        found = super().availability()
        return replace(found, no_build=found.no_build or "the baseline is not built: it runs the module as it is")

    def load_module(self, source: ModelSource) -> Engine:
        """See `Backend.load_module`; `TorchEngine` says what the variants are."""
        from course_lib.engines.backends.torch.engine import TorchEngine

        return TorchEngine(source)
