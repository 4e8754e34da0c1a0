"""One more byte of text from the small GPT on a CPU: recomputed, with a cache in three forms, and with PyTorch eager.

    python benchmarks/decoder.py --output FILE.json

All are FP32 at batch 1 with 200 bytes before the new one, one thread, timed in turn. Each form is also built in FP16 by TensorRT for RTX,
which runs nothing here: its kernels are counted.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # read when onnxruntime and torch are imported
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from benchmarks.recording import Row, about, save
from course_lib import engines
from course_lib.benchmark import compare
from course_lib.models import CachedSession, decoder, export_cached, export_onnx
from course_lib.models.gpt_onnx import CacheForm
from course_lib.recipe import Profile, Recipe

POSITION = 200
LENGTHS = (256, 512)  # of the cache
RECOMPUTED, EAGER = "recomputed", "PyTorch eager, the same cache"
TOKEN = np.array([[65]])


@dataclass(frozen=True)
class Step:
    """For `course_lib.benchmark.compare`, whose feeds are not used.

    Attributes:
        run: makes one byte.
        calls: that are timed as one, because a step takes a fraction of a millisecond.
    """

    run: Callable[[], Any]
    calls: int = 20

    def time_ms(self, feeds: Mapping[str, np.ndarray]) -> float:
        started = time.perf_counter()
        for _ in range(self.calls):
            self.run()
        return (time.perf_counter() - started) * 1e3 / self.calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    versions = {one.name: one.version for one in engines.available_backends() if one.version}
    rows = [row for length in LENGTHS for row in timed(length, options.rounds)]
    rows += [built("tensor_scatter"), built("scatter_nd")]
    save(options.output, {**about(versions), "command": "python benchmarks/decoder.py"}, rows, position=POSITION)


def timed(length: int, rounds: int) -> list[Row]:
    """Milliseconds of a byte, and how many times as fast as recomputing and as eager."""
    subjects = steps(length)
    found = compare(subjects, dict, baseline=RECOMPUTED, min_rounds=rounds, time_limit_s=2 * rounds)
    rows = []
    for name, measured in found.measurements.items():
        over = {other: asdict(found.ratio(other, name)) for other in (RECOMPUTED, EAGER) if other != name}
        rows.append(
            {"way": name, "cache": length, "ms": measured.median_ms, "rounds": len(measured.latencies_ms), "over": over}
        )
        print(length, name, f"{measured.median_ms:.3f} ms", over, flush=True)
    return rows


def steps(length: int) -> dict[str, Step]:
    """Every way to the same byte."""
    import onnxruntime
    import torch

    torch.set_num_threads(1)
    model, text = decoder(), np.random.default_rng(0).integers(32, 127, (1, POSITION + 1))
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1

    def session(exported: Any) -> Any:
        return onnxruntime.InferenceSession(exported.SerializeToString(), settings, providers=["CPUExecutionProvider"])

    def cached(form: CacheForm, in_place: bool) -> Step:
        generator = CachedSession(export_cached(model, form, length=length), in_place=in_place)
        generator.step(text[:, :POSITION])

        def run() -> None:
            generator.position[:] = POSITION
            generator.step(TOKEN)

        return Step(run)

    whole, growing = session(export_onnx(model)), session(export_cached(model, "concat", length=length))
    past = {value.name: np.zeros((1, 2, POSITION, 32), np.float32) for value in growing.get_inputs()[2:]}
    cache, token, position = model.empty_cache(length), torch.from_numpy(TOKEN), torch.tensor([POSITION])

    def eager() -> None:
        with torch.inference_mode():
            model.step(token, position, cache)

    return {
        RECOMPUTED: Step(lambda: whole.run(None, {"tokens": text}), calls=1),
        "TensorScatter, in place": cached("tensor_scatter", True),
        "TensorScatter, copied": cached("tensor_scatter", False),
        "ScatterND, as exported": cached("scatter_nd", True),
        "Concat": Step(lambda: growing.run(None, {"tokens": TOKEN, "position": np.array([POSITION]), **past})),
        EAGER: Step(eager, calls=10),
    }


def built(form: CacheForm) -> Row:
    """Kernels of a plan for prompts, of one for single bytes, and of both in one."""
    prompt, single = (
        Profile(tokens={"min": (1, 1), "opt": (1, opt), "max": (1, most)}) for opt, most in ((128, LENGTHS[0]), (1, 1))
    )
    model = export_cached(decoder(), form, dtype="fp16", length=LENGTHS[0])
    kernels = {}
    for name, profiles in {"prefill": [prompt], "decode": [single], "both": [prompt, single]}.items():
        plan = engines.build(model, Recipe(precision="fp16", targets=["sm89"], profiles=profiles), backend="tensorrt_rtx")
        kernels[name] = len(plan.layers.kernels)
    return {"form": form, "target": "sm89", "kernels": kernels}


if __name__ == "__main__":
    main()
