"""Command lines of Nsight Systems and Nsight Compute: what each option becomes, and which are rejected."""

from pathlib import Path

import pytest

from course_lib.profiling.readers.nsight import FLOP_METRICS, METRICS, ncu_profile, nsys_export, nsys_profile, nsys_stats
from tests.one_line import one_line

PROGRAM = ["python", "infer.py", "--plan", Path("model.plan")]
AS_TEXT = ["python", "infer.py", "--plan", "model.plan"]


def test_command_lines():
    assert nsys_profile(PROGRAM, output="run") == [
        *("nsys", "profile", "--trace=cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=none", "--cuda-graph-trace=node"),
        *("--capture-range=cudaProfilerApi", "--capture-range-end=stop", "--output=run"),
        *AS_TEXT,
    ]
    export = "nsys export --type=sqlite --output=out/run.sqlite out/run.nsys-rep"
    assert nsys_export("out/run.nsys-rep") == export.split()
    line = nsys_stats("run.sqlite")
    assert line[:3] == ["nsys", "stats", "--report=cuda_gpu_kern_sum"]
    assert line[-3:] == ["--format=csv", "--output=-", "run.sqlite"]
    assert ncu_profile(PROGRAM, csv="kernels.csv", within="infer", skip=3, count=5) == [
        *("ncu", "--target-processes=all", "--clock-control=base", f"--metrics={','.join((*METRICS, *FLOP_METRICS))}"),
        *("--nvtx", "--nvtx-include=infer/", "--launch-skip=3", "--launch-count=5"),
        *("--csv", "--page=raw", "--print-units=base", "--log-file=kernels.csv"),
        *AS_TEXT,
    ]
    line = ncu_profile(PROGRAM, output="run", base_clock=False)
    assert {"--export=run", "--force-overwrite", "--clock-control=none"} <= set(line)
    assert not [option for option in line if option.startswith(("--nvtx", "--csv", "--launch-skip"))]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nsys_profile([], output="o"), "the command is a list"),
        (lambda: nsys_profile("python infer.py", output="o"), "the command is a list"),
        (lambda: ncu_profile(PROGRAM, output="o", csv="c"), "either `output`"),
        (lambda: ncu_profile(PROGRAM, csv="c", metrics=()), "nothing to measure"),
        (lambda: ncu_profile(PROGRAM, csv="c", skip=-1), "skip at least 0"),
        (lambda: ncu_profile(PROGRAM, csv="c", count=0), "at least 1 launch"),
        (lambda: ncu_profile(PROGRAM, csv="c", within="a/b"), "the range 'a/b' has /"),
    ],
)
def test_what_the_profilers_do_not_have_is_rejected_in_one_line(make, said):
    with one_line(ValueError, said):
        make()
