"""Command lines of NVIDIA's profilers, as lists for `subprocess.run`: Nsight Systems (when), Nsight Compute (why).

Profile a program that loads a finished engine, never the build, which times thousands of kernels that the engine will not contain.
Source: user guides of Nsight Systems and Nsight Compute, "CLI options".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

TRACES = ("cuda", "cuda-hw", "nvtx", "osrt", "cublas", "cudnn", "cusparse", "mpi", "nvvideo", "opengl", "openacc", "openmp",
          "python-gil", "syscall", "ucx", "vulkan")  # fmt: skip
SECTION_SETS = ("basic", "detailed", "full", "roofline", "source")
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
# Operations on tensor cores, one metric a type of input. Not every GPU has every one, and ncu rejects those it does not know:
# `ncu --query-metrics` lists them.
TENSOR_METRICS = tuple(
    f"sm__ops_path_tensor_src_{types}.sum"
    for types in ("bf16_dst_fp32", "fp16", "fp16_dst_fp16", "fp16_dst_fp32", "fp8", "int8", "tf32_dst_fp32")
)
_NVTX_SYNTAX = frozenset('@,[]/*+\\"')  # characters with a meaning of their own in --nvtx-include and --nvtx-capture


def nsys_profile(
    command: Sequence[str | Path],
    *,
    output: str | Path,
    trace: Sequence[str] = ("cuda", "nvtx", "osrt"),
    graph_nodes: bool = True,
    capture: str = "cudaProfilerApi",
    overwrite: bool = False,
) -> list[str]:
    """``nsys profile``: when each kernel, copy and call ran.

    Args:
        command: the program and its arguments.
        output: the report, without ``.nsys-rep``.
        trace: what is recorded, of `TRACES`: CUDA calls and device work, the ranges that name them, and the operating system's
            calls, which show what the host did in a gap.
        graph_nodes: show each kernel of a CUDA graph. By default, nsys shows one bar per graph, which costs less and hides the kernels.
        capture: when to record. ``"cudaProfilerApi"``: between ``cudaProfilerStart`` and ``Stop`` (`torch.cuda.profiler`), so
            that loading and warm-up stay out; ``"all"``: from start to end; any other text: the first NVTX range of that name.
        overwrite: replace a report that exists; without it nsys stops.

    Raises:
        ValueError: an option that nsys does not have, an empty command, or a range name with characters of nsys's syntax.
    """
    unknown = [name for name in trace if name not in TRACES]
    if unknown or not trace:
        raise ValueError(f"cannot trace {', '.join(unknown) or 'nothing'}: choose from {', '.join(TRACES)}")
    line = ["nsys", "profile", f"--trace={','.join(trace)}", "--sample=none", "--cpuctxsw=none"]
    line.append(f"--cuda-graph-trace={'node' if graph_nodes else 'graph'}")
    if capture == "cudaProfilerApi":
        line += ["--capture-range=cudaProfilerApi", "--capture-range-end=stop"]
    elif capture != "all":
        # ranges of PyTorch have no registered strings, and nsys waits for those only unless it is told
        line += ["--capture-range=nvtx", f"--nvtx-capture={_range_name(capture)}@*", "--capture-range-end=stop"]
        line.append("--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0")
    line += [f"--output={output}", f"--force-overwrite={'true' if overwrite else 'false'}"]
    return line + _program(command)


def nsys_export(report: str | Path, *, overwrite: bool = False) -> list[str]:
    """``nsys export``: write a report as an SQLite file next to it, which `read_nsys` reads.

    Args:
        report: a ``.nsys-rep`` file.
        overwrite: replace an export that exists; without it nsys stops.
    """
    target = Path(report).with_suffix(".sqlite")
    force = "true" if overwrite else "false"
    return ["nsys", "export", "--type=sqlite", f"--output={target}", f"--force-overwrite={force}", str(report)]


def nsys_stats(
    report: str | Path, *, reports: Sequence[str] = ("cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_api_sum", "nvtx_sum")
) -> list[str]:
    """``nsys stats``: tables as CSV on standard output.

    Args:
        report: a ``.nsys-rep`` or its ``.sqlite``.
        reports: the tables to print: time by kernel, by direction of copies, by CUDA call and by NVTX range; ``nsys stats
            --help-reports`` lists all.

    Raises:
        ValueError: no table is requested, or a name is empty or has a comma.
    """
    if not reports or any(not name or "," in name for name in reports):
        raise ValueError(f"name at least one table, one text each, such as 'cuda_gpu_kern_sum', not {list(reports)}")
    return ["nsys", "stats", *(f"--report={name}" for name in reports), "--format=csv", "--output=-", str(report)]


def ncu_profile(
    command: Sequence[str | Path],
    *,
    output: str | Path | None = None,
    csv: str | Path | None = None,
    section_set: str | None = None,
    metrics: Sequence[str] = (*METRICS, *FLOP_METRICS),
    kernel: str = "",
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
        section_set: a set of `SECTION_SETS` in addition to the metrics; ``"full"`` for the graphical program.
        metrics: counters to read; the default is those of `read_ncu`.
        kernel: only kernels whose name matches this regular expression.
        within: only kernels within the NVTX push/pop range of this name, as `nvtx_range` makes them.
        skip: number of matching launches to skip first, such as those of the warm-up.
        count: number of launches to profile after that. A few are sufficient, because each needs tens of passes.
        base_clock: hold the GPU at its base clock, so that runs are comparable (ncu's default). False leaves it free, as in service.

    Raises:
        ValueError: an unknown set, neither metrics nor set, both or neither of output and csv, or a number below its minimum.
    """
    if section_set is not None and section_set not in SECTION_SETS:
        raise ValueError(f"there is no section set {section_set!r}: choose from {', '.join(SECTION_SETS)}")
    if section_set is None and not metrics:
        raise ValueError("nothing to measure: name metrics or a section set")
    if (output is None) == (csv is None):
        raise ValueError("give either `output` (a report) or `csv` (a table): ncu writes one of them in a run")
    if skip < 0 or count < 1:
        raise ValueError(f"skip at least 0 and profile at least 1 launch, not skip {skip} and count {count}")
    line = ["ncu", "--target-processes=all", f"--clock-control={'base' if base_clock else 'none'}"]
    line += [f"--set={section_set}"] if section_set else []
    line += [f"--metrics={','.join(metrics)}"] if metrics else []
    line += [f"--kernel-name=regex:{kernel}"] if kernel else []
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
