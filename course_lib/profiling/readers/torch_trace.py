"""Traces of `torch.profiler` as timelines."""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from course_lib.errors import ProfileError
from course_lib.profiling.timelines.cuda_calls import call_kind, outermost, plain_name
from course_lib.profiling.timelines.timeline import Event, Kind, Timeline

_PAGEABLE = re.compile(r"Memcpy (?!DtoD|PtoP).*Pageable")  # "Memcpy HtoD (Pageable -> Device)"
_LARGEST_BYTES = 1 << 29  # unpacked; a longer trace takes minutes to read and shows less: record fewer steps
_DEVICE: Mapping[str, Kind] = {"kernel": "kernel", "gpu_memcpy": "copy", "gpu_memset": "memset"}
_HOST: Mapping[str, Kind] = {"cpu_op": "op", "user_annotation": "range"}
_CALLS = ("cuda_runtime", "cuda_driver")


def read_torch_trace(source: str | Path | Mapping[str, Any]) -> Timeline:
    """Kernels, copies, memsets, CUDA calls, ``record_function`` ranges and PyTorch's operators of a trace.

    Of nested operators and nested calls, the outer ones are kept, which the program called.

    Args:
        source: the file of ``profile.export_chrome_trace``, ``.json`` or ``.json.gz``, or its parsed content.

    Returns:
        A timeline in microseconds since the first event of the trace.

    Raises:
        ProfileError: the file is missing, damaged, larger than 512 MiB, or not a trace of `torch.profiler`, or it has no events of these
            kinds.
    """
    if isinstance(source, Mapping):
        return _timeline(source, "the trace")
    path = Path(source)
    try:
        document = json.loads(_content(path))
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError, EOFError, zlib.error) as error:
        raise ProfileError(f"{path} is damaged or not JSON ({error}): expected what export_chrome_trace writes") from error
    return _timeline(document, str(path))


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        with gzip.open(file) if packed else file as plain:
            content = plain.read(_LARGEST_BYTES + 1)
    if len(content) > _LARGEST_BYTES:
        raise ProfileError(f"{path} holds more than {_LARGEST_BYTES >> 20} MiB: record fewer steps")
    return content


def _timeline(document: Any, name: str) -> Timeline:
    records = document.get("traceEvents") if isinstance(document, Mapping) else document  # the format also allows a bare list
    if not isinstance(records, list):
        raise ProfileError(f"{name} has no traceEvents: expected what export_chrome_trace of torch.profiler writes")
    spans = [record for record in records if _is_span(record)]
    if not spans:
        raise ProfileError(
            f'{name} has {len(records)} records and no complete events ("ph": "X" with ts and dur): run at least one step between '
            "start and stop of the profiler, and export again"
        )
    zero = min((record["ts"] for record in spans), default=0.0)
    device = [event for record in spans if (event := _device_event(record, zero))]
    calls = outermost(_host_events(spans, zero, _CALLS), {event.correlation for event in device})
    operators = outermost(_host_events(spans, zero, ["cpu_op"]))
    events = (*device, *calls, *operators, *_host_events(spans, zero, ["user_annotation"]))
    if not events:
        found = sorted({_text(record, "cat")[:40] or "none" for record in spans})
        raise ProfileError(
            f"{name} has no events of torch.profiler: expected the category kernel or cpu_op, found {', '.join(found[:5])}"
        )
    return Timeline(events)


def _is_span(record: Any) -> bool:
    """Whether this is a complete event with a valid time."""
    if not isinstance(record, dict) or record.get("ph") != "X":
        return False
    return all(_is_number(record.get(key)) for key in ("ts", "dur")) and record["dur"] >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300 and math.isfinite(value)


def _device_event(record: dict[str, Any], zero: float) -> Event | None:
    kind = _DEVICE.get(_text(record, "cat"))
    if kind is None:
        return None
    arguments = _arguments(record)
    device, stream, size = (_whole(arguments.get(key)) for key in ("device", "stream", "bytes"))
    name = _text(record, "name")
    return Event(
        name or kind,
        kind,
        record["ts"] - zero,
        record["dur"],
        row=f"GPU {device} stream {stream or 0}" if device else f"stream {stream or 0}",
        bytes_moved=size,
        pageable=_PAGEABLE.match(name) is not None,
        correlation=_whole(arguments.get("correlation")),
    )


def _host_events(spans: list[dict[str, Any]], zero: float, categories: Collection[str]) -> Iterator[Event]:
    for record in spans:
        category, name = _text(record, "cat"), _text(record, "name") or "?"
        if category not in categories:
            continue
        kind, correlation = _HOST.get(category), None
        if kind is None:  # a call of CUDA
            name = plain_name(name)
            kind, correlation = call_kind(name), _whole(_arguments(record).get("correlation"))
        yield Event(name, kind, record["ts"] - zero, record["dur"], f"thread {record.get('tid')}", correlation=correlation)


def _arguments(record: dict[str, Any]) -> dict[str, object]:
    arguments = record.get("args")
    return arguments if isinstance(arguments, dict) else {}


def _text(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    return value if isinstance(value, str) else ""


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
