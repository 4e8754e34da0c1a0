"""Compiled modules in files, each loaded in a fresh process with and without Torch-TensorRT imported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from benchmarks.sections.observing import Rows, Seen, observed
from benchmarks.torch_trt_parts.compiling import quickly
from benchmarks.torch_trt_parts.networks import lecture_classifier, pictures

LOADER = """
import json, sys, time
import torch
file, inputs, way, imported = sys.argv[1:]
started = time.perf_counter()
if imported == "True":
    import torch_tensorrt
found = {"import_s": round(time.perf_counter() - started, 2)}
try:
    kept = torch.load(inputs)
    x, want = (kept[name].to(kept["device"]) for name in ("x", "want"))
    started = time.perf_counter()
    module = {"torch.jit.load": torch.jit.load, "torch.export.load": torch.export.load, "torch.load": torch.load}[way](file)
    found["load_s"] = round(time.perf_counter() - started, 3)
    with torch.no_grad():
        answer = module(x)
    answer = answer[0] if isinstance(answer, (tuple, list)) else answer
    found["relative_error"] = float((answer - want).norm() / want.norm())
except Exception as error:
    found["failed"] = f"{type(error).__name__}: {' '.join(str(error).split())}"[-1500:]
print(json.dumps(found))
"""


def saving(rows: Rows, folder: Path) -> None:
    """Save in each way, then load in fresh processes."""
    model, x = lecture_classifier(), pictures(8)
    inputs = folder / "inputs.pt"
    torch.save({"x": x.cpu(), "want": model(x).cpu(), "device": x.device.type}, inputs)
    jobs: list[tuple[str, Path, str]] = []
    for case, options, save, file, way in (
        ("torchscript, torch.jit.save", {"output_format": "torchscript"}, torch.jit.save, "module.ts", "torch.jit.load"),
        (
            "exported program, torch.export.save",
            {"output_format": "exported_program"},
            torch.export.save,
            "module.ep",
            "torch.export.load",
        ),
        ("fx, torch.save", {}, torch.save, "module.pt", "torch.load"),
        ("fx, torch.jit.save", {}, torch.jit.save, "module_fx.ts", "torch.jit.load"),
        ("Python runtime, torch.save", {"use_python_runtime": True}, torch.save, "python.pt", "torch.load"),
    ):
        facts, path = _saved(observed(quickly, model, [x], **options), save, folder / file)
        rows.add(f"save: {case}", **facts)
        if facts["failed"] is None:
            jobs.append((case, path, way))
    with ThreadPoolExecutor(3) as pool:
        started = [
            (case, imported, pool.submit(_loaded, path, inputs, way, imported))
            for case, path, way in jobs
            for imported in (True, False)
        ]
        for case, imported, found in started:
            rows.add(f"load: {case}; torch_tensorrt {'imported' if imported else 'not imported'}", **found.result())


def _saved(built: Seen, save: Callable[..., Any], path: Path) -> tuple[dict[str, Any], Path]:
    if built.value is None:
        return built.facts(), path
    seen = observed(save, built.value, str(path))
    return {**seen.facts(), "bytes": path.stat().st_size if path.exists() else None}, path


def _loaded(path: Path, inputs: Path, way: str, imported: bool) -> dict[str, Any]:
    command = [sys.executable, "-c", LOADER, str(path), str(inputs), way, str(imported)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (subprocess.TimeoutExpired, IndexError, ValueError) as error:
        return {"failed": f"the process said nothing: {type(error).__name__}"}
    return found
