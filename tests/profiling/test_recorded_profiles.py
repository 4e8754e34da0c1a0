"""Profiles recorded on a GPU by `benchmarks/record_profiles.py`: the planted faults are found, and not in the repaired pipeline."""

import json

import pytest

from course_lib.benchmark.records import RESULTS
from course_lib.profiling.faults import find_faults
from course_lib.profiling.readers.ncu import read_ncu
from course_lib.profiling.readers.torch_trace import read_torch_trace

FOLDER = RESULTS / "profiles_h200"
H200_BF16_FLOPS, H200_BYTES_PER_SECOND = 989e12, 4.8e12  # data sheet, dense


def recorded(name):
    return read_torch_trace(FOLDER / f"{name}.json.gz")


def test_the_planted_faults_are_found_in_every_step_and_not_in_the_faster_repaired_pipeline():
    record = json.loads((FOLDER / "record.json").read_text())
    found, steps = {fault.name: fault for fault in find_faults(recorded("slow"))}, record["steps"]
    assert set(found) == {"idle GPU", "pageable copies", "blocking calls", "tiny kernels"}
    assert "'preprocess'" in found["idle GPU"].finding
    assert "cudaStreamSynchronize" in found["blocking calls"].finding
    assert len(found["pageable copies"].events) == steps
    assert len(found["blocking calls"].events) >= steps - 1  # after the last one comes nothing
    assert len(found["tiny kernels"].events) >= 150 * steps  # 180 small kernels a step were planted
    assert find_faults(recorded("repaired")) == ()
    assert record["repaired_ms_per_step"] < record["slow_ms_per_step"] / 2 and record["largest_difference"] < 1e-2


@pytest.mark.parametrize("name", ["slow", "repaired"])
def test_device_work_knows_the_call_that_started_it(name):
    timeline = recorded(name)
    callers = {call.name if (call := timeline.call_of(kernel)) else None for kernel in timeline.kernels}
    assert None not in callers
    assert ("cudaGraphLaunch" in callers) == (name == "repaired")


def test_the_large_product_is_bound_by_computing_and_the_large_addition_by_memory():
    kernels = read_ncu(FOLDER / "kernels.csv")
    assert 4 <= len(kernels) < 10
    product = max(kernels, key=lambda kernel: kernel.sm_share)
    assert product.bound == "compute" and product.flops == pytest.approx(2 * 8192**3, rel=0.02)
    streaming = {kernel.bound: kernel for kernel in kernels if kernel.dram_bytes > 1e9 and kernel is not product}
    assert streaming.keys() == {"memory", "latency"}
    assert "add<float>" in streaming["memory"].name and streaming["memory"].dram_share > 0.8
    # float32 to bfloat16 one number at a time: it fills neither the memory (44 %) nor the multiprocessors (56 %)
    assert "LoadWithCast" in streaming["latency"].name
    for kernel in kernels:
        assert kernel.bytes_per_second < H200_BYTES_PER_SECOND and kernel.flops_per_second < H200_BF16_FLOPS
        assert 0 < kernel.occupancy <= 1
