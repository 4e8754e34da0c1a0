"""Keywords of Polygraphy's `CreateConfig` and `CreateNetwork` that ask for what TensorRT no longer has."""

from __future__ import annotations

import ast

from course_lib.migration.analysis.guards import version_number
from course_lib.migration.analysis.uses import Use
from course_lib.migration.findings import Verdict
from course_lib.migration.tables.known import RTX

_TYPED = "cast the ONNX model and build without it: types live in the graph"
# keyword: since, what to use, lecture. Source: Polygraphy 0.53, which ends the program where TensorRT lacks the flag.
_GONE = {
    **dict.fromkeys(("fp16", "bf16", "fp8"), ("11.0", _TYPED, 5)),
    **dict.fromkeys(("int8", "calibrator"), ("11.0", "quantize the ONNX model: INT8 comes from Q/DQ nodes", 6)),
    **dict.fromkeys(("precision_constraints", "obey_precision_constraints", "strict_types"), ("11.0", _TYPED, 5)),
    "algorithm_selector": ("11.0", "load_timing_cache=, with an editable timing cache", 4),
    "max_workspace_size": ("10.0", "memory_pool_limits={trt.MemoryPoolType.WORKSPACE: size}", 2),
    "explicit_batch": ("11.0", "leave it out: the batch is always explicit", 2),
    "explicit_precision": ("10.0", "leave it out: Q/DQ nodes give the precision", 6),
}


def judge(use: Use, target: str) -> list[Verdict]:
    """The verdicts on a call of one of the two; a keyword with the value False or None does not count."""
    given = use.node.keywords if isinstance(use.node, ast.Call) else []
    asked = [one.arg for one in given if one.arg in _GONE and not (isinstance(one.value, ast.Constant) and not one.value.value)]
    rules = [(name, *_GONE[name]) for name in asked if name]
    return [
        Verdict(f"{use.name.rpartition('.')[2]}({name}=)", "removed", since, advice, lecture)
        for name, since, advice, lecture in rules
        if target == RTX or version_number(target) >= version_number(since)
    ]
