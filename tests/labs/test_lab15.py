"""Lab 15 against its reference, other right answers, mistakes that learners make, and cheats for its metrics."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from functools import cache
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from course_lib import labs
from course_lib.benchmark import Interval
from course_lib.engines import load
from course_lib.labs import Examination, Examiner
from course_lib.labs.framework import onnx_model
from course_lib.labs.lab15_capstone import checks, given
from course_lib.labs.lab15_capstone import reference as lab15_reference
from course_lib.labs.lab15_capstone.checks import JudgedTrial
from course_lib.models import detector, export_onnx, video
from course_lib.precision import PercentileCalibrator, activations, insert_qdq, observe
from course_lib.recipe import Profile, Recipe
from tests.labs.quick import Quick, tiers

LAB = labs.find("lab15")
SEED, FRAMES, CALLS = 1, 100, 120
GOOD = lab15_reference.SETTINGS
CALL_MS = {"eager": 12.0, "first": 6.0, "reference": 3.0}  # the camera then has a period of 4.2 ms, and the budget is 6.3


class Worker(Quick):
    """Its engines also have a worker, as the pipeline expects."""

    def engine(self, plan):
        engine = load(plan)
        return nullcontext(SimpleNamespace(worker=engine, infer=engine.infer))

    reference = baseline = engine


@cache
def transformed(change, model: bytes, *_: object, **__: object) -> bytes:
    """In this process."""
    return change(model)


@cache
def network(side: int = 128) -> onnx.ModelProto:
    return export_onnx(detector(side), opset=17)


def recipe(batch: int = 1, side: int = 128, *, precision: str = "fp32", name: str = "frames", channels: int = 1) -> Recipe:
    shape = (batch, channels, side, side)
    return Recipe(precision=precision, profiles=(Profile(**{name: {"min": shape, "opt": shape, "max": shape}}),))


@pytest.fixture
def submission(tmp_path, monkeypatch):
    """Examine a submission on a short video with call times that are known: `call_ms` is what a call of yours takes."""

    def examine(
        model: onnx.ModelProto | None = None,
        asked: Recipe | None = None,
        text: str = "",
        *,
        call_ms: float | np.ndarray = 3.0,
        reference_ms: float | np.ndarray = CALL_MS["reference"],
        only: str | None = None,
        **settings: object,
    ) -> Examination:
        def modeled(detectors, calls, decided, time_limit_s):
            times = {**CALL_MS, "reference": reference_ms, "yours": call_ms}
            made = {name: np.resize(ms, CALLS) for name, ms in times.items()}
            decisions.append(decided(made))
            return made

        monkeypatch.setattr(checks, "call_times", modeled)
        onnx.save(model or network(), tmp_path / "model.onnx")
        (asked or recipe()).save(tmp_path / "recipe.toml")
        (tmp_path / "settings.toml").write_text(text or GOOD.model_copy(update=settings).dumps())
        return LAB.examine(tmp_path, Worker(seed=SEED), only=only)

    # Of so short a video, intervals would hold every bound.
    monkeypatch.setattr(checks, "resampled", lambda n, *_: [np.arange(n)])
    monkeypatch.setattr(checks.PipelineWork, "frames", FRAMES)
    monkeypatch.setattr(onnx_model, "transformed", transformed)
    decisions = examine.decisions = []
    return examine


def said(examined: Examination, task: str) -> str:
    return next(f"{outcome.message} {outcome.hint}" for outcome in examined.outcomes if outcome.task.id == task)


FULL = dict.fromkeys(("detect", "latency", "frames"), "full")
NONE = dict.fromkeys(FULL, "none")


# ---- right answers


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_reference_has_full_marks(tmp_path):
    """The real thing: workers, 1000 frames, measured times."""
    LAB.write_reference(tmp_path)
    examined = LAB.examine(tmp_path, Examiner())
    assert tiers(examined) == FULL, examined.outcomes
    assert examined.figures["mean_ap"] > 0.8
    assert min(examined.figures[f"{name}_ms"] for name in given.SLOW) > examined.figures["period_ms"], "they do not keep up"


def integer() -> dict:
    batches = [{"frames": part} for part in np.split(given.calibration_frames(128), 16)]
    seen = observe(network(), batches, tensors=activations(network()), progress=False)
    model = insert_qdq(network(), seen.ranges(PercentileCalibrator(99.99)), exclude=["/stem/Conv"])
    return {"model": model, "asked": recipe(precision="int8"), "queue": 3, "drop": "newest"}


def yolo() -> dict:
    """The detector as a YOLO export looks: colors, 192 pixels resized inside, another input name and 80 classes, digits last."""
    made = copy.deepcopy(network())
    graph = made.graph
    graph.input[0].CopyFrom(helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, 192, 192]))
    constants = {"mix": np.full((1, 3, 1, 1), 1 / 3, np.float32), "scales": np.array([1, 1, 2 / 3, 2 / 3], np.float32)}
    constants |= {"stretch": np.repeat([1.5, 1.0], [4, 10]).astype(np.float32).reshape(1, 14, 1)}
    constants |= {"boxes_end": np.array([4]), "zero": np.array([0]), "end": np.array([14]), "rows": np.array([1])}
    constants |= {"others": np.zeros((1, 70, 256), np.float32)}
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    for node in graph.node:
        node.output[:] = ["own" if name == "detections" else name for name in node.output]
    head = [
        helper.make_node("Conv", ["images", "mix"], ["gray"], name="mix_colors"),
        helper.make_node("Resize", ["gray", "", "scales"], ["frames"], name="resize", mode="linear"),
    ]
    tail = [
        helper.make_node("Mul", ["own", "stretch"], ["stretched"], name="stretch_boxes"),
        helper.make_node("Slice", ["stretched", "zero", "boxes_end", "rows"], ["boxes"], name="boxes"),
        helper.make_node("Slice", ["stretched", "boxes_end", "end", "rows"], ["digits"], name="digits"),
        helper.make_node("Concat", ["boxes", "others", "digits"], ["output0"], name="all_classes", axis=1),
    ]
    nodes = [*head, *graph.node, *tail]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.output[0].CopyFrom(helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, 84, 256]))
    graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    settings = {"size": 192, "classes": list(range(70, 80)), "call_ms": 4.0}
    return {"model": made, "asked": recipe(1, 192, name="images", channels=3), **settings}


RIGHT = {
    "float": dict,
    "other thresholds": lambda: {"confidence": 0.25, "overlap": 0.6, "call_ms": 4.0},
    "another calibrator": integer,
    "a YOLO file": yolo,
}


@pytest.mark.parametrize("name", RIGHT)
def test_more_than_one_answer_is_right(submission, name):
    examined = submission(**RIGHT[name]())
    assert tiers(examined) == FULL and submission.decisions == [True], examined.outcomes


# ---- mistakes and cheats


def divided_twice() -> dict:
    model = copy.deepcopy(network())
    model.graph.initializer.append(numpy_helper.from_array(np.array(255, np.float32), "again"))
    model.graph.node.insert(0, helper.make_node("Div", ["frames", "again"], ["divided"], name="normalize"))
    next(node for node in model.graph.node if node.op_type == "Sub").input[0] = "divided"
    return {"model": model}


def fixed_batch() -> dict:
    return {"model": export_onnx(detector(), dynamic_batch=False, opset=17), "asked": recipe(2), "batch": 2, "queue": 2}


def memorized() -> dict:
    """The same answer to every frame: what the first frame of the notebook's video shows."""
    frame = next(video(seed=1000))
    answer = np.zeros((1, 14, len(frame.boxes)), np.float32)
    answer[0, :4], answer[0, 4 + frame.classes, range(len(frame.boxes))] = frame.boxes.T, 0.9
    nodes = [
        helper.make_node("ReduceMax", ["frames"], ["most"], name="look", keepdims=0),
        helper.make_node("Mul", ["most", "nil"], ["nothing"], name="away"),
        helper.make_node("Add", ["answer", "nothing"], ["detections"], name="answer"),
    ]
    inputs = [helper.make_tensor_value_info("frames", TensorProto.FLOAT, [1, 1, 128, 128])]
    outputs = [helper.make_tensor_value_info("detections", TensorProto.FLOAT, answer.shape)]
    constants = [numpy_helper.from_array(answer, "answer"), numpy_helper.from_array(np.array(0, np.float32), "nil")]
    graph = helper.make_graph(nodes, "constant", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return {"model": model, "call_ms": 0.1}


WRONG = {  # the submission, its tiers, the task that says what is wrong, and its words
    "confidence too high": (
        lambda: {"confidence": 0.6},
        {**FULL, "detect": "partial"},
        "detect",
        "just below your `confidence`",
    ),
    "confidence too low": (lambda: {"confidence": 0.03}, NONE, "detect", "precision over recall"),
    "the printed default": (lambda: {"text": "size = 128"}, NONE, "detect", "precision over recall"),
    "no suppression": (lambda: {"overlap": 1.0}, {**FULL, "detect": "partial"}, "detect", "removes the doubles"),
    "divided twice": (divided_twice, NONE, "detect", "pixels from 0 to 1"),
    "a batch that waits": (
        lambda: {"batch": 8, "queue": 8, "asked": recipe(8), "call_ms": 14.0},
        {**FULL, "latency": "none"},
        "latency",
        "waits 29.4 ms for the last one",
    ),
    "skipped frames": (lambda: {"every": 2, "call_ms": 6.0}, {**FULL, "detect": "partial"}, "detect", "have moved on"),
    "too slow": (lambda: {"call_ms": 5.0}, {**NONE, "detect": "partial"}, "frames", "longer queue"),
    "too slow with a long queue": (
        lambda: {"call_ms": 5.0, "queue": 40},
        {**FULL, "latency": "none"},
        "latency",
        "faster than they are answered",
    ),
    "other pixels than the graph has": (lambda: {"size": 96}, NONE, "detect", "one batch of prepared frames"),
    "a fixed batch": (fixed_batch, NONE, "detect", "Which batches does the graph allow?"),
    "wrong settings": (lambda: {"text": "confidence = 3"}, NONE, "detect", "Settings()"),
    "memorized": (memorized, NONE, "latency", "task 1 is not earned"),
    "hard frames dropped": (lambda: {"call_ms": 40.0}, NONE, "detect", "Task 3 first"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(submission, name):
    make, expected, task, words = WRONG[name]
    examined = submission(**make())
    assert tiers(examined) == expected and words in said(examined, task), examined.outcomes


@pytest.mark.parametrize("machine", ["CPU", "GPU"])
def test_the_first_version_misses_its_budget(submission, monkeypatch, machine):
    """As exported and shown at 160 pixels, on machines where INT8 gains nothing: 1.5 times the call, whatever PyTorch needs."""
    for name, ms in {"CPU": {"eager": 9.0, "first": 4.5}, "GPU": {"eager": 6.6, "first": 4.5}}[machine].items():
        monkeypatch.setitem(CALL_MS, name, ms)
    first = {**given.FIRST.model_dump(), "queue": 8}
    examined = submission(network(160), given.recipe(160, "fp32"), call_ms=4.5, **first)
    assert examined.points <= 4 and tiers(examined)["latency"] == "none", examined.outcomes


def test_a_detector_that_is_far_too_slow_is_not_waited_for(submission, monkeypatch):
    monkeypatch.setattr(checks, "SLOWEST", 0.001)
    examined = submission()
    assert tiers(examined) == NONE and "cannot keep up with the camera" in said(examined, "detect")


def test_the_export_at_the_size_of_its_training_wins_only_where_it_is_fast(submission):
    assert submission(call_ms=4.6).points < 8  # where INT8 makes the reference 1.5 times as fast


# ---- what is not decided


def test_without_the_reference_the_given_detector_takes_its_place(submission, monkeypatch):
    monkeypatch.setattr(checks, "reference", labs.withheld)
    examined = submission()
    assert tiers(examined) == {"detect": "full", "latency": "inconclusive", "frames": "inconclusive"}
    assert all(outcome.open for outcome in examined.outcomes[1:]) and "a period of at most 4.2 ms" in str(examined.outcomes[1])
    assert tiers(submission(call_ms=5.0))["latency"] == "none", "too slow for the grader's camera as well"


@pytest.mark.parametrize("slow", given.SLOW)
def test_a_machine_that_cannot_tell_is_no_ones_fault(submission, monkeypatch, slow):
    monkeypatch.setitem(CALL_MS, slow, 3.2)
    examined = submission()
    assert tiers(examined) == {"detect": "full", "latency": "inconclusive", "frames": "inconclusive"}
    assert f"{slow} 3.2 ms" in said(examined, "latency") and submission.decisions == [False]


def test_every_check_measures_anew(submission):
    """The same files, checked twice: the second answer is not the first one's."""
    seen = [tiers(submission(call_ms=ms, only="latency"))["latency"] for ms in (7.0, 3.0)]
    assert seen == ["none", "full"] and len(submission.decisions) == 2


def test_boxes_that_are_not_decided_leave_the_other_tasks_open(submission, monkeypatch):
    """An instructor who then decides for the boxes need not measure again, and who decides against them has given nothing."""
    monkeypatch.setattr(JudgedTrial, "over_videos", lambda trial, value: Interval(0.83, 0.81, 0.86))
    examined = submission()
    assert tiers(examined) == dict.fromkeys(FULL, "inconclusive") and examined.points == 0
    assert "task 1 is not decided, half of the points need boxes" in said(examined, "frames")
    assert tiers(submission(call_ms=20.0))["latency"] == "none", "too slow in any case"


def test_where_the_reference_is_late_as_well_a_miss_is_inconclusive(submission):
    """A pause of 40 ms in every thirtieth call of both: 1.5 periods are out of reach, and no allowance hides that."""
    paused = np.where(np.arange(30) == 7, 40.0, 3.0)
    examined = submission(call_ms=paused, reference_ms=paused, queue=12)
    assert tiers(examined)["latency"] == "inconclusive", examined.outcomes
    text = said(examined, "latency")
    assert "the machine is busy" in text and "run this check again" in text
    assert "latency that 99 % of the frames stay under" in text
    steady = submission(call_ms=paused, queue=12)
    assert tiers(steady)["latency"] == "none"  # the reference kept it: the pauses are the submission's own


@pytest.mark.parametrize(("slow_calls", "met"), [(1, True), (4, None), (40, False)])
def test_a_value_near_its_bound_is_not_a_matter_of_luck(slow_calls, met):
    """About one frame in a hundred is late: the interval holds the bound, and measuring goes on."""
    calls = np.full(1000, 3.0)
    calls[np.random.default_rng(0).choice(1000, slow_calls, replace=False)] = 9.0
    times = {name: np.full(1000, ms) for name, ms in CALL_MS.items()} | {"yours": calls}
    trial = JudgedTrial([None] * 1000, dict.fromkeys(times, GOOD), {}, times)
    assert checks._latency(trial, checks.ALL).met is met
    assert checks.decided(trial) is (met is not None)


# ---- measuring


def measured(times: dict, calls: int, decides_at: int = 1) -> tuple[dict, list[int]]:
    """The result of `call_times` for detectors whose k-th call takes ``times[name](k)`` milliseconds, and the frames of yours."""
    starts, looks = [], iter(range(1, 100))

    class Timed:
        def __init__(self, name: str) -> None:
            self.name, self.images, self.done = name, np.zeros(8 * calls), -5  # warming up

        def time_ms(self, feeds) -> float:
            starts.extend([int(feeds["start"])] if self.name == "yours" else [])
            self.done += 1
            return times[self.name](self.done - 1)

    detectors = {name: Timed(name) for name in times}
    return checks.call_times(detectors, calls, lambda _: next(looks) >= decides_at, 60.0), starts


def test_calls_are_repeated_until_their_times_decide():
    steady = dict.fromkeys(("reference", "yours"), lambda k: 3.0)
    rounds = [len(measured(steady, 20, decides_at)[1]) - 5 for decides_at in (1, 2, 3)]
    assert rounds == [60, 78, 101]
    assert set(measured(steady, 20)[1]) == set(range(0, 160, 8)), "the whole video"


def test_neither_a_pause_nor_a_busy_machine_costs_a_frame():
    busy = lambda k: 6.0 if k >= 80 else 3.0  # noqa: E731
    call_ms, _ = measured({"reference": busy, "yours": lambda k: busy(k) + (40.0 if k == 25 else 0.0)}, 40)
    assert call_ms["yours"].max() == call_ms["reference"].max() == 3.0
    call_ms, _ = measured({"reference": lambda k: 3.0, "yours": lambda k: 40.0 if k % 40 == 7 else 3.0}, 40)
    assert np.flatnonzero(call_ms["yours"] > 3.0).tolist() == [7], "its own slow call is slow each time"
