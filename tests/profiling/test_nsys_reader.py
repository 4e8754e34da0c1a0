"""Nsight Systems exports: a real one, small ones made here table by table, and files that are none or damaged."""

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.benchmark.records import RESULTS
from course_lib.errors import CourseError, ProfileError
from course_lib.profiling.faults import find_faults
from course_lib.profiling.readers.nsys import read_nsys
from course_lib.profiling.timelines.cuda_calls import allocates, call_kind, is_cuda_call, plain_name
from course_lib.profiling.timelines.timeline import Event, Timeline
from course_lib.profiling.timelines.timeline_figure import draw_timeline
from tests.one_line import one_line

REAL = RESULTS / "nsys" / "saxpy_mpi_cuda.sqlite"
THREAD = (4242 << 24) + 17  # of process 4242
STRINGS = {
    1: "cudaMemcpyAsync_v3020", 2: "cudaStreamSynchronize_v3020", 3: "void n::relu<4>(float*)", 4: "relu", 5: "read", 6: "ioctl",
    7: "preprocess", 8: "cudaLaunchKernel_v7000", 9: "cuLaunchKernel", 10: "cudaMyWait",
}  # fmt: skip
TABLES = {
    "StringIds": ("id", "value"),
    "CUPTI_ACTIVITY_KIND_KERNEL": (
        *("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "demangledName", "shortName"),
    ),
    "CUPTI_ACTIVITY_KIND_MEMCPY": (
        *("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "copyKind", "srcKind", "dstKind"),
    ),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes"),
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
        *("start", "end", "deviceId", "graphId", "graphExecId", "contextId", "streamId", "correlationId", "globalPid"),
    ),
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": ("start", "end", "correlationId", "globalPid", "syncType"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("start", "end", "globalTid", "correlationId", "nameId"),
    "NVTX_EVENTS": ("start", "end", "eventType", "text", "textId", "globalTid"),
    "OSRT_API": ("start", "end", "globalTid", "nameId"),
}


def export(path, rows, columns=TABLES):
    """A SQLite file with these tables, one tuple a row in the order of `columns`."""
    with closing(sqlite3.connect(path)) as connection:
        for table, lines in {"StringIds": list(STRINGS.items()), **rows}.items():
            connection.execute(f"CREATE TABLE {table} ({', '.join(columns[table])})")
            for line in lines:
                connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(line))})", line)
        connection.commit()
    return path


def test_the_real_report_matches_its_tables():
    timeline = read_nsys(REAL)
    with closing(sqlite3.connect(f"{REAL.as_uri()}?mode=ro", uri=True)) as connection:
        first, last, kernel_time = connection.execute(
            "SELECT MIN(start), MAX(end), SUM(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL"
        ).fetchone()
        copied, copies = connection.execute("SELECT SUM(bytes), COUNT(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY").fetchone()
    kernels = timeline.kernels
    assert len(kernels) == 5
    assert kernels[0].name == "saxpy(double *, double *, double *, double, int)"
    assert sum(kernel.duration_us for kernel in kernels) == pytest.approx(kernel_time / 1e3)
    assert (kernels[0].start_us, kernels[-1].end_us) == (pytest.approx(first / 1e3), pytest.approx(last / 1e3))
    moved = [event for event in timeline.events if event.kind == "copy"]
    assert (len(moved), sum(event.bytes_moved for event in moved)) == (copies, copied)
    assert all(event.pageable for event in moved)
    assert {event.name for event in moved} == {"copy host to device", "copy device to host"}
    assert {event.name for event in timeline.events if event.kind == "range"} == {
        "MPI_Init",
        "MPI_Send",
        "MPI_Recv",
        "MPI_Finalize",
        "saxpy",
    }


def test_the_real_report_records_each_call_twice_and_it_counts_once():
    calls = {row.name: row.count for row in read_nsys(REAL).summary() if row.kind in ("api", "sync")}
    assert calls["cudaMemcpy"] == calls["cudaMalloc"] == 15
    assert calls["cudaLaunchKernel"] == 5


def test_every_table_of_a_report_is_read(tmp_path):
    path = export(
        tmp_path / "r.sqlite",
        {
            "CUPTI_ACTIVITY_KIND_KERNEL": [
                (5_000, 7_500, 0, 7, 11, 4242 << 24, 3, 4),
                (8_000, 9_000, 1, 13, 12, 4242 << 24, None, 4),
            ],
            "CUPTI_ACTIVITY_KIND_MEMCPY": [(1_000, 2_000, 0, 7, 10, 4242 << 24, 4096, 1, 1, 2)],
            "CUPTI_ACTIVITY_KIND_MEMSET": [(2_000, 2_100, 0, 7, 9, 4242 << 24, 64)],
            "CUPTI_ACTIVITY_KIND_RUNTIME": [(500, 900, THREAD, 10, 1), (9_000, 9_900, THREAD, 20, 2)],
            "NVTX_EVENTS": [
                (0, 9_999, 59, "step", None, THREAD),
                (1, 2, 60, None, 7, THREAD),
                (3, None, 34, "mark", None, THREAD),
            ],
            "OSRT_API": [(3_000, 4_000, THREAD, 5), (9_100, 9_200, THREAD, 6), (0, 9_000, THREAD + 1, 5)],
        },
    )
    assert read_nsys(path) == Timeline(
        (
            Event("void n::relu<4>(float*)", "kernel", 5, 2.5, "stream 7", correlation=11),
            Event("relu", "kernel", 8, 1, "GPU 1 stream 13", correlation=12),
            Event("copy host to device", "copy", 1, 1, "stream 7", 4096, correlation=10),
            Event("memset", "memset", 2, 0.1, "stream 7", 64, correlation=9),
            Event("cudaMemcpyAsync", "api", 0.5, 0.4, "thread 17", correlation=10),
            Event("cudaStreamSynchronize", "sync", 9, 0.9, "thread 17", correlation=20),
            Event("step", "range", 0, 9.999, "thread 17"),
            Event("preprocess", "range", 0.001, 0.001, "thread 17"),
            # the ioctl inside the wait and the thread that never calls CUDA are left out
            Event("read", "api", 3, 1, "thread 17"),
        )
    )


@pytest.mark.parametrize(
    ("kind", "source", "target", "direction", "pageable"),
    [
        (1, 0, 2, "host to device", True),
        (1, 1, 2, "host to device", False),
        (2, 2, 0, "device to host", True),
        (2, 2, 1, "device to host", False),
        (8, 2, 2, "device to device", False),
        (99, 0, 0, "", False),
    ],
)
def test_a_copy_is_pageable_by_its_side_on_the_host(tmp_path, kind, source, target, direction, pageable):
    path = export(tmp_path / "r.sqlite", {"CUPTI_ACTIVITY_KIND_MEMCPY": [(0, 1, 0, 7, 1, 0, 8, kind, source, target)]})
    (copy,) = (event for event in read_nsys(path).events if event.kind == "copy")
    assert (copy.name, copy.pageable) == (f"copy {direction}".strip(), pageable)


def test_a_call_with_a_record_of_synchronization_waits_whatever_its_name(tmp_path):
    rows = {
        "CUPTI_ACTIVITY_KIND_RUNTIME": [(0, 5, THREAD, 1, 10), (6, 9, THREAD, 2, 10)],
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": [(0, 5, 1, 4242 << 24, 3), (6, 9, 2, 4242 << 24, 2)],  # 2: a stream waits
    }
    events = read_nsys(export(tmp_path / "r.sqlite", rows)).events
    assert [(event.kind, event.correlation) for event in events] == [("sync", 1), ("api", 2)]


def test_of_nested_calls_the_outer_one_takes_over_the_number_of_the_kernel(tmp_path):
    rows = {
        "CUPTI_ACTIVITY_KIND_KERNEL": [(50, 60, 0, 7, 2, 0, 3, 4)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [(10, 40, THREAD, 1, 8), (15, 30, THREAD, 2, 9)],
    }
    timeline = read_nsys(export(tmp_path / "r.sqlite", rows))
    assert timeline.call_of(timeline.kernels[0]).name == "cudaLaunchKernel"
    assert len(timeline.events) == 2


def test_processes_are_kept_apart(tmp_path):
    other = (77 << 24) + 17
    rows = {
        "CUPTI_ACTIVITY_KIND_KERNEL": [(50, 60, 0, 7, 1, 4242 << 24, 3, 4), (55, 60, 0, 7, 1, 77 << 24, 3, 4)],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [(10, 40, THREAD, 1, 8), (20, 30, other, 1, 9)],
    }
    timeline = read_nsys(export(tmp_path / "r.sqlite", rows))
    assert [kernel.row for kernel in timeline.kernels] == ["process 4242 stream 7", "process 77 stream 7"]
    assert [timeline.call_of(kernel).row for kernel in timeline.kernels] == ["process 4242 thread 17", "process 77 thread 17"]


GRAPHS = [(step * 1_000_000 + 20_000, step * 1_000_000 + 950_000, 0, 3, 4, 1, 7, step, 4242 << 24) for step in range(10)]


def test_launches_of_graphs_are_device_work_with_their_calls(tmp_path):
    """The default of nsys is one bar a graph, without its kernels."""
    launches = [(step * 1_000_000, step * 1_000_000 + 20_000, THREAD, step, 8) for step in range(10)]
    timeline = read_nsys(
        export(tmp_path / "r.sqlite", {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": GRAPHS, "CUPTI_ACTIVITY_KIND_RUNTIME": launches})
    )
    assert timeline.device_events[0] == Event("CUDA graph 3", "graph", 20, 930, "stream 7", correlation=0)
    assert timeline.busy_us == pytest.approx(9300) and timeline.headline().startswith("GPU busy 94 %")
    assert timeline.call_of(timeline.device_events[9]).name == "cudaLaunchKernel"
    assert timeline.kernels == () and [fault.name for fault in find_faults(timeline)] == ["idle GPU"]
    assert draw_timeline(timeline).axes[0].get_legend().get_texts()[-2].get_text() == "CUDA graph"


def test_graphs_beside_kernels_and_old_tables_without_columns_are_read(tmp_path):
    kernels = [(950_000, 990_000, 0, 7, 11, 4242 << 24, 3, 4)]
    path = export(tmp_path / "r.sqlite", {"CUPTI_ACTIVITY_KIND_GRAPH_TRACE": GRAPHS[:1], "CUPTI_ACTIVITY_KIND_KERNEL": kernels})
    assert [event.kind for event in read_nsys(path).device_events] == ["graph", "kernel"]
    for table, event in {
        "GRAPH_TRACE": Event("CUDA graph", "graph", 1, 2, "stream 0"),
        "KERNEL": Event("kernel", "kernel", 1, 2, "stream 0"),
    }.items():
        name, untimed = f"CUPTI_ACTIVITY_KIND_{table}", "CUPTI_ACTIVITY_KIND_MEMSET"
        columns = {"StringIds": ("id", "value"), name: ("start", "end"), untimed: ("id",)}
        path = export(tmp_path / table, {name: [(1000, 3000)], untimed: [(1,)]}, columns)
        assert read_nsys(path).events == (event,)


def test_an_export_without_device_work_says_what_it_lacks(tmp_path):
    launches = [(0, 20_000, THREAD, 1, 8), (30_000, 40_000, THREAD, 2, 2)]
    timeline = read_nsys(export(tmp_path / "calls.sqlite", {"CUPTI_ACTIVITY_KIND_RUNTIME": launches}))
    assert "no kernels, copies, or launches of CUDA graphs, although it has 2 CUDA calls" in timeline.headline()
    with pytest.raises(ProfileError, match="nsys profile --trace=cuda"):
        find_faults(timeline.window(0, 10))
    ranges = read_nsys(export(tmp_path / "ranges.sqlite", {"NVTX_EVENTS": [(0, 9_999, 59, "step", None, THREAD)]}))
    assert "although" not in ranges.lacks and "launches of CUDA graphs" in ranges.lacks


@pytest.mark.parametrize("table", ["CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUPTI_ACTIVITY_KIND_RUNTIME"])
def test_an_export_without_any_event_is_rejected(tmp_path, table):
    with pytest.raises(ProfileError, match="holds no events"):
        read_nsys(export(tmp_path / "r.sqlite", {table: []}))


@pytest.mark.parametrize("content", [b"", b"hello", b"SQLite format 3\0", b"SQLite format 3\0" + bytes(5000)])
def test_what_is_no_database_is_rejected_in_one_line(tmp_path, content):
    path = tmp_path / "r.sqlite"
    path.write_bytes(content)
    with one_line(ProfileError, str(path)):
        read_nsys(path)


def test_what_is_no_export_is_rejected(tmp_path):
    report = tmp_path / "my run.nsys-rep"
    report.write_bytes(b"whatever")
    with pytest.raises(ProfileError, match=r"nsys export --type=sqlite .*'--output=.*my run.sqlite'"):
        read_nsys(report)
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE recipes (name)").connection.close()
    with pytest.raises(ProfileError, match="no tables of Nsight Systems"):
        read_nsys(tmp_path / "other.sqlite")
    for path in (tmp_path / "absent.sqlite", tmp_path):
        with pytest.raises(CourseError, match="cannot read"):
            read_nsys(path)
    assert not (tmp_path / "absent.sqlite").exists()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, REAL.stat().st_size - 1))
def test_a_truncated_report_gives_a_timeline_or_one_clear_error(tmp_path_factory, length):
    path = tmp_path_factory.mktemp("truncated") / "r.sqlite"
    path.write_bytes(REAL.read_bytes()[:length])
    try:
        assert isinstance(read_nsys(path), Timeline)
    except ProfileError as error:
        assert "\n" not in str(error)


# what calls mean


@pytest.mark.parametrize(
    ("recorded", "plain", "kind", "takes_memory"),
    [
        ("cudaStreamSynchronize_v3020", "cudaStreamSynchronize", "sync", False),
        ("cudaMemcpy_v3020", "cudaMemcpy", "sync", False),
        ("cuMemcpyHtoD_v2", "cuMemcpyHtoD", "sync", False),
        ("cudaMemcpyAsync_ptsz_v7000", "cudaMemcpyAsync", "api", False),
        ("cudaMalloc_v3020", "cudaMalloc", "api", True),
        ("cuMemAlloc_v2", "cuMemAlloc", "api", True),
        ("cudaMallocAsync_v11020", "cudaMallocAsync", "api", False),
        ("cudaStreamWaitEvent", "cudaStreamWaitEvent", "api", False),
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel", "api", False),
    ],
)
def test_calls_are_known_by_their_names(recorded, plain, kind, takes_memory):
    assert plain_name(recorded) == plain
    assert (call_kind(plain), allocates(plain), is_cuda_call(plain)) == (kind, takes_memory, True)
