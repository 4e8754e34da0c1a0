"""Loads plans with one lean runtime, in its own process: `lean_runtime.py LIBRARY FOLDER reject|run [PLAN]`."""

# ruff: noqa: E402

from __future__ import annotations

import json
import os
import sys

library, folder, task, *rest = sys.argv[1:]
sys.path[:0] = [library, folder]
import tensorrt_lean_bindings as lean

from course_lib.engines.backends.tensorrt.runtime import TensorRTEngine
from course_lib.engines.cuda.driver import capability
from course_lib.engines.layers import LayerTable
from course_lib.engines.plan import Plan
from course_lib.errors import CourseError


def plan(data: bytes, **recipe: object) -> Plan:
    return Plan("tensorrt", lean.__version__, data, "", dict(recipe), (capability() or "",), LayerTable(), 0.0)


def reject() -> dict[str, str]:
    rtx = b"ftrt" + bytes(4) + b"A plan of another compiler" * 2000
    candidates = {"empty": b"", "garbage": os.urandom(1 << 20), "short": b"ftrt", "another compiler's": rtx}
    if rest:
        whole = Plan.load(rest[0])
        candidates["version-compatible plan of 8"] = whole.data
        candidates["truncated"] = whole.data[: len(whole.data) // 2]
        flipped = bytearray(whole.data)
        flipped[40:60] = bytes(20)
        candidates["header overwritten"] = bytes(flipped)
    said = {}
    for name, data in candidates.items():
        try:
            TensorRTEngine(lean, plan(data, flags=["version_compatible"]))
        except CourseError as error:
            said[name] = str(error)
        else:
            if name != "version-compatible plan of 8":
                said[name] = "was loaded"
    return said


def run() -> dict[str, object]:
    import numpy as np
    import torch

    from course_lib.models import classifier, fresh_digits

    loaded = Plan.load(rest[0])
    engine = TensorRTEngine(lean, loaded)
    model = classifier("small").eval().cuda()
    errors, side = {}, torch.cuda.Stream()
    for kind, execution in (("plain", engine.execution()), ("graph", engine.execution(graph=True))):
        for batch in (1, 3, 32):
            images = torch.from_numpy(fresh_digits(batch, seed=batch).images).cuda()
            with torch.inference_mode(), torch.cuda.stream(side):
                side.wait_stream(torch.cuda.default_stream())
                want = model(images)
                for _ in range(3):
                    have = execution.run_tensors({"image": images})["logits"]
                error = (have - want).abs().max() / want.abs().max()
            side.synchronize()
            errors[f"{kind} {batch}"] = float(error)
            have_numpy = engine.infer({"image": images.cpu().numpy()})["logits"]
            errors[f"numpy {kind} {batch}"] = float(np.abs(have_numpy - want.cpu().numpy()).max() / want.abs().max().item())

    # The caller's stream: work that fills it for a while, then the input is made on it, then the engine reads the input.
    execution, images = engine.execution(), torch.zeros(8, 1, 32, 32, device="cuda")
    real = torch.from_numpy(fresh_digits(8, seed=5).images).cuda()
    big = torch.randn(8192, 8192, device="cuda")
    torch.cuda.synchronize()
    with torch.inference_mode(), torch.cuda.stream(side):
        for _ in range(10):
            big = big @ big / 8192
        images.copy_(real)
        logits = execution.run_tensors({"image": images})["logits"]
        returned_early = not side.query()
    side.synchronize()
    with torch.inference_mode():
        want = model(real)
    right = float((logits - want).abs().max() / want.abs().max())
    return {
        "version": lean.__version__,
        "errors": errors,
        "ran_on_the_callers_stream": returned_early and right < 5e-3,
    }


print(json.dumps({"reject": reject, "run": run}[task]()))
sys.stdout.flush()
os._exit(0)
