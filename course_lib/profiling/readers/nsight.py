"""Command lines of NVIDIA's profilers, as lists for `subprocess.run`: Nsight Systems (when), Nsight Compute (why).

Profile a program that loads a finished engine, never the build, which times thousands of kernels that the engine will not contain.
Source: user guides of Nsight Systems and Nsight Compute, "CLI options".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

# What `read_ncu` shows. Every GPU since Volta has these.
METRICS = (
    "gpu__time_duration.sum",
    "dram__bytes.sum",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
)
FLOP_METRICS = (
    *(f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "fmul", "ffma", "hadd", "hmul", "hfma")),
    *(f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("dadd", "dmul", "dfma")),
)
_NVTX_SYNTAX = frozenset('@,[]/*+\\"')  # characters with a meaning of their own in --nvtx-include


def nsys_profile(
    command: Sequence[str | Path],
    *,
    output: str | Path,
    trace: Sequence[str] = ("cuda", "nvtx", "osrt"),
) -> list[str]:
    """``nsys profile``: when each kernel, copy and call ran between ``cudaProfilerStart`` and ``Stop`` (`torch.cuda.profiler`).

    Each kernel of a CUDA graph is shown. By default, nsys shows one bar per graph, which costs less and hides the kernels.

    Args:
        command: the program and its arguments.
        output: the report, without ``.nsys-rep``.
        trace: what is recorded: CUDA calls and device work, the ranges that name them, and the operating system's calls, which
            show what the host did in a gap. ``nsys profile --help`` lists the others.

    Raises:
        ValueError: an empty command.
    """
    line = ["nsys", "profile", f"--trace={','.join(trace)}", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node"]
    return [*line, "--capture-range=cudaProfilerApi", "--capture-range-end=stop", f"--output={output}", *_program(command)]


def nsys_export(report: str | Path) -> list[str]:
    """``nsys export``: write a report, a ``.nsys-rep``, as an SQLite file next to it, which `read_nsys` reads."""
    return ["nsys", "export", "--type=sqlite", f"--output={Path(report).with_suffix('.sqlite')}", str(report)]


def nsys_stats(report: str | Path) -> list[str]:
    """``nsys stats``: tables of a ``.nsys-rep`` or its ``.sqlite`` as CSV on standard output.

    They have the time by kernel, by direction of copies, by CUDA call and by NVTX range; ``nsys stats --help-reports`` lists others.
    """
    reports = ("cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_api_sum", "nvtx_sum")
    return ["nsys", "stats", *(f"--report={name}" for name in reports), "--format=csv", "--output=-", str(report)]


def ncu_profile(
    command: Sequence[str | Path],
    *,
    output: str | Path | None = None,
    csv: str | Path | None = None,
    metrics: Sequence[str] = (*METRICS, *FLOP_METRICS),
    within: str = "",
    skip: int = 0,
    count: int = 10,
    base_clock: bool = True,
) -> list[str]:
    """``ncu``: the reasons for each kernel's time. It runs every kernel several times, so the program's own timings are invalid.

    Args:
        command: the program and its arguments.
        output: a report for the graphical program, without ``.ncu-rep``; an existing one is replaced.
        csv: a file of one row per kernel, which `read_ncu` reads.
        metrics: counters to read; the default is those of `read_ncu`.
        within: only kernels within the NVTX push/pop range of this name, as `nvtx_range` makes them.
        skip: number of matching launches to skip first, such as those of the warm-up.
        count: number of launches to profile after that. A few are sufficient, because each needs tens of passes.
        base_clock: hold the GPU at its base clock, so that runs are comparable (ncu's default). False leaves it free, as in service.

    Raises:
        ValueError: no metrics, both or neither of output and csv, or a number below its minimum.
    """
    if not metrics:
        raise ValueError("nothing to measure: name metrics")
    if (output is None) == (csv is None):
        raise ValueError("give either `output` (a report) or `csv` (a table): ncu writes one of them in a run")
    if skip < 0 or count < 1:
        raise ValueError(f"skip at least 0 and profile at least 1 launch, not skip {skip} and count {count}")
    line = ["ncu", "--target-processes=all", f"--clock-control={'base' if base_clock else 'none'}"]
    line.append(f"--metrics={','.join(metrics)}")
    line += ["--nvtx", f"--nvtx-include={_range_name(within)}/"] if within else []
    line += [f"--launch-skip={skip}"] if skip else []
    line.append(f"--launch-count={count}")
    if csv is not None:
        line += ["--csv", "--page=raw", "--print-units=base", f"--log-file={csv}"]
    else:
        line += [f"--export={output}", "--force-overwrite"]
    return line + _program(command)


def _program(command: Sequence[str | Path]) -> list[str]:
    if isinstance(command, str) or not command:
        raise ValueError(f"the command is a list such as ['python', 'infer.py'], not {command!r}")
    return [str(part) for part in command]


def _range_name(name: str) -> str:
    special = sorted(_NVTX_SYNTAX & set(name))
    if special:
        raise ValueError(f"the range {name!r} has {' '.join(special)}, which the profilers read as syntax: name it without")
    return name
