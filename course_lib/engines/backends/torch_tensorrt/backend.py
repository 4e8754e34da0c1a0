"""Torch-TensorRT as a backend of the course: `blocks.module_blocks` compiles PyTorch modules."""

from __future__ import annotations

from typing import ClassVar

from course_lib.engines.backend import Availability, Backend
from course_lib.engines.backends.tensorrt.backend import INSTALL, NO_GPU
from course_lib.engines.backends.torch_tensorrt import installation
from course_lib.engines.cuda import driver
from course_lib.engines.plan import Engine, Plan
from course_lib.errors import PlanError


class TorchTensorRT(Backend):
    """Says whether its modules compile and run here; they are called as any module of PyTorch is."""

    name: ClassVar[str] = "torch_tensorrt"
    distributions: ClassVar[tuple[str, ...]] = ("torch-tensorrt",)

    def availability(self) -> Availability:
        """See `Backend.availability`. "Runs here" refers to compiled modules, which need a GPU."""
        found = self.version() or installation.installed_release()
        if not found:
            return self.absent("not installed", installation.INSTALL, INSTALL)
        no_build = "it compiles PyTorch modules, not ONNX files: course layers package.module:factory"
        return Availability(self.name, found, no_build, "" if driver.capability() else NO_GPU, modules=True)

    def load(self, plan: Plan, *, weight_budget_bytes: int | None = None) -> Engine:
        """Reject: a plan cannot be Torch-TensorRT's.

        Raises:
            PlanError: always.
        """
        raise PlanError("torch_tensorrt does not build plans: load its files with torch_tensorrt.load")
