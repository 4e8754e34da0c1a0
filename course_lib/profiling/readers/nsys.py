"""Nsight Systems reports as timelines, read from the SQLite file that ``nsys export`` makes."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypedDict

from course_lib.errors import ProfileError
from course_lib.profiling.readers.nsight import nsys_export
from course_lib.profiling.timelines.cuda_calls import call_kind, is_cuda_call, outermost, plain_name
from course_lib.profiling.timelines.timeline import Event, Timeline

# Numbers of ENUM_CUDA_MEMCPY_OPER, ENUM_CUDA_MEM_KIND, ENUM_CUPTI_SYNC_TYPE and NVTX_EVENTS.eventType.
# Source: Nsight Systems documentation, "SQLite Export Schema Reference".
_TO_DEVICE, _TO_HOST = 1, 2
_DIRECTIONS = {
    _TO_DEVICE: "host to device", _TO_HOST: "device to host", 8: "device to device", 9: "host to host", 10: "device to device",
    11: "host to device", 12: "device to host", 13: "device to device",
}  # fmt: skip
_PAGEABLE = 0
_WAITS_ON_HOST = (1, 3, 4)  # for an event, a stream, a context; 2 is a stream that waits for an event, the host goes on
_NVTX_RANGES = (59, 60)  # push/pop and start/end

_TABLES = ("KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET", "SYNCHRONIZATION", "RUNTIME")


def read_nsys(path: str | Path) -> Timeline:
    """The kernels, launches of CUDA graphs, copies, memsets, CUDA calls, calls of the operating system and NVTX ranges of a report.

    nsys records a CUDA graph as one bar, or each of its kernels with ``--cuda-graph-trace=node``. Missing tables and columns of a
    version of Nsight Systems, and those without recordings, are left out. Of nested calls (a driver call inside a runtime call) the
    outer one is kept. Calls of the operating system are kept only on threads that call CUDA.

    Args:
        path: the ``.sqlite`` file of ``nsys export --type sqlite``. It is opened read-only.

    Returns:
        A timeline in microseconds since the start of the recording. Its `lacks` is set if nothing of the device was recorded.

    Raises:
        ProfileError: the file is missing, damaged, empty, or not such an export; for a ``.nsys-rep`` the message has the command to run.
    """
    path = Path(path)
    _check_file(path)
    # immutable: SQLite then takes no locks and never makes a journal beside the file
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            events = tuple(_Report(connection, path).events())
    except (sqlite3.Error, UnicodeError) as error:  # the latter where SQLite's own message quotes damaged text
        reason = str(error).partition("\n")[0][:100]  # SQLite may quote a whole definition of a table
        raise ProfileError(f"{path} is damaged ({reason}): export the report again with nsys") from error
    if not events:
        raise ProfileError(
            f"{path} holds no events, neither kernels and launches of CUDA graphs nor calls and ranges: profile the program again with "
            "`nsys profile --trace=cuda,nvtx`, from its start to its end"
        )
    return Timeline(events, lacks="" if any(event.on_device for event in events) else _lacks(path, events))


def _lacks(path: Path, events: tuple[Event, ...]) -> str:
    calls = sum(is_cuda_call(event.name) for event in events)
    return (
        f"{path} has no kernels, copies, or launches of CUDA graphs"
        + (f", although it has {calls} CUDA calls" if calls else "")
        + ": record the device with `nsys profile --trace=cuda`, starting before the program's first CUDA call"
    )


def _check_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror}") from error
    if path.suffix in (".nsys-rep", ".qdrep"):
        raise ProfileError(
            f"{path} is a report, not its export: run  {shlex.join(nsys_export(path))}  and read the .sqlite file"
        )
    if start != b"SQLite format 3\0":
        raise ProfileError(f"{path} is not a SQLite file: expected what `nsys export --type sqlite` writes")


class _Place(TypedDict):
    """Two fields of `Event`."""

    row: str
    correlation: int | None


class _Report:
    """One open export: its strings, its tables, and whether several processes are in it."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.execute("PRAGMA trusted_schema = OFF")  # the file is data: nothing in it may call functions
        self._connection = connection
        self._tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        known = {f"CUPTI_ACTIVITY_KIND_{name}" for name in _TABLES} | {"NVTX_EVENTS", "OSRT_API", "StringIds"}
        if not self._tables & known:
            raise ProfileError(f"{path} has no tables of Nsight Systems: expected what `nsys export --type sqlite` writes")
        self._strings = dict(self._select("StringIds", ("id", "value"), timed=False))
        callers = {_process(thread) for _, _, thread in self._select("CUPTI_ACTIVITY_KIND_RUNTIME", ("globalTid",))}
        self._several_processes = len(callers) > 1

    def events(self) -> Iterator[Event]:
        """All events of the timeline."""
        device = [*self._kernels(), *self._graphs(), *self._copies(), *self._memsets()]
        calls = outermost(self._cuda_calls(), {event.correlation for event in device})
        yield from device
        yield from outermost([*calls, *self._system_calls({call.row for call in calls})])
        yield from self._ranges()

    def _select(self, table: str, columns: Iterable[str], *, timed: bool = True) -> Iterator[tuple[Any, ...]]:
        """Rows of start and end in nanoseconds, then the columns. A column that the table lacks is None."""
        if table not in self._tables:
            return
        present = {row[1] for row in self._connection.execute(f"PRAGMA table_info({table})")}
        wanted = ["start", "end", *columns] if timed else list(columns)
        if timed and not {"start", "end"} <= present:
            return
        chosen = ", ".join(f'"{column}"' if column in present else "NULL" for column in wanted)
        where = """ WHERE typeof("start") = 'integer' AND typeof("end") = 'integer' AND "end" >= "start" """ if timed else ""
        yield from self._connection.execute(f"SELECT {chosen} FROM {table}{where}")

    def _kernels(self) -> Iterator[Event]:
        columns = ("demangledName", "shortName", "deviceId", "streamId", "globalPid", "correlationId")
        for start, end, full, short, *place in self._select("CUPTI_ACTIVITY_KIND_KERNEL", columns):
            name = self._string(full) or self._string(short) or "kernel"
            yield Event(name, "kernel", *_times(start, end), **self._place(*place))

    def _graphs(self) -> Iterator[Event]:
        columns = ("graphId", "deviceId", "streamId", "globalPid", "correlationId")
        for start, end, graph, *place in self._select("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", columns):
            name = "CUDA graph" if _whole(graph) is None else f"CUDA graph {graph}"
            yield Event(name, "graph", *_times(start, end), **self._place(*place))

    def _copies(self) -> Iterator[Event]:
        columns = ("bytes", "copyKind", "srcKind", "dstKind", "deviceId", "streamId", "globalPid", "correlationId")
        for start, end, size, kind, source, target, *place in self._select("CUPTI_ACTIVITY_KIND_MEMCPY", columns):
            yield Event(
                f"copy {_DIRECTIONS.get(kind, '')}".strip(),
                "copy",
                *_times(start, end),
                bytes_moved=_whole(size),
                pageable=(kind == _TO_DEVICE and source == _PAGEABLE) or (kind == _TO_HOST and target == _PAGEABLE),
                **self._place(*place),
            )

    def _memsets(self) -> Iterator[Event]:
        columns = ("bytes", "deviceId", "streamId", "globalPid", "correlationId")
        for start, end, size, *place in self._select("CUPTI_ACTIVITY_KIND_MEMSET", columns):
            yield Event("memset", "memset", *_times(start, end), bytes_moved=_whole(size), **self._place(*place))

    def _cuda_calls(self) -> Iterator[Event]:
        records = self._select("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", ("syncType", "globalPid", "correlationId"))
        waits = {self._correlation(process, number) for *_, kind, process, number in records if kind in _WAITS_ON_HOST}
        columns = ("nameId", "globalTid", "correlationId")
        for start, end, name_id, thread, number in self._select("CUPTI_ACTIVITY_KIND_RUNTIME", columns):
            name = plain_name(self._string(name_id)) or "CUDA call"
            correlation = self._correlation(thread, number)
            kind = "sync" if correlation is not None and correlation in waits else call_kind(name)
            yield Event(name, kind, *_times(start, end), row=self._thread(thread), correlation=correlation)

    def _system_calls(self, threads: set[str]) -> Iterator[Event]:
        for start, end, name_id, thread in self._select("OSRT_API", ("nameId", "globalTid")):
            name, row = self._string(name_id) or "system call", self._thread(thread)
            if row in threads and not is_cuda_call(name):
                yield Event(name, "api", *_times(start, end), row=row)

    def _ranges(self) -> Iterator[Event]:
        columns = ("eventType", "text", "textId", "globalTid")
        for start, end, kind, text, text_id, thread in self._select("NVTX_EVENTS", columns):
            if kind in _NVTX_RANGES:
                name = text if isinstance(text, str) and text else self._string(text_id)
                yield Event(name or "range", "range", *_times(start, end), row=self._thread(thread))

    def _string(self, number: Any) -> str:
        text = self._strings.get(number, "")
        return text if isinstance(text, str) else ""

    def _place(self, device: Any, stream: Any, process: Any, correlation: Any) -> _Place:
        """The row and the correlation of device work."""
        row = f"stream {_whole(stream) or 0}" if not device else f"GPU {_whole(device)} stream {_whole(stream) or 0}"
        if self._several_processes:
            row = f"process {_process(process)} {row}"
        return {"row": row, "correlation": self._correlation(process, correlation)}

    def _correlation(self, owner: Any, number: Any) -> int | None:
        """The number of a call, made unique if several processes count from 1."""
        if _whole(number) is None:
            return None
        return (_process(owner) << 32) + int(number) if self._several_processes else int(number)

    def _thread(self, thread: Any) -> str:
        number = (_whole(thread) or 0) & 0xFFFFFF
        return f"process {_process(thread)} thread {number}" if self._several_processes else f"thread {number}"


def _process(serialized: Any) -> int:
    """The process in a serialized global id: bits 24 to 47; the thread is in the lower ones."""
    return ((_whole(serialized) or 0) >> 24) & 0xFFFFFF


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _times(start_ns: int, end_ns: int) -> tuple[float, float]:
    """Start and duration in microseconds."""
    return start_ns / 1e3, (end_ns - start_ns) / 1e3
