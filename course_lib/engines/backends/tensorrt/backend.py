"""TensorRT as a backend of the course: 8.6, 10 and 11, on a machine with an NVIDIA GPU."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from course_lib.engines.backend import Availability, Backend
from course_lib.engines.cuda import driver
from course_lib.engines.plan import Engine, Plan
from course_lib.engines.progress import Report

NO_GPU = "no NVIDIA GPU and driver answer on this machine"
INSTALL = "pip install 'tensorrt-course[gpu]'  # on a machine with an NVIDIA GPU"


class TensorRT(Backend):
    """The backend's name is also that of the module to import, for TensorRT for RTX too."""

    name: ClassVar[str] = "tensorrt"
    distributions: ClassVar[tuple[str, ...]] = ("tensorrt",)
    builder_rank: ClassVar[int | None] = 0
    runner_rank: ClassVar[int | None] = 0
    builds_lowered_models: ClassVar[bool] = False
    streams_weights: ClassVar[bool] = True

    def availability(self) -> Availability:
        """See `Backend.availability`. It builds and runs where an NVIDIA GPU answers."""
        found = self.version()
        if not found:
            return self.absent("not installed", INSTALL)
        reason = "" if driver.capability() else NO_GPU
        return Availability(self.name, found, reason, reason)

    def compile(
        self, model: Path, recipe: Mapping[str, Any], operators: Mapping[str, str], report: Report | None = None
    ) -> Plan:
        """See `Backend.compile`; `builder.compile_plan` says what is rejected."""
        from course_lib.engines.backends.tensorrt import builder

        return builder.compile_plan(importlib.import_module(self.name), self.name, model, recipe, operators, report)

    def load(self, plan: Plan, *, weight_budget_bytes: int | None = None) -> Engine:
        """See `Backend.load`. Weights beyond the budget are streamed from the host in every run."""
        from course_lib.engines.backends.tensorrt.runtime import TensorRTEngine

        return TensorRTEngine(importlib.import_module(self.name), plan, weight_budget_bytes=weight_budget_bytes)

    def newest_opset(self, version: str) -> int | None:
        """17 for TensorRT 8; the later ones read what PyTorch exports."""
        return 17 if version.startswith("8.") else None

    def build_settings(self) -> dict[str, str]:
        """The libraries that tactics may come from, as `config` reads them."""
        return {"tactic_sources": os.environ.get("COURSE_TACTIC_SOURCES", "")}
