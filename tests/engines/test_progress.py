"""How far a build has come: from the builder's phases, through the worker, to a bar."""

import io
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib import engines
from course_lib._util.progress_bar import bar
from course_lib.engines.backends.tensorrt.progress import Phases, monitor
from course_lib.engines.progress import at_most_every
from course_lib.engines.worker.parent import Worker
from course_lib.errors import WorkerDied
from course_lib.recipe import Profile, Recipe
from tests.one_line import one_line

Said = list[tuple[float, str]]
LARGE = Profile(image={"min": (1, 3, 224, 224), "opt": (8, 3, 224, 224), "max": (8, 3, 224, 224)})


def test_a_step_of_the_outer_phase_is_a_phase_within() -> None:
    said: Said = []
    phases = Phases(lambda *one: said.append(one))
    phases.start("build", None, 4)
    phases.step("build")
    phases.start("time tactics", "build", 2)
    phases.step("time tactics")
    phases.finish("time tactics")
    phases.step("build")
    phases.finish("build")
    assert said == [
        (0, "build"), (1 / 4, "build"), (1 / 4, "time tactics"), (1.5 / 4, "time tactics"), (2 / 4, "build"), (1, "build"),
    ]  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(["start", "step", "finish"]), st.sampled_from("abc"), st.integers(-1, 3)), max_size=40)
)
def test_whatever_a_builder_reports_the_share_stays_between_0_and_1_and_never_runs_back(
    calls: list[tuple[str, str, int]],
) -> None:
    said: Said = []
    phases = Phases(lambda *one: said.append(one))
    phases.start("build", None, 3)
    for call, name, steps in calls:
        arguments = (name, "build", steps) if call == "start" else (name,)
        getattr(phases, call)(*arguments)
    shares = [share for share, _ in said]
    assert shares == sorted(shares) and all(0 <= share <= 1 for share in shares)


def test_reports_are_thinned_out_but_the_last_one_passes() -> None:
    said: Said = []
    report = at_most_every(60, lambda *one: said.append(one))
    for step in range(11):
        report(step / 10, "x")
    assert said == [(0, "x"), (1, "x")]


def test_the_real_compiler_reports_through_the_worker(rtx: engines.Compiler, wide_onnx: Path, service_recipe: Recipe) -> None:
    said: Said = []
    rtx.build(wide_onnx, service_recipe, progress=lambda *one: said.append(one))
    shares = [share for share, _ in said]
    assert len(said) >= 2 and shares == sorted(shares) and shares[-1] == 1
    assert said[0][1] and said[-1][1] == "Building engine"
    assert monitor(object(), lambda *_: None) is None  # 8.6 has no IProgressMonitor


def test_a_bar_shows_share_and_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes it for a terminal
    with bar("building") as report:
        report(0.5, "Timing tactics")
    assert "building" in terminal.getvalue() and "Timing tactics" in terminal.getvalue()


# ---- processes that are killed while the real compiler is at work


def test_a_compiler_killed_in_the_middle_costs_one_line(resnet50_onnx: Path) -> None:
    with Worker() as worker, one_line(WorkerDied, "the worker ended during 'build': SIGKILL"):
        worker.build(
            "tensorrt_rtx", resnet50_onnx, Recipe(profiles=[LARGE]).wire(), timeout_s=60,
            report=lambda *_: os.kill(worker._process.pid, signal.SIGKILL),
        )  # fmt: skip
