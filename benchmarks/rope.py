"""The RoPE kernel beside a device copy, torch.compile and an empty kernel: device times under CUDA graphs.

What counts as the copy is the faster of two: the driver's (``copy_``) and a kernel that reads and writes each number once (``neg``);
of large FP32 tensors the driver's reached two thirds of the kernel's bandwidth.

    python benchmarks/rope.py OUTPUT.json [--source ROPE.cu]

Needs torch with a GPU and nvcc. Inputs rotate, so that no cache holds the next one, and in every round the candidates run one after
the other; each ratio is the median over rounds with a 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

from benchmarks.graph_times import captured, times_us
from benchmarks.recording import about
from course_lib.benchmark.statistics import Interval, speedup
from course_lib.plugins import RopeLibrary, rope_tables
from course_lib.plugins.compilers import SOURCE, compile_with_nvcc

SHAPES = ((8, 4096, 32, 128), (1, 2048, 32, 128), (1, 1, 32, 128))
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
TRAFFIC = 400_000_000  # bytes that all inputs and outputs of a graph hold at least: eight times an H200's L2 cache
MOST_SETS = 64

Call = Callable[[torch.Tensor, torch.Tensor], Any]


@dataclass(frozen=True)
class Race:
    """Device times of one call in microseconds: an array of `graph_times.ROUNDS` for each candidate, round by round."""

    shape: tuple[int, ...]
    dtype: str
    times_us: Mapping[str, np.ndarray]

    @property
    def bytes_moved(self) -> int:
        """By one call: x read, y written; the tables are read once and stay in the cache."""
        return 2 * int(np.prod(self.shape)) * DTYPES[self.dtype].itemsize

    def speed_over(self, other: str) -> Interval:
        """How often ours fits into the time of another candidate: above one, ours is the faster one."""
        return speedup(self.times_us[other], self.times_us["ours"])

    @property
    def fastest_copy(self) -> str:
        return min(("copy", "negation"), key=lambda name: np.median(self.times_us[name]))

    def record(self) -> dict[str, Any]:
        median = {name: round(float(np.median(times)), 3) for name, times in self.times_us.items()}
        ratios = {other: self.speed_over(other) for other in (self.fastest_copy, "compiled", "eager")}
        return {
            "shape": self.shape,
            "dtype": self.dtype,
            "us": median,
            "terabytes_per_s": round(self.bytes_moved / median["ours"] / 1e6, 3),
            "speed_over": {
                other: {key: round(value, 4) for key, value in asdict(ratio).items()} for other, ratio in ratios.items()
            },
        }


def eager(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE with pairs half a head apart, computed in float32, as one writes it in PyTorch."""
    a, b = x.float().chunk(2, dim=-1)
    c, s = cos[: x.shape[1], None], sin[: x.shape[1], None]
    return torch.cat((a * c - b * s, b * c + a * s), dim=-1).to(x.dtype)


def race(launch: RopeLibrary, shape: tuple[int, ...], dtype: str) -> Race:
    """Measure the kernel, a copy, the compiled and the eager function, and an empty kernel."""
    kind = DTYPES[dtype]
    size = int(np.prod(shape)) * kind.itemsize
    sets = int(np.clip(-(-TRAFFIC // (2 * size)), 2, MOST_SETS))
    pairs = [(torch.randn(shape, device="cuda").to(kind), torch.empty(shape, device="cuda", dtype=kind)) for _ in range(sets)]
    cos, sin = (torch.from_numpy(table).cuda() for table in rope_tables(shape[1], shape[3]))
    torch._dynamo.reset()  # or the ninth shape and type would run uncompiled, with a warning
    compiled = torch.compile(eager, dynamic=False)

    def ours(x: torch.Tensor, y: torch.Tensor) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        launch(dtype, x.data_ptr(), cos.data_ptr(), sin.data_ptr(), y.data_ptr(), shape, stream=stream)

    calls: dict[str, Call] = {
        "ours": ours,
        "copy": lambda x, y: y.copy_(x),
        "negation": lambda x, y: torch.neg(x, out=y),
        "compiled": lambda x, y: compiled(x, cos, sin),
        "eager": lambda x, y: eager(x, cos, sin),
        "empty": lambda x, y: torch.cuda._sleep(0),
    }
    repeats = 10 if sets < 10 else 1
    graphs = {name: captured(call, pairs * repeats) for name, call in calls.items()}
    return Race(shape, dtype, times_us(graphs, repeats * sets))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--source", type=Path, default=SOURCE, help="another kernel with the interface of rope.h")
    arguments = parser.parse_args()
    launch = RopeLibrary(compile_with_nvcc(arguments.source))
    rows = []
    for shape in SHAPES:
        for dtype in DTYPES:
            rows.append(race(launch, shape, dtype).record())
            print(json.dumps(rows[-1]), flush=True)
    machine = about({"torch": torch.__version__, "cuda": str(torch.version.cuda)})
    arguments.output.write_text(json.dumps({**machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
