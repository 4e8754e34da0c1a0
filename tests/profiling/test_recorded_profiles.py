"""Profiles recorded on a GPU by `benchmarks/record_profiles.py`: the planted faults are found, and not in the repaired pipeline."""

from __future__ import annotations

import json

import pytest

from course_lib.benchmark.records import RESULTS
from course_lib.profiling.faults import find_faults
from course_lib.profiling.readers.ncu import read_ncu
from course_lib.profiling.readers.torch_trace import read_torch_trace

FOLDER = RESULTS / "profiles_h200"
H200_BF16_FLOPS, H200_BYTES_PER_SECOND = 989e12, 4.8e12  # data sheet, dense


@pytest.fixture(scope="module")
def record():
    return json.loads((FOLDER / "record.json").read_text())


@pytest.fixture(scope="module", params=["slow", "repaired"])
def recorded(request):
    return request.param, read_torch_trace(FOLDER / f"{request.param}.json.gz")


@pytest.fixture(scope="module")
def kernels():
    return read_ncu(FOLDER / "kernels.csv")


def found_in(name):
    return {fault.name: fault for fault in find_faults(read_torch_trace(FOLDER / f"{name}.json.gz"))}


def test_the_planted_faults_are_found():
    found = found_in("slow")
    assert set(found) == {"idle GPU", "pageable copies", "blocking calls", "tiny kernels"}
    assert "'preprocess'" in found["idle GPU"].finding
    assert "cudaStreamSynchronize" in found["blocking calls"].finding


def test_every_step_of_the_slow_pipeline_is_in_the_evidence(record):
    found, steps = found_in("slow"), record["steps"]
    assert len(found["pageable copies"].events) == steps
    assert len(found["blocking calls"].events) >= steps - 1  # after the last one comes nothing
    assert len(found["tiny kernels"].events) >= 150 * steps  # 180 small kernels a step were planted


def test_the_repaired_pipeline_has_none_of_them():
    assert found_in("repaired") == {}


def test_the_repair_is_faster_and_computes_the_same(record):
    assert record["repaired_ms_per_step"] < record["slow_ms_per_step"] / 2
    assert record["largest_difference"] < 1e-2


def test_device_work_knows_the_call_that_started_it(recorded):
    name, timeline = recorded
    callers = {call.name if (call := timeline.call_of(kernel)) else None for kernel in timeline.kernels}
    assert None not in callers
    assert ("cudaGraphLaunch" in callers) == (name == "repaired")


def test_the_large_product_is_bound_by_computing_and_the_large_addition_by_memory(kernels):
    assert 4 <= len(kernels) < 10
    product = max(kernels, key=lambda kernel: kernel.sm_share)
    assert product.bound == "compute"
    assert product.flops == pytest.approx(2 * 8192**3, rel=0.02)
    streaming = {kernel.bound: kernel for kernel in kernels if kernel.dram_bytes > 1e9 and kernel is not product}
    assert streaming.keys() == {"memory", "latency"}
    assert "add<float>" in streaming["memory"].name and streaming["memory"].dram_share > 0.8
    # float32 to bfloat16 one number at a time: it fills neither the memory (44 %) nor the multiprocessors (56 %)
    assert "LoadWithCast" in streaming["latency"].name


def test_no_kernel_is_faster_than_the_machine(kernels):
    for kernel in kernels:
        assert kernel.bytes_per_second < H200_BYTES_PER_SECOND
        assert kernel.flops_per_second < H200_BF16_FLOPS
        assert 0 < kernel.occupancy <= 1
