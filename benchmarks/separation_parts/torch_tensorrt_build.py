"""A module of PyTorch to a plan through Torch-TensorRT 2.2, in the interpreter that has it: REQUEST.json as for `headline/trt_build.py`.

The request also has ``network``, ``shape`` (of an image), ``batch`` and ``precision``. The engine is taken out of the compiled module, so
that it is timed as any other plan.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from course_lib.engines.layers import LayerTable
from course_lib.engines.plan import Plan


def main() -> None:
    try:
        found = build(json.loads(Path(sys.argv[1]).read_text()))
    except Exception as error:
        found = {"failed": " ".join(f"{type(error).__name__}: {error}".split())[:400]}
    print(json.dumps(found), flush=True)
    os._exit(0)


def build(request: dict[str, Any]) -> dict[str, Any]:
    import torch  # before TensorRT, whose libraries it shares
    import torch_tensorrt

    from benchmarks import yardsticks

    dtype = torch.float16 if request["precision"] == "fp16" else torch.float32
    model = yardsticks.make(request["network"]).eval().cuda().to(dtype)
    x = torch.zeros(request["batch"], *request["shape"], dtype=dtype, device="cuda")
    started = time.perf_counter()
    with torch.no_grad():
        module = torch_tensorrt.compile(
            model, ir="dynamo", inputs=[x], enabled_precisions={dtype}, output_format="fx", use_python_runtime=True
        )
    seconds = time.perf_counter() - started
    engines = [child.engine for child in module.children() if hasattr(child, "engine")]
    if len(engines) != 1:
        raise RuntimeError(f"one segment expected, found {len(engines)}")
    data = bytes(engines[0].serialize())
    import tensorrt

    Plan("tensorrt", tensorrt.__version__, data, "", request["recipe"], ("sm90",), LayerTable((), {}), seconds).save(
        request["plan"]
    )
    return {"build_s": round(seconds, 1), "plan_mb": round(len(data) / 1e6, 1), "kernels": engines[0].num_layers}


if __name__ == "__main__":
    main()
