"""Lab 10 against its reference, mistakes that learners make, and cheats for its metrics."""

from __future__ import annotations

import inspect
import json
import re
import sys
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

from course_lib import labs
from course_lib.engines import load
from course_lib.errors import EngineError, ExaminerFault
from course_lib.labs import Examiner
from course_lib.labs.lab10_profiling import checks, figures, network, reference
from course_lib.labs.lab10_profiling import service as services
from course_lib.labs.lab10_profiling.checks import Timed, checked_error
from course_lib.labs.lab10_profiling.network import fresh_stream
from course_lib.labs.lab10_profiling.sandboxed import pipeline
from course_lib.models import digits
from course_lib.profiling import Event, Timeline
from tests.labs.quick import judged_reference
from tests.labs.submissions import changed, table

LAB = labs.find("lab10")
REFERENCE = Path(inspect.getfile(reference.Pipeline)).read_text(encoding="utf-8")
MADE = table("lab10")
ROWS = MADE["mistakes"] | MADE["cheats"]
LEARNER = "ada"  # whose pipeline is the one in given.py
RANGES = {
    "batch": "infer",
    "compression": "decode",
    "conversion": "hand over",
    "engine": "open engine",
    "lock": "lock",
    "logging": "log",
    "pixels": "normalize",
    "self-test": "self-test",
}
GUILTY = ("batch", "conversion", "engine", "pixels")
EXAMINER = Examiner()
NOISE = np.random.default_rng(1).permutation(np.linspace(300.0, 500.0, 40))  # ms, and the given pipeline takes 800


# ---- whole submissions


def test_the_judge_gives_the_reference_full_marks(tmp_path):
    judged_reference(LAB, tmp_path)


# ---- answers


@pytest.fixture
def examine(tmp_path, monkeypatch):
    """Examine a text with the fast pipeline in the given one's place, which answers in the same way, and with times of a table."""
    monkeypatch.setattr(network, "given", lambda learner="": REFERENCE)
    monkeypatch.setattr(services, "TIME_LIMIT_S", 3.0)

    def outcomes(source: str, yours_ms=50.0, only: str | None = None, **results: float):
        (tmp_path / "pipeline.py").write_text(source)
        with LAB.work(tmp_path, EXAMINER) as work:
            work.results |= {"latencies": {"given": np.full(40, 800.0), "yours": np.resize(yours_ms, 40)}, **results}
            tasks = [LAB.task(task) for task in ("equal", "throughput") if only in (None, task)]
            return {task.id: LAB._checked(task, work) for task in tasks}

    return outcomes


@pytest.mark.parametrize("name", ROWS)
def test_a_mistake_or_a_cheat_in_the_answers(examine, name):
    row = ROWS[name]
    equal = examine(changed(MADE[row["of"]] if "of" in row else REFERENCE, row["changes"]), only="equal")["equal"]
    assert (equal.tier, row["words"] in equal.message, row["hint"] in equal.hint) == (row["tier"], True, True), equal
    assert "\n" not in equal.message and len(equal.message) < 400


def test_another_right_answer(examine):
    assert {task: outcome.tier for task, outcome in examine(MADE["threads"]).items()} == {"equal": "full", "throughput": "full"}


@pytest.mark.parametrize(
    ("yours_ms", "expected"),
    [
        (50.0, ("full", "full")),
        (260.0, ("full", "partial")),  # one cause is left
        (500.0, ("none", "none")),  # the given pipeline is equal to itself, and that is not work
        (800.0, ("none", "none")),
        (NOISE / 4, ("full", "inconclusive")),
        (NOISE, ("inconclusive", "inconclusive")),
    ],
)
def test_points_follow_from_the_throughput_over_the_given_pipeline(examine, yours_ms, expected):
    found = examine(REFERENCE, yours_ms, error=0.0)
    assert tuple(outcome.tier for outcome in found.values()) == expected, found
    assert re.search(r"\d\.\d\dx", found["throughput"].message)
    assert found["throughput"].hint or expected[1] == "full"


def test_nothing_is_open_without_the_reference(examine, monkeypatch):
    """The learner's bundle decides everything: its text for the given pipeline is not that for the reference."""
    monkeypatch.setitem(sys.modules, "course_lib.labs.lab10_profiling.reference", None)
    right, wrong = examine(REFERENCE, error=0.0), examine(REFERENCE, 800.0, error=0.0)
    assert not any(outcome.open for outcome in (*right.values(), *wrong.values()))
    assert all(right[task].message != wrong[task].message for task in right)


def test_answers_are_compared_scan_by_scan():
    expected = {"0": np.eye(10, dtype=np.float32)[:3], "1": np.eye(10, dtype=np.float32)[3:]}

    def error(change) -> float:
        return checked_error(expected, {name: change(rows) for name, rows in expected.items()})

    assert error(lambda rows: rows + np.float32(1e-4)) == pytest.approx(0.01, rel=0.01)
    for change, words in {
        (lambda rows: rows[::-1]): "another order",
        (lambda rows: rows * np.nan): "off by nan %",
        (lambda rows: rows[0]): "has 3 scans, its answer 1 rows",
    }.items():
        with pytest.raises(EngineError, match=words):
            error(change)


# ---- what is timed


def stream():
    return fresh_stream([3, 2], np.random.default_rng())


def test_nothing_of_a_submission_is_alive_while_the_given_pipeline_is_timed(tmp_path):
    """A cheat: threads and processes that keep the processor busy."""
    trace = tmp_path / "alive"
    spin = f"def spin():\n    while True:\n        open({str(trace)!r}, 'a').write('x')\n"
    busy = f"import os, threading\n{spin}if os.fork() == 0:\n    spin()\nthreading.Thread(target=spin, daemon=True).start()\n"
    assert Timed(lambda: services.started(busy + REFERENCE, EXAMINER), stream).time_ms(stream()) > 0
    size = trace.stat().st_size
    time.sleep(0.2)
    assert size == trace.stat().st_size > 0


def test_timed_answers_are_compared(tmp_path, monkeypatch):
    """A cheat: right while equality is examined, then constant."""
    monkeypatch.setattr(network, "given", lambda learner="": REFERENCE)
    (tmp_path / "pipeline.py").write_text(changed(REFERENCE, MADE["constant_later"]))
    with LAB.work(tmp_path, EXAMINER) as work, pytest.raises(EngineError, match="off by"):
        work.results["error"] = 0.0
        assert work.latencies


def test_a_thread_may_read_one_request_ahead():
    room = threading.Semaphore(pipeline.MOST_OPEN)
    reader = pipeline.one_ahead([[b"1"], [b"2"], [b"3"]], room, threading.get_ident())
    assert [next(reader), next(reader)] == [[b"1"], [b"2"]]
    room.release()
    assert next(reader) == [b"3"]


def test_a_fault_in_our_own_pipeline_is_the_examiners():
    with pytest.raises(ExaminerFault), services.started("class Pipeline: pass\n1 / 0", EXAMINER, ours=True):
        pass


# ---- causes


@pytest.fixture(scope="module")
def recording() -> Timeline:
    return services.record(network.given(), ours=True)


@pytest.fixture(scope="module")
def measured(recording):
    return network.shares(recording)


def right_causes(measured) -> dict[str, dict[str, object]]:
    return {suspect: {"range": RANGES[suspect], "share": round(measured[RANGES[suspect]], 3)} for suspect in GUILTY}


def test_what_the_story_says_about_the_given_pipeline(measured):
    """Every guilty range costs several times what an innocent one does while serving; the start's range is not among them."""
    innocent = [measured.get(name, 0.0) for suspect, name in RANGES.items() if suspect not in GUILTY]
    guilty = [measured[RANGES[suspect]] for suspect in GUILTY]
    assert min(guilty) > 2 * max(innocent) and min(guilty) > checks.MATTERS > max(innocent), measured
    assert measured["prepare"] < measured["request"] <= 1 and "self-test" not in measured


def test_a_large_range_of_the_sorted_table_is_innocent(recording):
    total = {row.name: row.total_us for row in recording.summary() if row.kind == "range"}
    assert total["self-test"] > min(total[RANGES[suspect]] for suspect in GUILTY), total


def test_each_learner_has_an_instance_with_other_causes():
    assert network.given(LEARNER) == network.given() and "batch" not in network.costly(LEARNER)
    learners = [f"learner {number}" for number in range(60)]
    assert len({network.costly(learner) for learner in learners}) > 12
    for suspect, (form, other) in network.FORMS.items():
        assert network.given().count(form) == 1, suspect
        compile(network.given().replace(form, other), suspect, "exec")


def test_every_form_is_right_and_costs_what_it_should():
    """All six other forms at once: the costly ones cost, the others do not, and the answers are those of `given.py`."""
    text = network.given()
    for form, other in network.FORMS.values():
        text = text.replace(form, other)
    for _ in range(checks.RECORDINGS):  # load from elsewhere moves shares, so the grader takes several, too
        shares = network.shares(services.record(text, ours=True))
        guilty = [shares[RANGES[suspect]] for suspect in network.FORMS if suspect not in network.COSTLY_IN_FILE]
        innocent = [shares[RANGES[suspect]] for suspect in network.COSTLY_IN_FILE]
        if min(guilty) > checks.MATTERS > max(innocent):
            break
    else:
        pytest.fail(f"{shares}")
    sent = fresh_stream([3, 20], np.random.default_rng(4))
    with services.started(text, EXAMINER, ours=True) as other, services.started(network.given(), EXAMINER, ours=True) as given:
        assert checked_error(given.infer(sent), other.infer(sent)) < checks.TOLERANCE


def test_the_causes_of_a_friend_are_wrong_and_a_file_without_an_id_is_for_an_instructor(name_causes, measured):
    friends = {**right_causes(measured), "engine": None, "lock": {"range": "lock", "share": 0.25}}
    assert name_causes(**friends).tier == "none"
    outcome = name_causes(text=json.dumps({"causes": right_causes(measured)}))
    assert (outcome.tier, outcome.code) == ("inconclusive", "not_examined")


@pytest.fixture
def name_causes(tmp_path, monkeypatch, recording, measured):
    monkeypatch.setattr(services, "record", lambda *_, **__: recording)

    def examine(causes: object = None, text: str | None = None, **changes: object):
        named = {**right_causes(measured), **changes} if causes is None else causes
        kept = {suspect: one for suspect, one in named.items() if one is not None}
        (tmp_path / "causes.json").write_text(json.dumps({"learner": LEARNER, "causes": kept}) if text is None else text)
        return LAB.examine(tmp_path, EXAMINER, only="causes").outcomes[0]

    return examine


def test_true_causes_have_full_points_also_as_another_run_measured_them(name_causes, measured):
    assert name_causes().tier == "full"
    assert name_causes(engine={"range": "open engine", "share": measured["open engine"] * 1.2}).tier == "full"
    assert name_causes(pixels={"range": "normalize", "share": measured["normalize"] - 0.04}).tier == "full"
    assert name_causes(batch={"range": "infer", "share": measured["infer"] * 0.6}).tier == "full"  # on another processor


@pytest.mark.parametrize(
    ("changes", "tier", "words", "hint"),
    [
        ({"engine": None}, "partial", "one that costs time is not named", "Sum every range"),
        ({"logging": {"range": "log", "share": 0.01}}, "partial", "logging: innocent or negligible", "not always slow"),
        ({"pixels": {"range": "prepare", "share": 0.5}}, "partial", "is not the range", "innermost range"),
        ({"batch": {"range": "infer", "share": 0.9}}, "partial", "does not take 90 % of the serving time", "innermost range"),
        ({"engine": {"range": "load", "share": 0.2}}, "partial", "no range 'load'", "innermost range"),
        ({"engine": None, "batch": None, "lock": {"range": "lock", "share": 0.1}}, "none", "3 of 8", "looks bad"),
    ],
)
def test_a_wrong_judgment_costs_points(name_causes, changes, tier, words, hint):
    outcome = name_causes(**changes)
    assert outcome.tier == tier and outcome.points == {"partial": 1.5, "none": 0}[tier]
    assert words in outcome.message and hint in outcome.hint, outcome


def test_naming_everybody_or_nobody_is_no_answer(name_causes, measured):
    """Cheats."""
    everybody = {suspect: {"range": name, "share": measured.get(name, 0.0)} for suspect, name in RANGES.items()}
    assert name_causes(everybody).tier == "none"
    assert name_causes({}).tier == "none"
    assert name_causes({suspect: {"range": "request", "share": 0.25} for suspect in GUILTY}).tier == "none"


@pytest.mark.parametrize(
    ("recordings", "batch"),
    [
        ([{"infer": 0.04}, {"infer": 0.06}], {"range": "infer", "share": 0.05}),  # as on a GPU, where one image costs little
        ([{"infer": 0.06}, {"infer": 0.04}], None),
        ([dict.fromkeys(("infer", "hand over", "normalize"), 0.06), {}], {"range": "infer", "share": 0.3}),
    ],
    ids=["named near the limit", "not named near the limit", "under load"],
)
def test_a_mistake_counts_only_if_each_recording_shows_it(name_causes, monkeypatch, recordings, batch):
    usual = {RANGES[suspect]: 0.3 for suspect in GUILTY}
    several = iter([usual | changes for changes in recordings])
    monkeypatch.setattr(network, "shares", lambda _: next(several))
    causes = {suspect: {"range": RANGES[suspect], "share": 0.3} for suspect in GUILTY}
    assert name_causes({**causes, "batch": batch}).tier == "full"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "causes.json is not JSON"),
        ("[]", "causes.json: Input should be an object, found []"),
        ('{"causes": {"gpu": {}}}', "causes.json: causes.gpu: Input should be 'batch', "),
        ('{"causes": {"copy": {"range": "copy", "share": 0, "x": 1}}}', "unknown key 'causes.copy.x': remove it"),
        ('{"causes": {"lock": ["lock"]}}', "lock: Input should be an object"),
        ('{"causes": {"lock": {"range": "lock", "share": 40}}}', "lock.share: Input should be less than or equal to 1"),
        ('{"causes": {"lock": {"range": "lock", "share": true}}}', "lock.share: Input should be a valid number"),
        ("[" * 100_000, "longer than"),
    ],
)
def test_causes_that_cannot_be_read_are_one_line(name_causes, text, words):
    outcome = name_causes(text=text)
    assert outcome.points == 0 and outcome.hint and words in outcome.message and "\n" not in outcome.message, outcome


# ---- what the notebook uses


def test_shares_leave_the_start_out():
    timeline = Timeline(
        (
            Event("start", "range", 0, 400, "start"),
            Event("self-test", "range", 100, 200, "t"),
            Event("request", "range", 500, 100, "t"),
            Event("infer", "range", 525, 25, "t"),
            Event("engine", "kernel", 525, 25, "engine"),
        ),
        (0, 600),
    )
    assert network.shares(timeline) == {"request": 1.0, "infer": 0.25}
    assert network.serving(timeline).span_us == 100
    assert network.serving(Timeline((), (0, 0))).span_us == 0


def test_the_recording_shows_the_engine_as_a_device(recording):
    requests = [event for event in recording.events if event.name == "request"]
    (self_test,) = (event for event in recording.events if event.name == "self-test")
    serving = [event for event in recording.kernels if event.start_us >= self_test.end_us]
    assert len(requests) == len(network.RECORDED)
    assert {event.row for event in recording.kernels} == {"engine"} and len(serving) == sum(network.RECORDED)


def test_a_stretch_that_was_not_recorded(recording):
    with pytest.raises(ValueError, match="no 102 ranges"):
        figures.draw_stretch(recording, first=100, count=2)


def test_the_engine_of_a_pipeline_runs_on_the_processor_of_every_grader(recording):
    grader = Examiner(runner="tensorrt@on_a_gpu")  # an environment that this machine does not have
    theirs = network.shares(services.record(network.given(), grader, ours=True))
    assert theirs.keys() == network.shares(recording).keys()


def test_the_network_reads_digits():
    test, engine = digits("test"), load(services.plan())
    found = [engine.infer({"image": test.images[i : i + 32]})["logits"] for i in range(0, len(test), 32)]
    assert (np.concatenate(found).argmax(1) == test.labels).mean() > 0.98
    assert 8e6 < network.model().ByteSize() < 20e6


def test_a_stream_is_scans_as_the_text_says():
    drawn = fresh_stream([2, 1], np.random.default_rng(0))
    ends = np.cumsum(drawn["lengths"])
    scans = [zlib.decompress(drawn["bytes"][end - n : end].tobytes()) for end, n in zip(ends, drawn["lengths"], strict=True)]
    assert [len(scan) for scan in scans] == [64 * 64] * 3 and drawn["sizes"].tolist() == [2, 1]
    gray = np.frombuffer(scans[0], np.uint8)
    assert np.median(gray) > 200 and gray.min() < 100
