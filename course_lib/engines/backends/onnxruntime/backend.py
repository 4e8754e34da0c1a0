"""ONNX Runtime as a backend of the course: its plan is the model itself, which the session optimizes when it loads."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from course_lib.engines.backend import Backend
from course_lib.engines.cuda import driver
from course_lib.engines.layers import LayerTable
from course_lib.engines.plan import Engine, Plan
from course_lib.engines.progress import Report


class OnnxRuntime(Backend):
    """Runs the same ONNX on any machine: on the GPU with onnxruntime-gpu and a GPU, otherwise on the CPU."""

    name: ClassVar[str] = "onnxruntime"
    distributions: ClassVar[tuple[str, ...]] = ("onnxruntime", "onnxruntime-gpu")
    install: ClassVar[str] = "pip install onnxruntime"
    runner_rank: ClassVar[int | None] = 2

    def compile(
        self, model: Path, recipe: Mapping[str, Any], operators: Mapping[str, str], report: Report | None = None
    ) -> Plan:
        """Check that ONNX Runtime accepts the model and keep it with its recipe.

        Raises:
            BuildError: it rejects the model; the message has one line and names the node.
            BackendUnavailable: there is a GPU, but the CUDA provider does not load.
        """
        import onnxruntime

        from course_lib.engines.backends.onnxruntime import session
        from course_lib.engines.onnx_file import self_contained

        data = self_contained(model)
        started = time.perf_counter()
        where, here = session.device(), driver.capability()
        session.open_session(data, where)
        advice = f"it runs on the CPU although a GPU ({here}) is here: replace the package onnxruntime with onnxruntime-gpu"
        return Plan(
            backend=self.name,
            version=onnxruntime.__version__,
            data=data,
            onnx_sha256=hashlib.sha256(model.read_bytes()).hexdigest(),
            recipe=dict(recipe),
            targets=(),
            layers=LayerTable((), operators),
            build_seconds=time.perf_counter() - started,
            notes=(
                "ONNX Runtime runs the graph as it is. It does not prove precision and profiles; a TensorRT build does",
                *([advice] if where == "cpu" and here else []),
            ),
        )

    def load(self, plan: Plan, *, weight_budget_bytes: int | None = None) -> Engine:
        """See `Backend.load`."""
        from course_lib.engines.backends.onnxruntime.engine import OnnxRuntimeEngine

        return OnnxRuntimeEngine(plan)

    def on_cpu(self) -> bool:
        """See `Backend.on_cpu`."""
        from course_lib.engines.backends.onnxruntime import session

        return session.device() == "cpu"

    def wants_lowered_int8(self) -> bool:
        """True on the CPU, where Q/DQ pairs that are not lowered run with float arithmetic in between."""
        return self.on_cpu()
