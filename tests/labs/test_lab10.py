"""Lab 10 against its reference, mistakes that learners make, and cheats for its metrics."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course_lib import labs, style
from course_lib.benchmark import compare
from course_lib.engines import load
from course_lib.engines.worker.allowance import Allowance
from course_lib.errors import CourseError, EngineError, ExaminerFault
from course_lib.grading.isolation import sandbox
from course_lib.grading.judge.judging import judge
from course_lib.labs import Examination, Examiner
from course_lib.labs.framework import withheld
from course_lib.labs.lab10_profiling import causes as lab10_causes
from course_lib.labs.lab10_profiling import figures, lab
from course_lib.labs.lab10_profiling import service as services
from course_lib.labs.lab10_profiling.causes import Evidence
from course_lib.labs.lab10_profiling.judge import answers, throughput
from course_lib.labs.lab10_profiling.network import exported
from course_lib.labs.lab10_profiling.reference_causes import GUILTY, RANGES
from course_lib.labs.lab10_profiling.sandboxed import pipeline
from course_lib.labs.lab10_profiling.stream import fresh_stream, usual_sizes
from course_lib.models import digits
from course_lib.profiling import Event, Timeline
from tests.labs.quick import tiers
from tests.labs.submissions import lab10 as made
from tests.labs.untouched import leave_untouched

LAB = labs.find("lab10")

# ---- pipelines that learners write

THREADS = '''
import queue
import threading
import zlib

import numpy as np


class Pipeline:
    """Prepares the next requests while the engine works on this one. A scan still goes through Python numbers."""

    def __init__(self, open_engine, span):
        self.engine = open_engine()

    def run(self, requests):
        ready = queue.Queue(maxsize=4)
        threading.Thread(target=self.fill, args=(requests, ready), daemon=True).start()
        while (images := ready.get()) is not None:
            if isinstance(images, Exception):
                raise images
            yield np.concatenate([self.engine.infer(images[i : i + 32]) for i in range(0, len(images), 32)])

    def fill(self, requests, ready):
        try:
            for scans in requests:
                ready.put(np.stack([self.prepare(scan) for scan in scans]))
            ready.put(None)
        except Exception as error:
            ready.put(error)

    def prepare(self, scan):
        gray = np.array(list(zlib.decompress(scan)), np.float32).reshape(64, 64)
        return 1 - gray.reshape(1, 32, 2, 32, 2).mean((2, 4)) / 255
'''
AVERAGED = '''
import zlib

import numpy as np


class Pipeline:
    """One engine, one request at a time, four strided views instead of loops."""

    def __init__(self, open_engine, span):
        self.engine, self.span = open_engine(), span

    def run(self, requests):
        return map(self.one, requests)

    def one(self, scans):
        gray = np.stack([np.frombuffer(zlib.decompress(scan), np.uint8).reshape(64, 64) for scan in scans]).astype(np.float32)
        paper = (gray[:, ::2, ::2] + gray[:, ::2, 1::2] + gray[:, 1::2, ::2] + gray[:, 1::2, 1::2]) / 4
        images = (1 - paper / 255)[:, None]
        parts = [images[: len(images) // 2], images[len(images) // 2 :]] if len(images) > 32 else [images]
        return np.concatenate([self.engine.infer(part) for part in parts])
'''
BROKEN_THREAD = (
    THREADS.replace("requests, ready):\n        try:", "requests, ready):\n        if True:")
    .replace("        except Exception as error:\n            ready.put(error)\n", "")
    .replace("ready.put(np.stack", "ready.put(1 / 0 or np.stack")
)


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


REFERENCE = services.reference()
YIELD = "yield np.concatenate(rows)"

# text, tier of equality, words of the message, words of the hint
WRONG = {
    "last partial batch dropped": (
        changed(
            REFERENCE,
            ("range(0, len(images), BATCH)", "range(0, len(images) - BATCH + 1, BATCH)"),
            (YIELD, "yield np.concatenate([images[:0, 0, 0, :10], *rows])"),
        ),
        "none",
        "its answer 0 rows",
        "last batch",
    ),
    "batches of 33": (changed(REFERENCE, ("else 32", "else 33")), "none", "outside every profile", "1 to 32 images"),
    "rows in another order": (
        changed(REFERENCE, (YIELD, "yield np.concatenate(rows)[::-1]")),
        "none",
        "another order",
        "order of the requests",
    ),
    "the whole stream read ahead": (
        changed(REFERENCE, ("for scans in requests", "for scans in list(requests)")),
        "none",
        "reads ahead too far",
        "before you read the one after the next",
    ),
    "the last request never answered": (
        changed(REFERENCE, ("for scans in requests", "for scans in list(requests)[:-1]")),
        "none",
        "1 requests were sent and 0 answers",
        "Each request needs one answer",
    ),
    "every second scan skipped": (
        changed(
            REFERENCE,
            ("images = self.prepare(scans)", "images = self.prepare(scans[::2])"),
            (YIELD, "yield np.repeat(np.concatenate(rows), 2, axis=0)[: len(scans)]"),
        ),
        "none",
        "off by",
        "scan by scan",
    ),
    "every second row and column instead of the mean": (
        changed(REFERENCE, ("else at_once(gray)", "else np.float32(1) - gray[:, ::2, ::2] / np.float32(255)")),
        "partial",
        "is rounding",
        "rounds, clips or scales",
    ),
    "sums in eight bits": (changed(REFERENCE, (".astype(np.uint16)", "")), "none", "off by", "scan by scan"),
    "255 instead of 256": (
        changed(REFERENCE, ("1 / (4 * 255)", "1 / (4 * 256)")),
        "partial",
        "is rounding",
        "rounds, clips or scales",
    ),
    "a thread that dies": (BROKEN_THREAD, "none", "no answer to", "A thread that ends with an exception"),
    "nothing written yet": (
        changed(
            REFERENCE, ("        for scans in requests:", "        raise NotImplementedError\n        for scans in requests:")
        ),
        "none",
        "NotImplementedError",
        "still empty",
    ),
    "another name": (changed(REFERENCE, ("class Pipeline", "class MyPipeline")), "none", "no class Pipeline", "record(source)"),
    "no Python": ("class Pipeline(", "none", "SyntaxError", "record(source)"),
    "it leaves": (changed(REFERENCE, ("import json", "import json, sys\nsys.exit(3)")), "none", "SystemExit", "record(source)"),
    "it is killed": (
        changed(REFERENCE, ("import json", "import json, os\nos._exit(0)")),
        "none",
        "the worker ended",
        "record(source)",
    ),
    "answers of another shape": (
        changed(REFERENCE, (YIELD, "yield np.concatenate(rows).argmax(1)")),
        "none",
        "expected (scans, 10)",
        "record(source)",
    ),
    "NaN": (changed(REFERENCE, (YIELD, "yield np.concatenate(rows) * np.nan")), "none", "off by", "scan by scan"),
    # cheats
    "memorized answers": (
        changed(REFERENCE, (YIELD, "yield np.eye(10)[[len(s) % 10 for s in scans]]")),
        "none",
        "off by",
        "scan by scan",
    ),
    "a smaller network": (
        changed(
            REFERENCE, (YIELD, "yield images.reshape(len(images), -1) @ np.random.default_rng(1).random((1024, 10)) / 500")
        ),
        "none",
        "off by",
        "scan by scan",
    ),
    **{
        f"a single request, right for {right}": (
            changed(REFERENCE, ("run(", made.KNOWS_A_SINGLE_REQUEST.format(right=made.SINGLE_REQUESTS[right]))),
            "none",
            "off by",
            "scan by scan",
        )
        for right in ("none", "short ones")
    },
    "the examiner's own pipeline": (
        "from course_lib.labs.lab10_profiling.reference import Pipeline",
        "none",
        "may import numpy",
        "record(source)",
    ),
}


@pytest.fixture
def submission(tmp_path, monkeypatch):
    """Examine a pipeline's equality with the course's own fast one, which answers as the given does."""
    monkeypatch.setattr(services, "given", lambda: REFERENCE)
    monkeypatch.setattr(services, "TIME_LIMIT_S", 4.0)

    def examine(source: str) -> Examination:
        (tmp_path / "pipeline.py").write_text(source)
        return LAB.examine(tmp_path, Examiner(measure_s=1), only="equal")

    return examine


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_the_answers(submission, monkeypatch, name):
    source, tier, words, hint = WRONG[name]
    raced = []
    monkeypatch.setattr(throughput, "race", lambda *_, **__: raced.append(1) or _measured_as(2.0))
    examined = submission(source)
    equal = examined.outcomes[0]
    assert (equal.task.id, equal.tier) == ("equal", tier), equal
    assert words in equal.message and "\n" not in equal.message and len(equal.message) < 400, equal
    assert hint in equal.hint, equal
    assert bool(raced) == (tier != "none")
    json.dumps(dict(examined.figures), allow_nan=False)


def _measured_as(factor: float | np.ndarray):
    class Measured:
        def latencies(self):
            return {"given": np.full(10, 100.0), "yours": np.full(10, 100.0) / factor}

    return Measured()


def test_equality_counts_only_beyond_the_given_pipeline(submission, monkeypatch):
    """The given pipeline is equal to itself; that is not work."""
    monkeypatch.setattr(throughput, "race", lambda *_, **__: _measured_as(1.05))
    assert tiers(submission(REFERENCE)) == {"equal": "none"}
    monkeypatch.setattr(throughput, "race", lambda *_, **__: _measured_as(1.2))
    assert tiers(submission(REFERENCE)) == {"equal": "full"}
    monkeypatch.setattr(throughput, "race", lambda *_, **__: _measured_as(np.tile([0.9, 1.3], 5)))
    found = submission(REFERENCE)
    assert tiers(found) == {"equal": "inconclusive"} and found.points == 0


# ---- whole submissions


def test_the_judge_gives_the_reference_full_marks(tmp_path):
    """In the sandbox, where there is one."""
    LAB.write_reference(tmp_path)
    verdict = judge(LAB, tmp_path, trusted=bool(sandbox.problem()))
    assert not verdict.fault, verdict.fault
    assert tiers(verdict) == dict.fromkeys(("causes", "equal", "throughput"), "full"), verdict.outcomes
    assert (verdict.score, verdict.max_score) == (10, 10)
    assert verdict.comparison.speedups["yours"].median > 8  # seen: 27 to 33


def test_nothing_handed_in_has_none(tmp_path):
    examined = LAB.examine(tmp_path, Examiner())
    assert (examined.points, examined.max_points) == (0, 10)
    assert all(outcome.hint and "\n" not in outcome.message for outcome in examined.outcomes)


def test_untouched_release_has_none(tmp_path):
    leave_untouched(LAB.name, tmp_path)
    examined = LAB.examine(tmp_path, Examiner())
    assert examined.points == 0
    assert "still empty" in examined.outcomes[1].hint


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"#" * (1 << 17)])
def test_a_pipeline_that_is_no_text_is_one_line(tmp_path, content):
    (tmp_path / "pipeline.py").write_bytes(content)
    equal = LAB.examine(tmp_path, Examiner(), only="equal").outcomes[0]
    assert equal.points == 0 and equal.message.startswith("pipeline.py ") and "\n" not in equal.message


@pytest.mark.parametrize("claim", made.CLAIMS)
def test_a_failure_claims_no_code_of_the_graders(claim, submission):
    """A cheat: the name of an exception is the code of a task that only the grader can decide, and the check shows it as open."""
    found = submission(made.CLAIMS[claim])
    assert [one.tier for one in found.outcomes] == ["none"] * len(found.outcomes) and found.open_points == 0
    assert {(one.mark, one.code) for one in found.outcomes} == {("not yet", "")}, found.outcomes


# ---- throughput: one race of many pipelines, judged one by one

KNOWN = """\
            if tuple(scans) in self.known:
                yield self.known[tuple(scans)]
                continue"""
HASHES = changed(
    services.given(),
    ("        self.seen = 0\n", "        self.seen, self.known = 0, {}\n"),
    ("for scans in requests:", f"for scans in requests:\n{KNOWN}"),
    ("            yield answer", "            self.known[tuple(scans)] = answer\n            yield answer"),
)
FORGED = "import time\ntime.perf_counter = time.monotonic = time.perf_counter_ns = lambda: 0\n" + services.given()
# text, and the number of fixes that its throughput is worth, or the causes that are left in it
TEXTS = {
    "given": (services.given(), 0),
    "answers kept by hash": (HASHES, 0),
    "clock of its own stopped": (FORGED, 0),
    "threads, Python numbers": (THREADS, 3),
    "four views": (AVERAGED, 3),
    **{
        f"left: {' and '.join(left)}": (services.reference(left), left)
        for left in (
            ("conversion",),
            ("engine",),
            ("conversion", "pixels"),
            ("batch", "engine"),
            ("batch", "conversion", "pixels"),
        )
    },
}


def expected(latencies, name):
    """The numbers of fixes that a text can be worth. What causes cost depends on the machine, and on its other load."""
    _, left = TEXTS[name]
    if isinstance(left, int):
        return {left}
    reference = latencies["reference"]
    predicted = reference + sum(latencies[cause] - reference for cause in left)
    least, most = (throughput.fixes({**latencies, "yours": factor * predicted})[0] for factor in (1.1, 0.9))
    return {*range(least, most + 1)}


def is_settled(latencies):
    """Whether each text's number of fixes is known, apart from those on the border of two."""
    return all(
        throughput.fixes({**latencies, "yours": latencies[name]})[1] or len(expected(latencies, name)) > 1 for name in TEXTS
    )


@pytest.fixture(scope="module")
def latencies():
    """Every text beside the yardsticks, none in a sandbox; measured like a submission, until it is known what each is worth."""
    from contextlib import ExitStack

    examiner = Examiner()
    rng = examiner.rng()
    texts = {"reference": REFERENCE, **{cause: services.reference((cause,)) for cause in GUILTY}}
    texts |= {name: text for name, (text, _) in TEXTS.items()}
    with ExitStack() as stack:
        subjects = {name: stack.enter_context(services.started(text, examiner)) for name, text in texts.items()}
        measured = compare(
            subjects,
            lambda: fresh_stream(usual_sizes(rng, 2), rng),
            baseline="given",
            time_limit_s=240,  # 27 s at best and all of it at worst, beside other work
            warmup=1,
            min_rounds=10,
            settled=is_settled,
        )
    return measured.latencies()


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_throughput_is_worth_its_fixes(latencies, name):
    yours = {**latencies, "yours": latencies[name]}
    ratios = {key: round(float(np.median(value)), 1) for key, value in yours.items()}
    found, decided = throughput.fixes(yours)
    possible = expected(latencies, name)
    assert found in possible or (not decided and found < max(possible)), ratios  # undecided on a machine that stays busy


def table(reference=20.0, given=600.0, costs=(100, 120, 130, 150), yours=0.0):
    rows = {"given": given, "reference": reference, "yours": yours}
    rows |= {cause: reference + cost for cause, cost in zip(GUILTY, costs, strict=True)}
    return {name: np.full(12, float(value)) for name, value in rows.items()}


@pytest.mark.parametrize(
    ("yours", "fixed"), [(20, 3), (170, 3), (205, 3), (210, 2), (330, 2), (340, 1), (420, 1), (490, 0), (600, 0)]
)
def test_yardsticks(yours, fixed):
    """By hand: with one cause left 170 ms / 0.82, with two 300 / 0.9, with three 420 / 0.87; at most 600 / 1.1."""
    assert throughput.fixes(table(yours=yours)) == (fixed, True)


def test_floors_hold_where_causes_cost_next_to_nothing():
    cheap = table(given=30, costs=(1, 1, 1, 1), yours=20)
    assert throughput.fixes(cheap) == (2, True)  # 1.5 times the given pipeline is not 2
    assert throughput.fixes({**cheap, "yours": np.full(12, 28.0)}) == (0, True)


def outcome_of(latencies):
    return LAB._throughput(type("Measured", (), {"latencies": lambda self: latencies})())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("yours", [207, 150, 250])
def test_noise_of_the_machine_is_inconclusive(seed, yours):
    """It meets every subject: a pipeline near its bound waits for another measurement, and one that is fast enough never fails."""
    rng = np.random.default_rng(seed)
    noisy = {name: np.tile(values, 2) for name, values in table(yours=yours).items()}
    noisy = {name: values * np.where(rng.random(24) < 0.4, rng.uniform(2, 12, 24), 1.0) for name, values in noisy.items()}
    assert not throughput.own_noise(noisy).proven
    outcome = outcome_of(noisy)
    assert "the machine is not the cause" not in outcome.message
    if yours == 150:
        assert outcome.tier in ("full", "inconclusive"), outcome.message


def test_little_noise_near_the_bound_is_inconclusive():
    near = table(yours=207)
    near["yours"] = np.tile([150.0, 290.0], 6)
    fixed, sure = throughput.fixes(near)
    assert not sure and fixed < 3
    assert outcome_of(near).tier == "inconclusive" and "longest now" in outcome_of(near).hint


# The times of a stream in ms, drawn by the pipeline itself. The reference takes 20, and all points need at most 207.
@pytest.mark.parametrize(
    "drawn",
    [
        lambda rng: 20.0 if rng.random() < 0.5 else 220.0,
        lambda rng: 20.0 if rng.random() < 0.5 else 2200.0,
        lambda rng: rng.choice([20.0, 100.0, 300.0, 400.0]),
        lambda rng: rng.uniform(20.0, 400.0),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_cheat_noise_of_its_own_decides_against_it(drawn, seed):
    """It was "the machine is busy", and the points stayed open."""
    rng = np.random.default_rng(seed)
    noisy = {name: np.tile(values, 3) * rng.uniform(1, 1.1, 36) for name, values in table(yours=20).items()}
    noisy["yours"] = np.array([drawn(rng) for _ in range(36)])
    outcome = outcome_of(noisy)
    assert throughput.decided(noisy) and outcome.tier != "inconclusive", outcome.message
    assert outcome.tier == "full" or "so the machine is not the cause" in outcome.message


# Of twelve streams: the number of long ones, and the time of each in ms. The reference takes 20, the given pipeline 600.
@pytest.mark.parametrize(("count", "ms"), [(3, 3000), (5, 600), (2, 20_000), (4, 1500)])
def test_a_minority_of_long_streams_counts(count, ms):
    """A cheat: most processes are fast. The median of the ratios is the reference's, and all streams together are slower than needed."""
    slow = table(yours=20)
    slow["yours"][np.random.default_rng(ms).permutation(12)[:count]] = ms
    assert throughput.speedup(slow["given"], slow["yours"], seed=0).median > 25
    assert throughput.fixes(slow)[0] < 3
    longer = {name: np.tile(values, 4) for name, values in slow.items()}
    assert throughput.reached(longer, 1) is False
    outcome = LAB._throughput(type("Measured", (), {"latencies": lambda self: longer})())
    assert outcome.points < 5 and "all streams together" in outcome.message


@pytest.mark.parametrize("ms", [100, 400, 1000])
def test_a_single_disturbed_stream_costs_no_points(ms):
    disturbed = table(yours=20)
    disturbed["yours"][5] = ms
    assert throughput.reached(disturbed, 1) is not False
    longer = {name: np.tile(values, 2) for name, values in disturbed.items()}
    longer["yours"][17] = 20
    assert throughput.fixes(longer) == (3, True)


_COUNTS_STREAMS = """\
    def run(self, requests):
        self.streams = getattr(self, "streams", 0) + 1
        time.sleep(0 if self.streams < 3 else 1)
        yield from self.answers(requests)

    def answers("""


def test_a_stream_is_not_known_by_its_number():
    """A cheat: only the first two streams of a process are fast."""
    examiner = Examiner()
    rng = examiner.rng()
    fresh = lambda requests: fresh_stream([3] * requests, rng)  # noqa: E731
    source = changed(REFERENCE, ("    def run(", _COUNTS_STREAMS), ("import json\n", "import json\nimport time\n"))
    with services.started(REFERENCE, examiner) as truth:
        for before in (0, 2):
            subject = throughput.Restarted(lambda: services.started(source, examiner), truth, fresh, lambda n=before: n)
            assert (subject.time_ms(fresh(3)) > 1000) == (before > 0)


@pytest.mark.parametrize(("fixed", "points", "tier"), [(3, 5, "full"), (2, 3, "partial"), (1, 1.5, "partial"), (0, 0, "none")])
def test_points_for_throughput(fixed, points, tier):
    yours = {3: 20, 2: 290, 1: 420, 0: 590}[fixed]
    outcome = LAB._throughput(type("Measured", (), {"latencies": lambda self: table(yours=yours)})())
    assert (outcome.points, outcome.tier) == (pytest.approx(points), tier)
    assert bool(outcome.hint) == (fixed < 3)


def test_nothing_of_a_submission_is_alive_while_others_are_timed(tmp_path):
    """A cheat: threads that keep the processor busy while the yardsticks run."""
    trace = tmp_path / "alive"
    spin = f"def spin():\n    while True:\n        open({str(trace)!r}, 'a').write('x')\n"
    busy = f"import threading\n{spin}threading.Thread(target=spin, daemon=True).start()\n"
    examiner = Examiner()
    rng = examiner.rng()
    with services.started(REFERENCE, examiner) as truth:
        fresh = lambda requests=1: fresh_stream([3] * requests, rng)  # noqa: E731
        subject = throughput.Restarted(lambda: services.started(busy + REFERENCE, examiner), truth, fresh)
        assert subject.time_ms(fresh()) > 0
    size = trace.stat().st_size
    time.sleep(0.2)
    assert size == trace.stat().st_size > 0


def test_a_slow_start_counts_although_it_is_not_timed():
    """Each stream starts the pipeline anew, so seconds before the first answer would hold the grader for minutes."""
    examiner = Examiner()
    rng = examiner.rng()
    with services.started(REFERENCE, examiner) as truth, pytest.raises(EngineError, match="more than 0 s in all"):
        throughput.Restarted(
            lambda: services.started(REFERENCE, examiner), truth, lambda _: fresh_stream([3], rng), left=Allowance(0.0)
        ).time_ms(fresh_stream([3], rng))


def test_answers_are_looked_at_while_they_are_timed():
    """A cheat: right while equality is examined, then constant."""
    examiner = Examiner()
    rng = examiner.rng()
    later = changed(
        REFERENCE, (YIELD, "self.n = getattr(self, 'n', 0) + 1\n            yield np.concatenate(rows) * (self.n < 2)")
    )
    with services.started(REFERENCE, examiner) as truth, pytest.raises(EngineError, match="off by"):
        throughput.Restarted(lambda: services.started(later, examiner), truth, lambda _: fresh_stream([3], rng)).time_ms(
            fresh_stream([5], rng)
        )


@pytest.mark.parametrize("right", made.SINGLE_REQUESTS)
def test_answers_to_short_streams_are_looked_at(right):
    """A cheat: the streams before the timed one have one request each, and their answers are zeros."""
    examiner = Examiner()
    rng = examiner.rng()
    source = changed(REFERENCE, ("run(", made.KNOWS_A_SINGLE_REQUEST.format(right=made.SINGLE_REQUESTS[right])))
    fresh = lambda requests: fresh_stream([40] * requests, rng)  # noqa: E731
    with services.started(REFERENCE, examiner) as truth:
        subject = throughput.Restarted(lambda: services.started(source, examiner), truth, fresh, lambda: 2)
        with pytest.raises(EngineError, match="off by"):
            subject.time_ms(fresh(3))


def test_a_dataclass_and_a_mark_in_front_are_python():
    """Python itself runs both; the mark is what Windows' editor writes at a file's beginning."""
    source = """
from __future__ import annotations
from dataclasses import dataclass
import numpy as np

@dataclass
class Shape:
    rows: int
    columns: int = 10

class Pipeline:
    def __init__(self, open_engine, span): ...
    def run(self, requests):
        for request in requests:
            shape = Shape(len(request))
            yield np.zeros((shape.rows, shape.columns), np.float32)
"""
    with services.started("\ufeff" + source, Examiner()) as service:
        assert [len(rows) for rows in services.answers(service, fresh_stream((2, 1), np.random.default_rng(3)))] == [2, 1]


def test_an_answer_cannot_be_filled_in_later():
    """Otherwise a pipeline could yield at once, read the whole stream, and answer in full batches at its end."""
    later = """
import numpy as np
class Pipeline:
    def __init__(self, open_engine, span): ...
    def run(self, requests):
        given = []
        for request in requests:
            given.append(np.zeros((len(request), 10), np.float32))
            yield given[-1]
        for answer in given:
            answer[:] = 1
"""
    with services.started(later, Examiner()) as service:
        found = services.answers(service, fresh_stream((2, 1), np.random.default_rng(3)))
    assert [float(np.abs(answer).max()) for answer in found] == [0, 0]


# ---- causes


def test_a_thread_may_read_one_request_ahead():
    """It waits for room as at a socket, also where its own queue would hold more."""
    stream = fresh_stream((3, 1, 2, 5, 4, 1), np.random.default_rng(3))
    with services.started(THREADS, Examiner()) as service:
        assert [len(rows) for rows in services.answers(service, stream)] == [3, 1, 2, 5, 4, 1]


COUNTS_ANEW = """
import gc
for one in gc.get_objects():
    if type(one).__name__ == "Requests":
        one._in_hand = -(10**9)
"""
TAKES_FROM_THE_HOST = """
import gc
for one in gc.get_objects():
    if isinstance(one, list) and one and isinstance(one[0], list) and one[0] and isinstance(one[0][0], bytes):
        everything = one
    if type(one).__name__ == "Requests":
        everything = [one._receive() for _ in range(one._count)]
"""


@pytest.mark.parametrize("code", [COUNTS_ANEW, TAKES_FROM_THE_HOST])
def test_what_the_host_did_not_send_cannot_be_read(code, monkeypatch):
    """The pipeline's process may forget its own count. The host has another one, in a process without learner code."""
    monkeypatch.setattr(services, "TIME_LIMIT_S", 2.0)
    body = "".join(f"        {line}\n" for line in code.strip().splitlines())
    source = changed(REFERENCE, ("        for scans in requests:", f"{body}        for scans in list(requests):"))
    with services.started(source, Examiner()) as service, pytest.raises(EngineError, match="no answer to 'infer' within"):
        services.answers(service, fresh_stream((3, 1, 2, 5), np.random.default_rng(3)))


def test_the_bound_is_said_beside_the_ratio():
    """0.12x of the reference with all points read like a failure."""
    outcome = LAB._throughput(type("Measured", (), {"latencies": lambda self: table(yours=170)})())
    over, of_reference = outcome.criteria
    assert outcome.tier == "full" and over.bound == "at least 2x" and over.met and of_reference.met
    assert "which is the reference with its costliest cause left in" in of_reference.bound
    assert "at least about 0.096x" in of_reference.bound


@pytest.fixture(scope="module")
def recording() -> Timeline:
    return services.record(services.given(), ours=True)


@pytest.fixture(scope="module")
def measured(recording):
    return lab10_causes.shares(recording)


def test_what_the_story_says_about_the_given_pipeline(measured):
    """Every guilty range costs several times what an innocent one does while serving; the start's range is not among them."""
    innocent = {suspect: measured.get(RANGES[suspect], 0.0) for suspect in RANGES if suspect not in GUILTY}
    guilty = {suspect: measured[RANGES[suspect]] for suspect in GUILTY}
    assert min(guilty.values()) > 3 * max(innocent.values()), measured
    assert min(guilty.values()) > lab10_causes.MATTERS and innocent["self-test"] == 0
    assert measured["prepare"] < measured["request"] <= 1


def test_a_large_range_of_the_sorted_table_is_innocent(recording):
    """The start's self-test is as large as a cause, so the table's first rows are not the answer."""
    total = {row.name: row.total_us for row in recording.summary() if row.kind == "range"}
    assert total["self-test"] > min(total[RANGES[suspect]] for suspect in GUILTY), total
    assert total["start"] >= total["self-test"]


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
    assert lab10_causes.shares(timeline) == {"request": 1.0, "infer": 0.25}
    assert lab10_causes.serving(timeline).span_us == 100
    assert lab10_causes.serving(Timeline((), (0, 0))).span_us == 0


def test_load_that_moved_one_recording_costs_no_points(name_causes, monkeypatch, recording):
    """The first recording under load, in which everything but the loading of the engine seems short."""
    slow = tuple(
        replace(event, duration_us=30 * event.duration_us) if event.name == "open engine" else event
        for event in recording.events
    )
    loaded = Timeline(slow, (0, 1.01 * max(event.end_us for event in slow)))
    recordings = iter([loaded, recording, recording])
    monkeypatch.setattr(services, "record", lambda *_, **__: next(recordings))
    assert name_causes().tier == "full"


def test_the_recording_shows_the_engine_as_a_device(recording):
    requests = [event for event in recording.events if event.name == "request"]
    assert len(requests) == len(services.RECORDED)
    work, (self_test,) = recording.kernels, [event for event in recording.events if event.name == "self-test"]
    serving = [event for event in work if event.start_us >= self_test.end_us]
    assert {event.row for event in work} == {"engine"} and len(serving) == sum(services.RECORDED) < len(work)
    assert 0 < recording.busy_us < 0.8 * recording.span_us


@pytest.fixture
def name_causes(tmp_path, monkeypatch, recording):
    monkeypatch.setattr(services, "record", lambda *_, **__: recording)

    def examine(causes: object = None, text: str | None = None, **changes: object):
        lab10_causes.write(tmp_path / "causes.json", recording)
        named = {**json.loads((tmp_path / "causes.json").read_text()), **changes} if causes is None else causes
        kept = {suspect: one for suspect, one in named.items() if one is not None}
        (tmp_path / "causes.json").write_text(json.dumps(kept) if text is None else text)
        return LAB.examine(tmp_path, Examiner(), only="causes").outcomes[0]

    return examine


def test_true_causes_have_full_points_also_as_another_run_measured_them(name_causes, measured):
    assert name_causes().tier == "full"
    assert name_causes(engine={"range": "open engine", "share": measured["open engine"] * 1.2}).tier == "full"
    assert name_causes(pixels={"range": "normalize", "share": measured["normalize"] - 0.04}).tier == "full"


@pytest.mark.parametrize(
    ("changes", "tier", "said", "hint"),
    [
        ({"engine": None}, "partial", "one that costs time", "Sum every range"),
        (
            {"logging": {"range": "log", "share": 0.01}},
            "partial",
            "Innocent or negligible: logging",
            "looks bad is not always slow",
        ),
        (
            {"self-test": {"range": "self-test", "share": 0.03}, "pixels": None},
            "partial",
            "self-test",
            "looks bad is not always slow",
        ),
        ({"pixels": {"range": "prepare", "share": 0.5}}, "partial", "is not the range", "innermost range"),
        ({"batch": {"range": "request", "share": 0.9}}, "partial", "is not the range", "innermost range"),
        ({"batch": {"range": "infer", "share": 0.9}}, "partial", "of the serving time, not 90 %", "innermost range"),
        ({"engine": {"range": "load", "share": 0.2}}, "partial", "no range 'load'", "innermost range"),
        ({"engine": {"range": "engine", "share": 0.2}}, "partial", "is the device's row, not a range", "innermost range"),
        ({"engine": {"range": "self-test", "share": 0.2}}, "partial", "while it serves", "innermost range"),
        (
            {"engine": None, "batch": None, "lock": {"range": "lock", "share": 0.1}},
            "none",
            "3 of 8",
            "looks bad is not always slow",
        ),
    ],
)
def test_a_wrong_judgment_costs_points(name_causes, changes, tier, said, hint):
    outcome = name_causes(**changes)
    assert outcome.tier == tier and outcome.points == {"partial": 1.5, "none": 0}[tier]
    assert said in outcome.message and hint in outcome.hint, outcome


def test_naming_everybody_or_nobody_is_no_answer(name_causes, measured):
    """Cheats."""
    everybody = {suspect: {"range": name, "share": measured.get(name, 0.0)} for suspect, name in RANGES.items()}
    assert name_causes(everybody).tier == "none"
    assert name_causes({}).tier == "none"
    assert name_causes({suspect: {"range": "request", "share": 0.25} for suspect in GUILTY}).tier == "none"


def test_a_guilty_suspect_without_weight_may_be_left_out():
    """As `batch` on a GPU, where one image costs little."""
    light = {"infer": 0.02, "hand over": 0.3, "open engine": 0.3, "normalize": 0.3}
    three = {suspect: Evidence(RANGES[suspect], 0.3) for suspect in GUILTY if suspect != "batch"}
    assert lab10_causes.judge(three, light).wrong == 0
    assert lab10_causes.judge({**three, "batch": Evidence("infer", 0.02)}, light).wrong == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not JSON"),
        ("[]", "has to be an object"),
        ('{"gpu": {}}', "the suspects are batch"),
        ('{"lock": ["lock"]}', "needs for 'lock'"),
        ('{"lock": {"range": "lock", "share": 40}}', "from 0 to 1"),
        ('{"lock": {"range": "lock", "share": NaN}}', "from 0 to 1"),
        ('{"lock": {"range": "lock", "share": true}}', "from 0 to 1"),
        ("[" * 100_000, "longer than"),
    ],
)
def test_causes_that_cannot_be_read_are_one_line(name_causes, text, said):
    outcome = name_causes(text=text)
    assert outcome.points == 0 and outcome.hint and said in outcome.message and "\n" not in outcome.message


KEYS = st.sampled_from([*RANGES, "range", "share"])
VALUES = st.recursive(
    st.none() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_file_is_causes_or_one_clear_line(tmp_path, data):
    file = tmp_path / "causes.json"
    file.write_bytes(data)
    try:
        found = lab10_causes.read(file)
    except CourseError as error:
        assert "causes.json" in str(error) and "\n" not in str(error)
    else:
        assert found.keys() <= RANGES.keys() and all(0 <= one.share <= 1 for one in found.values())


# ---- pieces


@cache
def answered(sizes: tuple[int, ...]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    stream = fresh_stream(sizes, np.random.default_rng(3))
    with services.started(services.given(), Examiner()) as given_service, services.started(AVERAGED, Examiner()) as other:
        return services.answers(given_service, stream), services.answers(other, stream)


def test_two_right_answers_agree_with_the_given_pipeline():
    expected, found = answered((1, 40, 33))
    assert [len(rows) for rows in expected] == [1, 40, 33]
    assert answers.largest_error(expected, found) < 1e-4
    assert answers.permuted(expected, [rows[::-1] for rows in found])
    with pytest.raises(EngineError, match="another order"):
        answers.check(expected, [rows[::-1] for rows in found])


def test_the_network_reads_digits(tmp_path):
    test, engine = digits("test"), load(services.plan(Examiner()))
    found = [engine.infer({"image": test.images[i : i + 32]})["logits"] for i in range(0, len(test), 32)]
    assert (np.concatenate(found).argmax(1) == test.labels).mean() > 0.98
    assert 8e6 < len(exported()) < 20e6


def test_a_stream_is_scans_as_the_text_says():
    import zlib

    stream = fresh_stream([2, 1], np.random.default_rng(0))
    ends = np.cumsum(stream["lengths"])
    scans = [zlib.decompress(stream["bytes"][end - n : end].tobytes()) for end, n in zip(ends, stream["lengths"], strict=True)]
    assert [len(scan) for scan in scans] == [64 * 64] * 3 and stream["sizes"].tolist() == [2, 1]
    gray = np.frombuffer(scans[0], np.uint8)
    assert np.median(gray) > 200 and gray.min() < 100
    again = fresh_stream([2, 1], np.random.default_rng(1))
    assert again["bytes"].tobytes() != stream["bytes"].tobytes()


@settings(max_examples=60, deadline=None)
@given(text=st.text(alphabet="0123456789 \t\n-abc.", max_size=60))
def test_a_hostile_recording_is_a_timeline_or_nonsense(text):
    class Lying:
        def infer(self, feeds):
            return {"events": np.frombuffer(text.encode(), np.uint8)}

    try:
        timeline = services.read_recording(Lying().infer({}))
    except EngineError as error:
        assert "invalid answer" in str(error)
    else:
        assert timeline.span_us >= 0


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"logits": np.zeros((3, 9), np.float32), "sizes": np.array([3])},
        {"logits": np.zeros((3, 10), np.float64), "sizes": np.array([3])},
        {"logits": np.zeros((3, 10), np.float32), "sizes": np.array([2])},
        {"logits": np.zeros((3, 10), np.float32), "sizes": np.array([4, -1])},
        {"logits": np.zeros((3, 10), np.float32), "sizes": np.array([1.5, 1.5])},
    ],
)
def test_hostile_answers_are_nonsense(found):
    service = type("Lying", (), {"infer": lambda self, feeds: found})()
    with pytest.raises(EngineError, match="invalid answer"):
        services.answers(service, {})


def test_a_fault_in_our_own_pipeline_is_the_examiners():
    with pytest.raises(ExaminerFault), services.started("class Pipeline: pass\n1 / 0", Examiner(), ours=True):
        pass


def test_ranges_are_nvtx_ranges_where_nvtx_is(monkeypatch):
    from course_lib.profiling.timelines import ranges

    told: list[str] = []
    monkeypatch.setattr(ranges, "_marker", lambda torch: (told.append, lambda: told.append("end")))
    recorder = pipeline.Recorder()
    with recorder.span("request"), recorder.span("infer", "engine"):
        pass
    assert told[2:] == ["request", "infer", "end", "end"]
    (inner, row, start, end), (outer, thread, before, after) = recorder.rows
    assert (inner, row, outer, thread) == ("infer", "engine", "request", "MainThread") and before <= start <= end <= after


def test_figures(recording):
    drawn = figures.draw_stretch(recording, count=2)
    assert "The engine works" in drawn.axes[0].get_title(loc="left")
    assert style.png(drawn) and style.png(figures.draw_stretch(recording, of="prepare", count=1))
    bars = figures.time_by_range({"given": recording, "yours": Timeline((Event("infer", "range", 0, 5e4, "t"),))})
    labels = [text.get_text() for text in bars.axes[0].get_yticklabels()]
    assert "hand over" in labels and "request" not in labels
    assert style.png(figures.time_by_range({"given": recording}))
    with pytest.raises(ValueError, match="no 102 ranges"):
        figures.draw_stretch(recording, first=100, count=2)


# ---- without the reference


@pytest.mark.parametrize(("factor", "tiers_found"), [(1.0, ("none", "none")), (3.0, ("full", "inconclusive"))])
def test_without_the_reference_a_pipeline_is_compared_with_the_given_one(tmp_path, monkeypatch, factor, tiers_found):
    """The learner's bundle measured nothing and showed the given pipeline itself as open."""
    monkeypatch.setattr(lab, "reference_causes", withheld)
    monkeypatch.setattr(lab.Profiling, "_equal", lambda self, *_: (self.outcome("equal", "full", ""), 0.0))
    monkeypatch.setattr(throughput, "race", lambda *_, **__: _measured_as(factor))
    (tmp_path / "pipeline.py").write_text(REFERENCE)
    found = LAB._pipeline(tmp_path / "pipeline.py", Examiner(), None).outcomes
    assert tuple(one.tier for one in found) == tiers_found
    assert f"found {factor:.2f}x" in str(found[1].criteria[0])


def test_without_the_reference_evidence_is_compared_with_the_recording(monkeypatch):
    measured = {"lock": 0.02, "decode": 0.4}
    named = {"lock": Evidence("lock", 0.02), "compression": Evidence("decode", 0.45)}
    assert "2 of 8 suspects are named. Right so far." in LAB._causes_so_far(named, measured).message
    named["pixels"] = Evidence("decode", 0.9)
    assert "pixels: 'decode' takes 40 % of the serving time, not 90 %. " in LAB._causes_so_far(named, measured).message
