"""Lab 09 against its reference, another right loop, mistakes that learners make, and cheats."""

from __future__ import annotations

import base64
import gc
import json
import re
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import numpy as np
import pytest

from course_lib import labs
from course_lib.errors import MISSING_FILE, EngineError
from course_lib.labs import Examiner, Outcome
from course_lib.labs.lab09_runtime import figures, network, requests
from course_lib.labs.lab09_runtime.judge import costs, mistakes, recorded, replay
from course_lib.labs.lab09_runtime.judge.order import Order
from course_lib.labs.lab09_runtime.judge.recorded import Step
from course_lib.labs.lab09_runtime.lab import ByHand
from course_lib.labs.lab09_runtime.reference import SERVING_LOOP
from course_lib.labs.lab09_runtime.sandboxed import run_loop
from course_lib.standin import gpu
from tests.labs.quick import judged_reference
from tests.labs.submissions import lab09 as made
from tests.labs.untouched import leave_untouched

LAB = labs.find("lab09")
assert isinstance(LAB, ByHand)
SOLVED = {"answers": "full", "order": "full", "leaks": "full", "overlap": "full"}
ROOT = Path(__file__).resolve().parents[2]


class InThread:
    """A conversation with the loop's program in a thread, in place of one with a process."""

    def __init__(self, command: Any, **_: Any) -> None:
        self.to, self.source = SimpleQueue[dict[str, Any]](), SimpleQueue[str]()

    def __enter__(self) -> InThread:
        def ask(message: dict[str, Any]) -> dict[str, Any]:
            self.source.put(json.dumps(message))
            return self.to.get()

        self.thread = Thread(target=lambda: run_loop.serve(self.to.get(), ask))
        self.thread.start()
        return self

    def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self.to.put(message)
        return dict(json.loads(self.source.get(timeout=60)))

    def __exit__(self, *_: Any) -> None:
        while self.thread.is_alive():  # whatever it asks has the answer that there is no more
            self.to.put({})
            self.thread.join(0.05)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The loop runs in this process. What a submission replaces in the stand-in comes back."""

    monkeypatch.setattr(recorded, "Conversation", InThread)
    for name in ("note", "note_row"):
        monkeypatch.setattr(gpu.Gpu, name, getattr(gpu.Gpu, name))
    gc.collect()
    gc.freeze()  # the process of a loop has little to collect, and this one much
    yield
    gc.unfreeze()
    gpu.reset()


def examined(folder: Path, source: str, seed: int = 3) -> dict[str, Outcome]:
    made.write(folder, source)
    return {one.task.id: one for one in LAB.examine(folder, Examiner(seed=seed)).outcomes}


def tiers(outcomes: dict[str, Outcome]) -> dict[str, str]:
    return {name: one.tier for name, one in outcomes.items()}


# Right answers


def test_the_judge_gives_the_reference_full_marks(tmp_path):
    judged_reference(LAB, tmp_path)


@pytest.mark.parametrize("seed", (3, 4))
def test_another_right_answer_and_the_reference(seed, tmp_path, in_process):
    """Three streams with events are at least as fast as two sets of buffers."""
    ours = costs.schedule(_plain(SERVING_LOOP, tmp_path, seed)).time_us
    theirs = costs.schedule(_plain(made.THREE_STREAMS, tmp_path, seed)).time_us
    assert theirs <= schedule_bound(seed) and ours <= schedule_bound(seed)
    assert tiers(examined(tmp_path, made.THREE_STREAMS, seed)) == SOLVED
    assert tiers(examined(tmp_path, SERVING_LOOP, seed)) == SOLVED


def _plain(source: str, folder: Path, seed: int) -> tuple[Step, ...]:
    made.write(folder, source)
    scenes = requests.scenes(np.random.default_rng(seed))[:1]
    return recorded.record(folder / run_loop.FILE, scenes)[0].steps


def schedule_bound(seed: int) -> float:
    return 1.05 * costs.turns(requests.scenes(np.random.default_rng(seed))[0].requests, 2).time_us


def test_the_notebook_has_the_references_loop():
    """The cost model's "two sets" are the reference, call by call."""
    cells = json.loads((ROOT / "solutions" / LAB.name / f"{LAB.name}.ipynb").read_text())["cells"]
    (source,) = ("".join(cell["source"]) for cell in cells if cell["id"] == "loop")
    kept = [line for line in source.splitlines(keepends=True)[1:] if "### " not in line]
    assert "".join(kept).rstrip() == SERVING_LOOP.rstrip()


def test_the_reference_takes_the_time_of_two_sets(tmp_path, in_process):
    steps = _plain(SERVING_LOOP, tmp_path, 3)
    assert costs.schedule(steps).time_us == pytest.approx(schedule_bound(3) / 1.05, rel=0.02)


def test_the_untouched_release_has_none(tmp_path):
    leave_untouched(LAB.name, tmp_path)
    found = LAB.examine(tmp_path, Examiner())
    assert found.points == 0
    assert {one.message for one in found.outcomes} == {found.outcomes[0].message}
    assert "still empty" in found.outcomes[0].message and found.outcomes[0].hint


def test_nothing_was_handed_in(tmp_path):
    found = LAB.examine(tmp_path, Examiner())
    assert found.points == 0 and [one.task.id for one in found.outcomes] == list(SOLVED)
    assert {one.code for one in found.outcomes} == {MISSING_FILE}


# Mistakes


@pytest.mark.parametrize("name", made.MISTAKES)
def test_a_mistake_is_named(name, tmp_path, in_process):
    changes, task, tier, words = made.MISTAKES[name]
    outcome = examined(tmp_path, made.changed(changes))[task]
    share = {"full": 1.0, "partial": 0.5, "none": 0.0}[tier]
    assert (outcome.tier, outcome.points) == (tier, share * outcome.task.points), outcome.message
    assert words in f"{outcome.message} {outcome.hint}" and outcome.hint, outcome.message


def test_each_mistake_in_the_order_has_its_own_words():
    said = {words for _, task, _, words in made.MISTAKES.values() if task == "order"}
    assert len(said) >= 8


@pytest.mark.parametrize(
    "rows",
    [
        "request.ravel('K').reshape(request.shape)",
        "request if request.flags.c_contiguous else request.T.reshape(request.shape)",
    ],
)
def test_cheat_requests_in_the_order_of_the_memory(rows, tmp_path, in_process):
    copied = {"self.host_in[:rows] = request": f"self.host_in[:rows] = {rows}"}
    assert tiers(examined(tmp_path, made.changed(copied)))["answers"] == "none"


def test_cheat_requests_as_if_they_were_contiguous(tmp_path):
    """In a process of its own, because it reads beyond the end of arrays."""
    rows = "np.lib.stride_tricks.as_strided(request, strides=(512, 4))"
    copied = {"self.host_in[:rows] = request": f"self.host_in[:rows] = {rows}"}
    assert tiers(examined(tmp_path, made.changed(copied)))["answers"] == "none"


def test_one_set_of_buffers_loses_the_overlap_alone(tmp_path, in_process):
    found = examined(tmp_path, made.changed(made.ONE_SET))
    assert tiers(found) == SOLVED | {"overlap": "none"}
    assert re.search(r"One request after the other takes \d{3} us", found["overlap"].message)


def test_what_fails_as_a_whole_says_where(tmp_path, in_process):
    found = examined(tmp_path, "import tensorrt\n\n1 / 0\n")
    assert all("serving_loop.py: line 3: ZeroDivisionError" in one.message for one in found.values())
    found = examined(tmp_path, "def server(plan, requests):\n    return []\n")
    assert "does not define the function serve(plan, requests)" in found["order"].message
    found = examined(tmp_path, "def serve(plan, requests):\n    return 7\n")
    assert "it must return a list of arrays and None" in found["answers"].message


@pytest.mark.parametrize("hog", ["KEPT = np.ones(1 << 27)", "KEPT = [bytes(1 << 20) for _ in range(1024)]"])
def test_a_loop_that_takes_a_gigabyte_has_no_memory(hog, tmp_path):
    found = examined(tmp_path, f"import numpy as np\n\n{hog}\n")
    assert all(one.tier == "none" and "MemoryError" in one.message for one in found.values())


def test_a_loop_that_never_ends_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "TIME_LIMIT_S", 2.0)
    found = examined(tmp_path, "def serve(plan, requests):\n    while True: pass\n")
    assert all(one.tier == "none" and "it did not finish within 2 s" in one.message for one in found.values())


# Cheats


@pytest.mark.parametrize(
    ("source", "task", "words"),
    [
        (made.ON_THE_HOST, "answers", "is right, but no copy brought it from the device"),
        (made.ON_THE_HOST, "overlap", "Solve task 1 first"),
        (made.UPLOADS_ITS_ANSWERS, "answers", "that no run computed from a request"),
        (made.UPLOADS_ITS_ANSWERS, "leaks", "Solve task 1 first"),
        (made.DROPS_WAITS, "order", "that the host had not waited for"),
        (made.DROPS_WAITS, "overlap", "is not timed"),
        (made.FORGES_ROWS, "overlap", "Solve task 1 first"),
        (made.FORGES_SIZES, "answers", "a trace that the stand-in does not write"),
        (made.changed(made.READS_LATE), "answers", "Not met: right answers, no request rejected"),
        (made.changed(made.SHARES_ITS_ANSWERS), "order", "A buffer is used again too early"),
        (made.ADDS_AN_EMPTY_ROW, "order", "a trace that the stand-in does not write"),
    ],
)
def test_a_cheat_gains_nothing(source, task, words, tmp_path, in_process):
    outcome = examined(tmp_path, source)[task]
    assert outcome.points == 0 and words in outcome.message, outcome.message


def test_finalizers_that_are_called_early_say_nothing(tmp_path):
    """In a process of its own: PyTorch's finalizers would unload its operators in this one."""
    outcome = examined(tmp_path, made.SAYS_THAT_ALL_IS_GONE)["leaks"]
    assert outcome.points == 0 and "contexts: 2" in outcome.message, outcome.message


@pytest.mark.parametrize("choice", made.TWO_LOOPS)
@pytest.mark.parametrize("seed", (3, 4, 5))
def test_two_loops_gain_nothing_over_the_safe_one(choice, seed, tmp_path, in_process):
    """The fast loop ends with a request that no profile contains and gives nothing back; the safe one is serial."""
    found = examined(tmp_path, made.two_loops(choice), seed)
    assert found["overlap"].tier in made.TWO_LOOPS[choice][1], found["overlap"].message
    assert sum(one.points for one in found.values()) <= 8


@pytest.mark.parametrize("source", made.NEVER_WAITS.values(), ids=made.NEVER_WAITS)
def test_a_request_that_is_overwritten_has_had_its_run(source, tmp_path, in_process):
    """A data race costs the tasks about data races, and nothing is said about requests in hand."""
    found = examined(tmp_path, source)
    assert tiers(found) == {"answers": "none", "order": "none", "leaks": "full", "overlap": "none"}
    (held,) = (one for one in found["order"].criteria if one.name.startswith("requests in hand"))
    assert held.met and held.found == "0"
    assert "Pinned memory was overwritten" in found["order"].message


@pytest.mark.parametrize("seed", (3, 4))
def test_the_hint_is_not_of_another_request(seed, tmp_path, in_process):
    found = examined(tmp_path, made.FORGETS_A_COPY, seed)["answers"]
    assert found.tier == "none" and found.message.startswith("The answer to request 9"), found.message
    assert "returned False" not in found.hint, found.hint


ALL_FIRST = {
    "takes_all_first": made.changed(made.TAKES_ALL_FIRST),
    "keeps_the_error": made.changed(made.KEEPS_THE_ERROR),
    "asks_later": made.changed(made.KEEPS_THE_ERROR, made.ASKS_LATER),
    "asks_never": made.changed(made.KEEPS_THE_ERROR, made.ASKS_NEVER),
    "edits_the_trace": made.changed(made.EDITS_THE_TRACE, made.changed(made.TAKES_ALL_FIRST)),
}


@pytest.mark.parametrize("source", ALL_FIRST.values(), ids=ALL_FIRST)
def test_a_loop_that_takes_all_requests_first_is_no_service(source, tmp_path, in_process):
    found = examined(tmp_path, source)
    assert tiers(found) == {"answers": "full", "order": "partial", "leaks": "partial", "overlap": "partial"}
    for task in ("order", "leaks", "overlap"):
        assert "requests in hand when another one was taken" in found[task].message
        assert "takes requests from the iterator before" in found[task].hint


@pytest.mark.parametrize(("held", "tier"), [(3, "full"), (4, "partial")])
def test_a_few_requests_may_wait_for_their_run(held, tier, tmp_path, in_process):
    ahead = """    def ahead():
        held = []
        for request in requests:
            held.append(request)
            if len(held) > HELD:
                yield held.pop(0)
        yield from held

"""
    changes = {
        "    answers, turn = {}, 0\n": ahead.replace("HELD", str(held)) + "    answers, turn = {}, 0\n",
        "in enumerate(requests)": "in enumerate(ahead())",
    }
    assert examined(tmp_path, made.changed(changes))["order"].tier == tier


# The judge alone


def steps(*rows: tuple[Any, ...]) -> list[Step]:
    """A trace with an engine, two contexts, two streams, and memory for eight rows each way."""
    given: list[tuple[Any, ...]] = [
        ("engine", 1, mistakes.digest(network.plan())),
        ("context", 2, 1),
        ("context", 3, 1),
        ("stream", 10),
        ("stream", 11),
        ("allocate", 1 << 20, 8 * 512),
        ("allocate", 1 << 21, 8 * 128),
        ("allocate", 1 << 22, 8 * 128),
    ]
    found = [Step(row[0], dict(zip(run_loop.ROWS[row[0]], row[1:], strict=True))) for row in [*given, *rows]]
    return [Step("in", {**one.fields, "called": one.data}) if one.kind == "in" else one for one in found]


def copy(stream: int, rows: int = 8) -> tuple[Any, ...]:
    return ("in", stream, 1 << 20, rows * 512, 0, 0, bytes(rows * 512), False)


def run(stream: int, context: int = 2, scores: int = 1 << 21, rows: int = 8, profile: int = 0) -> tuple[Any, ...]:
    return ("run", stream, context, profile, {"features": (rows, 128)}, {"features": 1 << 20, "scores": scores})


def said(*rows: tuple[Any, ...]) -> list[str]:
    return [one.said for one in replay.replayed(steps(*rows), [], network.plan()).mistakes]


WAIT = ("sync_device",)
ORDERS: dict[str, tuple[list[tuple[Any, ...]], str]] = {
    "two streams": ([copy(10), run(11), WAIT], "A wait is missing: the run of rows on stream 2"),
    "one stream": ([copy(10), run(10), WAIT], ""),
    "an event": ([("event", 5), copy(10), ("record", 10, 5), ("wait", 11, 5), run(11), WAIT], ""),
    "recorded too early": ([("event", 5), ("record", 10, 5), copy(10), ("wait", 11, 5), run(11), WAIT], "A wait is missing"),
    "waited for too early": ([("event", 5), ("wait", 11, 5), copy(10), ("record", 10, 5), run(11), WAIT], "A wait is missing"),
    "the host waits for the stream": ([copy(10), ("sync_stream", 10), run(11), WAIT], ""),
    "the host waits for the other stream": ([copy(10), ("sync_stream", 11), run(11), WAIT], "A wait is missing"),
    "the host waits for the event": ([("event", 5), copy(10), ("record", 10, 5), ("sync_event", 5), run(11), WAIT], ""),
    "the default stream waits for all": ([copy(10), run(0), copy(11), WAIT], ""),
    "all wait for the default stream": ([copy(0), run(11), WAIT], ""),
    "one context, two streams": ([copy(10), WAIT, run(10), run(11, scores=1 << 22), WAIT], "A context runs twice at once"),
    "two contexts, two streams": ([copy(10), WAIT, run(10), run(11, 3, 1 << 22), WAIT], ""),
    "a profile for a busy context": ([copy(10), run(10), ("profile", 11, 2, 1), WAIT], "The switch to profile 1 on stream 2"),
    "a profile on the stream of the run": ([copy(10), run(10), ("profile", 10, 2, 1), WAIT], ""),
    "a run before its profile": ([copy(10), WAIT, ("profile", 11, 2, 0), run(10), WAIT], "does not wait for the switch"),
    "only half is copied": ([copy(10, 4), run(10), WAIT], "reads features that no copy has written"),
    "nothing waits at the end": ([copy(10), run(10)], "When `serve` ended, the host had not waited for the copy of rows"),
    "freed in flight": ([copy(10), ("free", 1 << 20), WAIT], "Device memory was freed while the copy of rows"),
    "another engine": ([("engine", 4, "f" * 64), ("context", 9, 4), copy(10), run(10, 9), WAIT], "another engine than the given plan's"),
    "an answer is overwritten before it is read": (
        [("pin", 7, 1024), ("out", 10, 1 << 21, 1024, 7, 0), ("out", 10, 1 << 21, 1024, 7, 0), WAIT],
        "overwrites pinned bytes of an earlier copy that the host had not waited for",
    ),
    "an answer is read before it is overwritten": (
        [("pin", 7, 1024), ("out", 10, 1 << 21, 1024, 7, 0), ("sync_stream", 10), ("out", 10, 1 << 21, 1024, 7, 0), WAIT],
        "",
    ),
    "answers lie side by side": (
        [("pin", 7, 1024), ("out", 10, 1 << 21, 512, 7, 0), ("out", 10, 1 << 21, 512, 7, 512), WAIT],
        "",
    ),
    "a lost device": ([run(10, scores=7), ("lost", ""), ("after_loss", "enqueueV3")], "touches an address that is not device memory"),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_of_calls(name):
    rows, words = ORDERS[name]
    found = said(*rows)
    assert (words in found[0]) if words else not found, found


def test_a_copy_that_found_other_bytes_than_at_its_call():
    """Even if the process does not say that they changed. The words name the request that was meant."""
    wanted, other = (np.full((8, 128), value, np.float32) for value in (1, 2))
    row = ("in", 10, 1 << 20, 4096, 0, 0, other.tobytes(), False)
    traced = steps(("asked", 0), row, run(10), ("asked", 1), WAIT)
    place = next(index for index, step in enumerate(traced) if step.kind == "in")
    traced[place] = Step("in", {**traced[place].fields, "called": wanted.tobytes()})
    found = replay.replayed(traced, [wanted], network.plan())
    assert found.ahead == 0 and found.rows == 8
    assert [one.said for one in found.mistakes] == [mistakes.host_overwritten("stream 1").said]


def test_a_call_on_a_lost_device_is_a_mistake_of_its_own():
    found = said(run(10, scores=7), ("lost", ""), ("after_loss", "cuStreamSynchronize"), ("after_loss", "enqueueV3"))
    assert len(found) == 2 and found[1].startswith("enqueueV3 was called after the device was lost")
    assert len(said(run(10, scores=7), ("after_loss", "cuStreamSynchronize"))) == 1


def test_what_a_replay_computes():
    features = np.random.default_rng(1).standard_normal((8, 128)).astype(np.float32)
    rows: list[tuple[Any, ...]] = [("asked", 0), ("asked", 1)]
    rows += [("in", 10, 1 << 20, 4096, 0, 0, features.tobytes(), False), run(10)]
    rows += [("out", 10, 1 << 21, 1024, 0, 0), ("out", 10, 1 << 20, 1024, 0, 0), ("within", 10, 1 << 22, 1 << 21, 1024)]
    rows += [("out", 10, 1 << 22, 1024, 0, 0), WAIT, ("stream_gone", 10), ("stream_gone", 999), ("free", 1 << 22)]
    found = replay.replayed(steps(*rows), [features], network.plan())
    assert [home.computed for home in found.homes] == [True, False, True] and not found.mistakes and found.rows == 8
    np.testing.assert_allclose(found.homes[2].data.view(np.float32).reshape(8, 32), network.scores(features), rtol=1e-5)
    assert found.left == {
        "device memory": 2,
        "pinned host memory": 0,
        "streams": 1,
        "events": 0,
        "engines": 1,
        "contexts": 2,
    }


@pytest.mark.parametrize(
    "row",
    [
        copy(99),
        run(10, rows=9),
        run(10, rows=9, profile=1),
        run(10, context=77),
        ("profile", 10, 2, 5),
        ("free", 5),
        ("allocate", 1 << 20, 64),
        ("allocate", 1 << 30, 0),
        ("allocate", 1 << 30, 1 << 40),
        ("in", 10, 1 << 20, 512, 33, 0, bytes(512), False),
        ("run", 10, 2, 0, {}, {}),
        ("asked", 1),
    ],
)
def test_what_no_stand_in_writes_is_rejected(row):
    with pytest.raises(EngineError, match="a trace that the stand-in does not write"):
        replay.replayed(steps(row), [], network.plan())


def test_an_output_allocator_is_not_replayed():
    row = ("run", 10, 2, 0, {"features": (8, 128)}, {"features": 1 << 20})
    with pytest.raises(EngineError, match="output allocator, which the grader does not replay"):
        replay.replayed(steps(row), [], network.plan())


def test_waits_of_an_unknown_event_order_nothing():
    order = Order()
    work = order.enqueued(1)
    order.read(Step("wait", {"stream": 2, "event": 9}))
    order.read(Step("sync_event", {"event": 9}))
    assert not order.enqueued(2).follows(work) and not order.ended(work)


# The answer of a hostile process

ONE = requests.Scene(requests.PLAIN, (np.zeros((2, 128), np.float32),))
SCENE = {"rows": [], "answers": [], "error": "", "raised": "", "empty": False, "late": []}


@pytest.mark.parametrize(
    "scene",
    [
        {"rows": [["whirl"]]},
        {"rows": [["free"]]},
        {"rows": [["free", -1]]},
        {"rows": [["free", True]]},
        {"rows": [["free", 1 << 63]]},
        {"rows": [["free", 1.5]]},
        {"rows": [["in", 1, 1, 4, 0, 0, "AAA", False]]},
        {"rows": [["in", 1, 1, 5, 0, 0, "AAAA", False]]},
        {"rows": [["run", 1, 1, 0, {"x": 1}, {}]]},
        {"rows": [["run", 1, 1, 0, {str(n): [1] for n in range(300)}, {}]]},
        {"rows": 7},
        {"answers": [{"shape": [1], "data": "AAAA"}]},
        {"answers": [{"shape": [2], "data": base64.b64encode(bytes(4)).decode()}]},
        {"answers": [None] * 300},
        {"error": 7},
    ],
)
def test_an_answer_in_another_form_is_rejected(scene):
    with pytest.raises(EngineError, match="a trace that the stand-in does not write"):
        recorded.played(ONE, lambda _: SCENE | scene)


@pytest.mark.parametrize("answer", [{}, {"rows": 7}, {"rows": []}, {"asked": True}, {"asked": True, "rows": []}])
def test_an_answer_that_is_none_is_rejected(answer):
    with pytest.raises(EngineError, match="a trace that the stand-in does not write"):
        recorded.played(ONE, lambda _: answer)


def test_an_answer_has_limits():
    for rows, words in (
        ([["sync_device"]] * recorded.MOST_STEPS, "Which of your loops does not end"),
        ([["stream", n] for n in range(300)], "more than 64 streams"),
        ([["in", 1, 1, 3 << 20, 0, 0, "A" * (4 << 20), False]] * 3, "copy only the rows of each request"),
        ([["out", 1, 1, 3 << 20, 0, 0]] * 3, "its copies move more than 8 MiB"),
    ):
        with pytest.raises(EngineError, match=words):
            recorded.played(ONE, lambda _, rows=rows: SCENE | {"rows": rows})


# What the notebook uses


def test_the_schedule_of_a_loop_is_drawn(tmp_path, in_process):
    made.write(tmp_path, SERVING_LOOP)
    plain = requests.scenes(np.random.default_rng(2))[0].requests
    found = LAB.schedule(plain, tmp_path / run_loop.FILE)
    drawn = figures.draw_schedule(found, "Copies beside runs")
    assert drawn.axes[0].get_xlabel() == "time by the cost model (us)"
    assert [label.get_text() for label in drawn.axes[0].get_yticklabels()][1:] == [
        "copies to the device",
        "copies to the host",
        "runs",
    ]
    made.write(tmp_path, "def serve(plan, requests):\n    raise KeyError(1)\n")
    with pytest.raises(EngineError, match=r"serving_loop\.py: line 2: KeyError"):
        LAB.schedule(plain, tmp_path / run_loop.FILE)


def test_the_given_plan_is_the_graders(tmp_path):
    from course_lib.standin import tensorrt_module

    LAB.write_given(tensorrt_module.make(network.VERSION), tmp_path)
    assert (tmp_path / "engine.plan").read_bytes() == network.plan()


def test_more_sets_of_buffers_are_faster_up_to_a_bound():
    plain = requests.scenes(np.random.default_rng(3))[0].requests
    one, two, three, eight = (costs.turns(plain, sets).time_us for sets in (1, 2, 3, 8))
    runs = sum(costs.RUN_US + costs.ROW_US * len(request) for request in plain)
    assert runs < eight <= three < two < 0.7 * one


def test_every_scene_needs_both_profiles_and_has_its_rejected_ones():
    for seed in range(20):
        for scene in requests.scenes(np.random.default_rng(seed)):
            rows = [len(request) for request in scene.requests if requests.fits(request)]
            assert min(rows) <= network.PROFILES[0][-1] < max(rows)
            rejected = [request.shape for request in scene.requests if not requests.fits(request)]
            assert len(rejected) == (4 if scene.name == requests.MIXED else 0)
            columns = [shape[1] for shape in rejected]
            assert not rejected or min(columns) < network.COLUMNS < max(columns)


def test_the_longest_trace_is_replayed():
    """What a hostile process can send at most: all streams, and accesses that nothing orders."""
    rows: list[tuple[Any, ...]] = [("stream", 100 + n) for n in range(60)]
    rows += [copy(100 + n % 60, 1) if n % 3 else copy(0, 1) for n in range(recorded.MOST_STEPS - 100)]
    found = replay.replayed(steps(*rows), [], network.plan())
    assert len(found.mistakes) > 1000


def test_a_loop_that_ends_at_a_rejected_request_has_not_overlapped_there(tmp_path, in_process):
    """It did only a part of the scene's work, in less than the time that all of it may take."""
    found = examined(tmp_path, made.changed({"            return False\n": "            raise ValueError('bad request')\n"}))
    assert found["overlap"].points == 0 and "with rejected requests is an error" in found["overlap"].message
