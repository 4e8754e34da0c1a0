"""Which mistakes in the order of calls a trace shows, by hand and by the program that causes them."""

from typing import Any

import pytest

from course_lib.standin.gpu import Row
from course_lib.standin.order import MISTAKES, Findings, examine
from course_lib.standin.trace import FIELDS

IN, OUT, ANOTHER_OUT, PINNED = 1 << 20, 1 << 21, 1 << 22, 7
GIVEN: list[Row] = [
    ["engine", 1, "digest"],
    ["context", 2, 1],
    ["context", 3, 1],
    ["stream", 10],
    ["stream", 11],
    ["event", 5],
    ["allocate", IN, 4096],
    ["allocate", OUT, 1024],
    ["allocate", ANOTHER_OUT, 1024],
    ["pin", PINNED, 1024],
]
FEATURES, WAIT = bytes(4096), ["sync_device"]


def copy(stream: int, size: int = 4096, changed: bool = False) -> Row:
    return ["in", stream, IN, size, 0, 0, FEATURES[:size], changed]


def run(stream: int, context: int = 2, scores: int = OUT, reads: int = IN, size: int = 4096) -> Row:
    return ["run", stream, context, 0, {"x": (8, 128)}, {"x": (reads, size)}, {"y": (scores, 1024)}]


def home(stream: int, offset: int = 0, size: int = 1024) -> Row:
    return ["out", stream, OUT, size, PINNED, offset]


def found(*rows: Row) -> Findings:
    return examine([*GIVEN, *rows], {FEATURES: "request 4"})


ORDERS: dict[str, tuple[list[Any], str]] = {
    "one stream": ([copy(10), run(10), WAIT], ""),
    "an event": ([copy(10), ["record", 10, 5], ["wait", 11, 5], run(11), WAIT], ""),
    "recorded too early": ([["record", 10, 5], copy(10), ["wait", 11, 5], run(11), WAIT], "wait_missing"),
    "waited for too early": ([["wait", 11, 5], copy(10), ["record", 10, 5], run(11), WAIT], "wait_missing"),
    "the host waits for the stream": ([copy(10), ["sync_stream", 10], run(11), WAIT], ""),
    "the host waits for the event": ([copy(10), ["record", 10, 5], ["sync_event", 5], run(11), WAIT], ""),
    "the default stream waits for all": ([copy(10), run(0), copy(11), WAIT], ""),
    "overwritten while a run reads": ([copy(10), WAIT, run(10), copy(11), WAIT], "reused_early"),
    "pinned memory is written too early": ([copy(10, changed=True), run(10), WAIT], "host_overwritten"),
    "one context, two streams": ([copy(10), WAIT, run(10), run(11, scores=ANOTHER_OUT), WAIT], "context_shared"),
    "a profile for a busy context": ([copy(10), run(10), ["profile", 11, 2, 1], WAIT], "profile_in_flight"),
    "a profile on the stream of the run": ([copy(10), run(10), ["profile", 10, 2, 1], WAIT], ""),
    "a run before its profile": ([copy(10), WAIT, ["profile", 11, 2, 0], run(10), WAIT], "profile_elsewhere"),
    "only half is copied": ([copy(10, 2048), run(10), WAIT], "unwritten"),
    "nothing waits at the end": ([copy(10), run(10)], "still_running"),
    "freed in flight": ([copy(10), ["free", IN], WAIT], "freed_in_flight"),
    "freed before the run": ([copy(10), WAIT, ["free", IN], run(10), WAIT], "freed_memory"),
    "more rows than the buffer has": ([copy(10), run(10, size=8192), WAIT], "too_small"),
    "an address of the host": ([copy(10), run(10, reads=64), WAIT], "not_device_memory"),
    "an answer is overwritten before it is read": ([copy(10), run(10), home(10), home(10), WAIT], "never_read"),
    "an answer is read first": ([copy(10), run(10), home(10), ["sync_stream", 10], home(10), WAIT], ""),
    "answers lie side by side": ([copy(10), run(10), home(10, 0, 512), home(10, 512, 512), WAIT], ""),
    "a copy on the device": ([copy(10), run(10), ["within", 10, ANOTHER_OUT, OUT, 1024], WAIT], ""),
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_of_calls(name: str) -> None:
    rows, kind = ORDERS[name]
    assert [mistake.kind for mistake in found(*rows).mistakes] == ([kind] if kind else [])


def test_every_kind_of_mistake_has_a_case() -> None:
    assert {kind for _, kind in ORDERS.values() if kind} == set(MISTAKES)


def test_a_sentence_names_the_work() -> None:
    (mistake,) = found(copy(10), run(11), WAIT).mistakes
    assert str(mistake) == (
        "A wait is missing: the run of request 4 on stream 2 reads bytes that the copy of request 4 to the device on stream 1 "
        "may not have written yet"
    )


def test_causes_come_before_what_follows_from_them() -> None:
    findings = found(copy(10), run(11), WAIT, run(10), run(11, scores=ANOTHER_OUT), WAIT)
    assert findings.mistakes[0].kind == "wait_missing"
    assert [mistake.kind for mistake in findings.first_mistakes] == ["context_shared", "wait_missing"]


def test_what_a_trace_did() -> None:
    findings = found(
        copy(10), run(10), home(10), ["asked", 1], WAIT, ["stream_gone", 10], ["free", ANOTHER_OUT], ["unpin", PINNED]
    )
    assert (findings.runs, findings.rows, findings.home, findings.in_flight) == (1, 8, 1024, 3)
    assert findings.left == {
        "device memory": 2,
        "pinned host memory": 0,
        "streams": 1,
        "events": 1,
        "engines": 1,
        "contexts": 2,
    }


def test_every_row_of_the_cases_has_its_fields() -> None:
    rows = [row for rows, _ in ORDERS.values() for row in [*GIVEN, *rows]]
    assert all(len(row) == 1 + len(FIELDS[row[0]]) for row in rows)
