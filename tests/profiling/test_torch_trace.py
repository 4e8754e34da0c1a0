"""Traces of torch.profiler: real ones of this machine's CPU, CUDA events written by hand, and damaged files."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.errors import ProfileError
from course_lib.profiling.readers.torch_trace import read_torch_trace
from course_lib.profiling.timelines.timeline import Event, Timeline
from tests.one_line import one_line


@pytest.fixture(scope="module")
def cpu_trace(tmp_path_factory):
    """Three steps of a small network, profiled here, with the names of the operators that it called."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    path = tmp_path_factory.mktemp("trace") / "cpu.json"
    net, pixels = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()), torch.rand(2, 3, 8, 8)
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            with record_function("step"):
                with record_function("preprocess"):
                    scaled = pixels * 2
                net(scaled)
    profiler.export_chrome_trace(str(path))
    return path


def record(category, name, start, duration, **arguments):
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration, "pid": 1, "tid": 42, "args": arguments}


CUDA = {
    "traceEvents": [
        record("cpu_op", "aten::to", 1000.0, 20),
        record("cpu_op", "aten::copy_", 1002.0, 15),
        record("cuda_runtime", "cudaMemcpyAsync", 1003.0, 5, correlation=5),
        record("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1006.5, 10.25, device=0, stream=7, correlation=5, bytes=4096),
        record("cuda_runtime", "cudaStreamSynchronize", 1009.0, 8, correlation=6),
        record("cuda_runtime", "cudaLaunchKernel", 1020.0, 6, correlation=8),
        record("cuda_driver", "cuLaunchKernel", 1021.0, 3, correlation=7),
        record("kernel", "void relu<4>(float*)", 1030.0, 2, device=1, stream=13, correlation=7),
        record("gpu_memset", "Memset (Device)", 1033.0, 1, device=0, stream=7, correlation=9, bytes=64),
        record("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 1035.0, 1, device=0, stream=7, correlation=10, bytes=4),
        record("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 1037.0, 1, device=0, stream=7, correlation=11, bytes=8),
        record("user_annotation", "step", 999.0, 50),
        record("gpu_user_annotation", "step", 1006.0, 30, stream=7),
        record("python_function", "main", 990.0, 100),
        {"ph": "s", "id": 5, "pid": 1, "tid": 42, "ts": 1003, "cat": "ac2g", "name": "ac2g"},
        {"ph": "M", "name": "process_name", "ts": 1.0, "args": {"name": "python"}},
    ]
}


def test_every_category_becomes_its_kind_and_calls_are_linked_to_their_work():
    assert read_torch_trace(CUDA) == Timeline(
        (
            Event("aten::to", "op", 10, 20, "thread 42"),
            Event("cudaMemcpyAsync", "api", 13, 5, "thread 42", correlation=5),
            Event("Memcpy HtoD (Pageable -> Device)", "copy", 16.5, 10.25, "stream 7", 4096, True, 5),
            Event("cudaStreamSynchronize", "sync", 19, 8, "thread 42", correlation=6),
            # the driver's call inside has the kernel's number
            Event("cudaLaunchKernel", "api", 30, 6, "thread 42", correlation=7),
            Event("void relu<4>(float*)", "kernel", 40, 2, "GPU 1 stream 13", correlation=7),
            Event("Memset (Device)", "memset", 43, 1, "stream 7", 64, correlation=9),
            Event("Memcpy DtoH (Device -> Pinned)", "copy", 45, 1, "stream 7", 4, False, 10),
            Event("Memcpy DtoD (Device -> Device)", "copy", 47, 1, "stream 7", 8, False, 11),
            Event("step", "range", 9, 50, "thread 42"),
        )
    )


def test_a_real_trace_has_the_ranges_and_the_outer_operators(cpu_trace):
    timeline = read_torch_trace(cpu_trace)
    counts = {(row.name, row.kind): row.count for row in timeline.summary()}
    assert counts == {
        ("step", "range"): 3,
        ("preprocess", "range"): 3,
        ("aten::mul", "op"): 3,
        ("aten::conv2d", "op"): 3,
        ("aten::relu", "op"): 3,
    }
    assert timeline.busy_us == 0
    assert timeline.headline().startswith("No device work")


def test_packed_plain_parsed_and_bare_traces_read_the_same(cpu_trace, tmp_path):
    expected = read_torch_trace(cpu_trace)
    document = json.loads(cpu_trace.read_text())
    packed, bare = tmp_path / "trace.json.gz", tmp_path / "bare.json"
    packed.write_bytes(gzip.compress(cpu_trace.read_bytes()))
    bare.write_text(json.dumps(document["traceEvents"]))
    assert read_torch_trace(str(packed)) == read_torch_trace(document) == read_torch_trace(bare) == expected


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([], "0 records and no complete events"),
        ([{"ph": "B", "name": "k", "ts": 1}, {"ph": "E", "name": "k", "ts": 2}], "2 records and no complete events"),
        ([record("python_function", "f", 1, 1), record("Trace", "t", 1, 1)], "found Trace, python_function"),
        ([{"ph": "X", "name": "k", "ts": 1, "dur": 1}], "found none"),
    ],
)
def test_a_trace_without_events_of_the_profiler_is_an_error_with_the_reason(records, said):
    with pytest.raises(ProfileError, match=said):
        read_torch_trace({"traceEvents": records})


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"{", b'{"a": 1}', b'{"traceEvents": 7}', b"\x1f\x8b", b"\x1f\x8b\x08junk", b"[" * 99999, b"7"]
)
def test_what_is_no_trace_is_rejected_in_one_line(tmp_path, content):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with one_line(ProfileError, str(path)):
        read_torch_trace(path)
    with one_line(ProfileError, "cannot read"):
        read_torch_trace(tmp_path / "absent.json")


def test_a_trace_too_large_to_read_is_rejected(tmp_path, monkeypatch):
    monkeypatch.setattr("course_lib.profiling.readers.torch_trace._LARGEST_BYTES", 1 << 20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b"[" + b" " * (1 << 21) + b"]"))
    with pytest.raises(ProfileError, match="more than 1 MiB"):
        read_torch_trace(path)


SMALL = json.dumps(CUDA).encode()


@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), max_size=20),
    st.integers(0, len(SMALL)),
)
def test_damaged_files_give_a_timeline_or_one_clear_error(tmp_path_factory, packed, flips, length):
    content = bytearray(gzip.compress(SMALL, mtime=0) if packed else SMALL)
    for place, byte in flips:
        content[place % len(content)] = byte
    path = tmp_path_factory.mktemp("damaged") / "trace.json"
    path.write_bytes(content[: max(length, 1)] if length % 2 else content)
    try:
        assert isinstance(read_torch_trace(path), Timeline)
    except ProfileError as error:
        assert "\n" not in str(error)
