"""The course's own functions on the installed Torch-TensorRT."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from benchmarks.sections.observing import Rows, observed
from benchmarks.torch_trt_parts.networks import Island, lecture_classifier, made, pictures, relative_error

RANGE = {"image": {"min": (1, 1, 32, 32), "opt": (8, 1, 32, 32), "max": (32, 1, 32, 32)}}


def course(rows: Rows, folder: Path) -> None:
    """Availability; `compile_module` in two precisions; what it rejects; saving and loading."""
    from course_lib.engines.backends.torch_tensorrt.engine import compile_module, load_module, save_module
    from course_lib.engines.registry import availability

    here = observed(availability, "torch_tensorrt")
    rows.add("availability", **here.facts(), says=str(here.value))
    model, x = lecture_classifier(), pictures(8)
    want = model(x)
    kept: Any = None
    for case, module, given, precision, shapes in (
        ("fp32, batch 1 to 32", model, x, "fp32", RANGE),
        ("fp32, batch 8", model, x, "fp32", {"image": (8, 1, 32, 32)}),
        ("fp16, batch 1 to 32", lecture_classifier().half(), x.half(), "fp16", RANGE),
    ):
        seen = observed(compile_module, module, shapes, precision=precision, optimization_level=0)
        facts: dict[str, Any] = seen.facts()
        if seen.value is not None:
            answer = observed(seen.value, given)
            facts.update(call_failed=answer.failed, returns=type(answer.value).__name__)
            if answer.value is not None:
                facts.update(relative_error=relative_error(answer.value, want), output_type=str(answer.value.dtype))
            kept = kept or seen.value
        rows.add(f"compile_module, {case}", **facts)
    island, shape = made(Island), {"x": (4, 3, 16, 16)}
    for case, module, shapes, options in (
        ("an operator without a converter", island, shape, {}),
        ("the same, require_full_compilation=False", island, shape, {"require_full_compilation": False}),
        ("float32 module, precision fp16", model, RANGE, {"precision": "fp16"}),
        ("min_blok_size", model, RANGE, {"min_blok_size": 1}),
        ("calibrator", model, RANGE, {"calibrator": "mine"}),
        ("torch_executed_modules", model, RANGE, {"torch_executed_modules": ["head"]}),
        ("torch_executed_ops aten::relu", model, RANGE, {"torch_executed_ops": {"aten::relu"}}),
        ("enabled_precisions", model, RANGE, {"enabled_precisions": {torch.half}}),
        ("dryrun", model, RANGE, {"dryrun": True}),
        ("cache_built_engines", model, RANGE, {"cache_built_engines": True}),
    ):
        settings: dict[str, Any] = {"optimization_level": 0, **options}
        seen = observed(compile_module, module, shapes, **settings)
        rows.add(f"compile_module, {case}", **seen.facts(), type=type(seen.value).__name__)
    if kept is not None:
        rows.add("save_module", **observed(save_module, kept, folder / "course.pt").facts())
    rows.add("load_module, no such file", **observed(load_module, folder / "absent.pt").facts())
