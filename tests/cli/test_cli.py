"""The command: one JSON document on stdout, or one line on stderr, and no file that was not asked for."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from rich.console import Console
from rich.markup import escape

from course_lib import __version__, labs
from course_lib.cli import app, bench_files, console
from course_lib.cli.checked_folder import points_of
from course_lib.engines import LayerTable, Plan, TensorInfo
from course_lib.errors import CourseError
from course_lib.grading.batch.classroom import Grade
from course_lib.grading.judge.review import Points, Review
from course_lib.labs.framework.criteria import ALL, HALF, Criterion, Tier, holds, open_without_reference
from course_lib.labs.framework.examination import Examination
from course_lib.labs.lab09_runtime.reference import SERVING_LOOP
from course_lib.recipe import Recipe
from tests.cli.command import Course, Done, is_one_line
from tests.grading.conftest import new_course

RTX, ORT = "tensorrt_rtx", "onnxruntime"
COURSE = Path(app.__file__).parents[2]


@pytest.fixture
def recipe(service_recipe: Recipe, tmp_path: Path) -> Path:
    service_recipe.save(tmp_path / "recipe.toml")
    return tmp_path / "recipe.toml"


@pytest.fixture
def model(small_onnx: Path, tmp_path: Path) -> Path:
    shutil.copy(small_onnx, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- one JSON document


def test_doctor(course: Course) -> None:
    document = course("doctor", "--json").document()
    assert document["course"] == __version__ and document["python"] == sys.version.split()[0]
    backends = {row["name"]: row for row in document["backends"]}
    assert backends.keys() >= {"tensorrt", RTX, ORT, "torch"}
    assert backends[RTX]["no_build"] == "" and backends[ORT]["no_run"] == ""
    for row in backends.values():
        assert row["version"] or row["no_run"], "a backend that is absent says what to install"
    assert document["environments"]["here"] == [sys.executable]
    assert {document["builds_with"], document["runs_with"]} <= backends.keys()


def test_build(course: Course, model: Path, recipe: Path, tmp_path: Path) -> None:
    document = course("build", model, "--recipe", recipe, "--backend", RTX, "--json").document()
    assert document["plan"] == str(tmp_path / "model.plan")
    plan = Plan.load(document["plan"])
    assert document["bytes"] == len(plan.data) and document["targets"] == ["sm89"]
    assert document["kernels"] == 13 and document["onnx_nodes"] == 21
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.plan", "model.plan.json", "recipe.toml"]


def test_build_writes_where_it_is_told(course: Course, model: Path, recipe: Path, tmp_path: Path) -> None:
    done = course("build", model, "-r", recipe, "-b", ORT, "-o", tmp_path / "other.plan", "--time-limit", 60)
    assert done.status == 0 and done.err == "" and str(tmp_path / "other.plan") in done.out
    assert Plan.load(tmp_path / "other.plan").backend == ORT


def test_layers_of_a_model_and_of_a_plan(course: Course, model: Path, recipe: Path, small_plan: Plan, tmp_path: Path) -> None:
    before = _files(tmp_path)
    document = course("layers", model, "--recipe", recipe, "--backend", RTX, "--json").document()
    assert document["onnx_nodes"] == 21 and len(document["kernels"]) == 13
    stem = document["kernels"][1]
    assert stem["operators"] == "Conv + Relu" and stem["onnx"].startswith("/stem") and stem["onnx"].endswith(", /Relu")
    assert _files(tmp_path) == before
    small_plan.save(tmp_path / "small.plan")
    assert course("layers", tmp_path / "small.plan", "--json").document() == document


def test_layers_for_people(course: Course, model: Path, recipe: Path, tmp_path: Path) -> None:
    page = tmp_path / "layers.html"
    done = course("layers", model, "--recipe", recipe, "--backend", RTX, "--html", page)
    assert done.status == 0 and done.err == ""
    assert "/block2/shortcut/0" in done.out and "21 ONNX nodes became 13 kernels (13 with FP32)" in done.out
    assert "note: no GPU here" in done.out and f"drawing: {page}" in done.out
    assert "for N = 1 (batch 1), weights included" in done.out
    text = page.read_text(encoding="utf-8")
    assert text.index("mount(WIDGET") < text.index("<table>"), "the page opens with the drawing"


@pytest.mark.parametrize("command", ["layers", "build", "bench"])
def test_a_recipe_beside_the_model_is_used(command: str, course: Course, model: Path, recipe: Path) -> None:
    done = course(command, model, "-b", ORT if command == "bench" else RTX, *["--seconds", 1] * (command == "bench"))
    assert done.status == 0 and done.err == "" and f", with {recipe}" in done.out


@pytest.mark.parametrize("command", [(), ("layers",), ("grade",), ("new-lab",)])
def test_help_names_types_of_values_only(command: tuple[str, ...], course: Course) -> None:
    done = course(*command, "--help")
    assert "<bool>" not in done.out and "list[" not in done.out and "Show this message" not in done.out


def test_help_has_one_line_for_each_command(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = [line.strip("│ ") for line in course("--help").out.splitlines() if line.startswith("│")]
    described = [line.split(maxsplit=1) for line in lines if not line.startswith("--")]
    assert [name for name, _ in described] == COMMANDS
    assert all(text[0].isupper() and text.endswith(".") for _, text in described)


def test_bench(course: Course, model: Path, recipe: Path, small_ort_plan: Plan, tmp_path: Path) -> None:
    small_ort_plan.save(tmp_path / "same.plan")
    before = _files(tmp_path)
    plan = str(tmp_path / "same.plan")
    against = ["--against", plan, "--against", plan, "--against", model]
    arguments = ["bench", model, "-r", recipe, "-b", ORT, *against, "--shape", "image=2x1x32x32", "--seconds", 1]
    document = course(*arguments, "--json").document()
    assert document["backend"] == ORT and document["shapes"] == {"image": [2, 1, 32, 32]} and document["baseline"] == str(model)
    assert list(document["median_ms"]) == [str(model), plan, f"{plan} (2)", f"{model} (2)"], "every file, equal or not"
    speed = document["speedup"][plan]
    assert 0.5 < speed["low"] <= speed["median"] <= speed["high"] < 2
    assert document["kernels"][str(model)] == 0, "ONNX Runtime does not report kernels"
    assert _files(tmp_path) == before


SEQUENCES = "(int64[b, s] ids, float[b, s, 4] x) => (int64[b, s] z, float[b, s, 4] y) { z = Identity(ids) y = Relu(x) }"
IMAGES = "(float[n, 3, h, w] x) => (float[n, 3, h, w] y) { y = Relu(x) }"


@pytest.mark.parametrize(
    ("graph", "options", "expected"),
    [
        (IMAGES, ("--shape", "x=1x3x320x320"), "x: 1x3x320x320"),
        (IMAGES, ("--recipe", "hw.toml"), "x: 1x3x32x32"),
        (IMAGES, (), "inputs 'x' (1x3xNxN) have dimensions N without a size. Give their shapes, such as --shape x=1x3x320x320"),
        (IMAGES, ("--shape", "x=1x4x8x8"), "'x' needs shape Nx3xNxN, found 1x4x8x8"),
        (IMAGES, ("--shape", "y=1"), "--shape names 'y', but the inputs are x: use one of these names"),
        (IMAGES, ("--shape", "x=1,3"), "--shape x=1,3: expected NAME=4x1x32x32"),
        (SEQUENCES, (), "'ids' (1xN), 'x' (1xNx4)"),
        (SEQUENCES, ("--shape", "ids=4x8", "--shape", "x=4x8x4"), "ids: 4x8, x: 4x8x4"),
        ('(float[n, 2] x) => (float[n, 2] y) { y = Relu(x) }', (), "x: 1x2"),
    ],
)  # fmt: skip
def test_the_shape_of_a_measurement_is_known_and_shown(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, graph: str, options: tuple[object, ...], expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    header = '<ir_version: 10, opset_import: ["": 20]> graph '
    onnx.save(onnx.parser.parse_model(header + graph), "model.onnx")
    Path("hw.toml").write_text(
        "[[profile]]\nx = { min = [1, 3, 8, 8], opt = [1, 3, 32, 32], max = [2, 3, 64, 64] }\n", encoding="utf-8"
    )
    done = course("bench", "model.onnx", "-b", ORT, "--seconds", 1, *options)
    assert expected in done.out + done.err
    assert done.err.startswith("course: ") if done.status else f"{expected};" in done.out


def test_an_input_that_numpy_cannot_hold_is_one_line() -> None:
    with pytest.raises(CourseError, match="input 'x' is bfloat16, which numpy does not have"):
        bench_files.input_shapes((TensorInfo("x", (1, 4), "bfloat16"),), {}, {})


@pytest.mark.parametrize("width", [80, 100])
def test_a_layer_table_is_one_line_a_kernel_on_a_narrow_terminal(
    width: int, small_plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(console, "_console", lambda: Console(width=width, file=screen, force_terminal=True, color_system=None))
    console.layers(small_plan.layers, "a title", ())
    lines = screen.getvalue().splitlines()
    assert len(lines) <= 13 + 8 and max(map(len, lines)) <= width
    assert all(row["shape"] in screen.getvalue() for row in small_plan.layers.rows())
    assert "13 with FP32" in screen.getvalue() and "_myl0_" not in screen.getvalue() and "types" not in screen.getvalue()
    assert sum("Conv + Relu" in line for line in lines) >= 3


def test_a_narrow_layer_table_wraps_long_names_and_cuts_none(small_plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    screen, (first, *others) = io.StringIO(), small_plan.layers.rows()
    quantized = first | {
        "operators": 3 * "DequantizeLinear + " + "Conv",
        "types": "INT8 to FP32",
        "kernel": 4 * "MulMinMaxRounCast",
    }
    monkeypatch.setattr(LayerTable, "rows", lambda table: [dict(quantized), *map(dict, others)])
    monkeypatch.setattr(console, "_console", lambda: Console(width=80, file=screen, force_terminal=True, color_system=None))
    console.layers(small_plan.layers, "a title", ())
    lines = screen.getvalue().splitlines()
    words = " ".join(screen.getvalue().split())
    assert max(map(len, lines)) <= 80 and "INT8 to FP32" in words and "\u2026" not in words
    assert words.count("MulMinMaxRounCast") == 4 and words.count("DQ") == 3


def test_a_path_is_not_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_console", lambda: Console(width=60, force_terminal=False))
    folder = tmp_path / ("a-very-long-name-of-a-folder-" * 4)
    report = folder / "reports" / "ada" / "lab01_first_engine.html"
    review = Review(Points(earned=7.0, open=2.0, maximum=10.0))
    console.grades(labs.find("lab01"), [Grade("ada", review, report, report, error="the notebook cannot be read")])
    assert f"{folder}/reports/STUDENT/lab01_first_engine.html" in capsys.readouterr().out


@pytest.mark.parametrize("instructor", [False, True])
def test_jupyterlab_opens_without_news_and_for_learners_without_nbgrader(
    course: Course, instructor: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jupyterlab_server.config import get_static_page_config

    def left(program: str, command: list[str]) -> None:
        disabled = get_static_page_config(level="all").get("disabledExtensions", {})
        assert disabled["@jupyterlab/apputils-extension:announcements"]  # asks whether to fetch news, and looks for updates
        assert os.environ["COURSE_FIGURES"] == "svg"
        assert disabled.get("@jupyter/nbgrader", False) is not instructor  # validate, formgrader, assignment and course list
        raise SystemExit(0)

    variables = ("JUPYTER_CONFIG_PATH", "JUPYTER_PATH", "COURSE_FIGURES")
    assert {*re.findall(r"(\w+)=", (COURSE / "binder" / "start").read_text())} == {
        "COURSE_ROOT",
        *variables,
    }  # where it runs, too
    for variable in variables:
        monkeypatch.setenv(variable, "")
    monkeypatch.chdir(COURSE)
    monkeypatch.setattr(os, "execv", left)
    assert course("lab", *(["--instructor"] if instructor else [])).status == 0


def test_help_has_lines_as_long_as_the_terminal(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert "The status is 1 if points are missing. The first failure of a task" in course("check", "--help").out


def test_check_names_the_lab_as_it_begins(course: Course, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text("")
    done = course("check", "lab01", tmp_path)
    assert done.err == "start: Lab 01: your first engine (about 5 s)\n"
    assert done.out.count("model.onnx is missing") == 1
    assert re.search("0 / 4 +not yet +Faster than PyTorch *\n", done.out), "one reason of all tasks is below the table"


def test_a_reason_of_some_tasks_names_the_first_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    lab = labs.find("lab01")
    right, *others = lab.zero_outcomes("the build failed")
    console.outcomes(lab, Examination((replace(right, tier=Tier.FULL, message=""), *others)), Points(3.0, 0.0, 10.0))
    said = capsys.readouterr().out
    assert re.search('0 / 4 +not yet +Faster than PyTorch, for the same reason as "The same answers as PyTorch"', said)
    assert said.endswith("The same answers as PyTorch: the build failed\n")


def test_check_says_when_it_takes_another_folder(course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder without the lab's files it showed the points of the lab's own folder as if they were this one's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_ROOT", str(tmp_path / "own"))
    said = f"the current folder has no file of the lab, so {tmp_path / 'own/labs/lab01_first_engine'} is checked"
    course_of_one = tmp_path / "own"
    own = course_of_one / "labs" / "lab01_first_engine"
    own.mkdir(parents=True)
    (course_of_one / "nbgrader_config.py").touch()
    (own / "recipe.toml").write_text("")
    assert said in course("check", "lab01").err
    (tmp_path / "recipe.toml").write_text("")
    assert said not in course("check", "lab01").err


def test_an_untouched_lab_has_the_table_of_a_solved_one(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its points, why there are none, and the next step; nothing is said once for each task."""

    def has(*arguments: str, words: tuple[str, ...], title: str = "Lab 03: tune and keep: 0 of 12 points, 2 open") -> None:
        done = course("check", "lab03", *arguments)
        assert done.status == 1 and done.err == "" and done.out.startswith(f"{title}\n")
        assert done.out.count("No file of lab03_tuning is in") == done.out.count("\nNext: open labs/lab03_tuning/") == 1
        assert "; expected answers.json, recipe.toml," in done.out and " 0 / 2    not yet   A tim" in done.out
        assert [word for word in words if word not in done.out] == []

    has(str(tmp_path), words=(f"in {tmp_path};", "- / 2    open      Written question"))
    has(str(tmp_path), "--task", "cache", words=(), title="Lab 03: tune and keep, only the task cache: 0 of 2 points")
    document = course("check", "lab03", tmp_path, "--json").document()
    assert [document[key] for key in ("score", "max_score", "open", "written")] == [0, 10, 0, 2]
    assert list(tmp_path.iterdir()) == []
    assert all(task["tier"] == "none" and task["message"] and task["hint"] for task in document["tasks"])
    (tmp_path / "host.py").write_text("")
    (tmp_path / "decoder.onnx").write_text("")
    found = "found files of lab13_generation (decoder.onnx, host.py)."
    has(str(tmp_path), words=(found,))
    (tmp_path / "own" / "labs" / "lab03_tuning").mkdir(parents=True)
    (tmp_path / "own" / "nbgrader_config.py").touch()
    monkeypatch.chdir(tmp_path)
    for folder in (".", "own/.."):
        has(folder, words=(f"{tmp_path} (this folder);",))
    monkeypatch.setenv("COURSE_ROOT", str(tmp_path / "own"))
    own = tmp_path / "own" / "labs" / "lab03_tuning"
    damaged = "Lab 03: tune and keep: 0 of 10 points"  # without its notebook, nothing is known of the written question
    has(words=(f"{tmp_path} (this folder)", str(own), found), title=damaged)


def test_check_of_one_task_does_not_look_like_the_lab(course: Course, tmp_path: Path) -> None:
    (tmp_path / "serving_loop.py").write_text("def serve(plan, requests):\n    raise NotImplementedError\n")
    done = course("check", "lab09", tmp_path, "--task", "leaks")
    assert done.status == 1 and done.out.startswith("Lab 09: the runtime by hand, only the task leaks: 0 of 2 points\n"), (
        done.out
    )
    assert (
        "All memory and objects given back" in done.out
        and "No data race" not in done.out
        and "not the result of the lab" in done.out
    )
    document = course("check", "lab09", tmp_path, "--task", "leaks", "--json").document()
    assert document["only"] == "leaks" and document["max_score"] == 2
    assert [one["task"]["id"] for one in document["tasks"]] == ["leaks"]
    assert "only" not in course("check", "lab09", tmp_path, "--json").document()
    (tmp_path / "serving_loop.py").write_text(SERVING_LOOP)
    done = course("check", "lab09", tmp_path, "--task", "leaks", "--json")
    (task,) = done.document()["tasks"]
    assert done.status == 0 and task["tier"] == "full" and task["criteria"]
    assert all({"name", "found", "bound", "met"} <= set(criterion) for criterion in task["criteria"])
    for task in ("speed", ""):
        is_one_line(course("check", "lab09", tmp_path, "--task", task), (f"no task {task!r}", "answers, order, leaks, overlap"))


@pytest.mark.parametrize(
    ("lab", "task", "meant"),
    [("lab12", "request", "requests"), ("lab12", "Triton", "triton"), ("lab09", "leak", "leaks"), ("lab01", "sped", "speed")],
)
def test_a_task_that_is_almost_right_is_suggested(lab: str, task: str, meant: str, course: Course, tmp_path: Path) -> None:
    name, ids = labs.find(lab).name, ", ".join(one.id for one in labs.find(lab).tasks)
    said = f"course: {name} has no task {task!r}: did you mean {meant}? It has {ids}\n"
    assert course("check", lab, tmp_path, "--task", task) == Done(1, "", said)


def test_a_verdict_says_each_thing_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its limits were printed twice, an open task was "Right", and the notebook's table had two more points."""
    lab = labs.find("lab01")
    met = [
        *(Criterion("batches", "1 to 32", f"{bound} sizes", True, needs) for bound, needs in ((16, HALF), (32, ALL))),
        holds("names", True),
    ]
    missed = [*met, Criterion("right answers", "97.8 %", "at least 99 %", False, hint="Compare.")]
    still_open = [*met, open_without_reference("speed", "not compared")]
    found = [lab.decided(*one) for one in (("profile", met), ("accuracy", missed), ("speed", still_open))]
    monkeypatch.setattr(console, "_console", lambda: Console(width=80, force_terminal=False))
    examined = Examination(tuple(found))
    console.outcomes(lab, examined, points_of(lab, examined))
    lines = [re.sub("  +", "  ", line.strip()) for line in capsys.readouterr().out.splitlines() if line.strip(" ─")]
    assert lines[:4] + lines[6:7] == [
        "Lab 01: your first engine: 4.5 of 12 points, 6 open",
        "points  result  task",
        "3 / 3  passed  A profile for the traffic",
        "1.5 / 3  partly  The same answers as PyTorch",
        "- / 2  open  Written question: an instructor will read it",
    ]
    assert lines[4] == "0 / 4  open  Faster than PyTorch: right so far, the grader compares it"
    shown = "\n".join(lines[7:])
    assert shown.count("Hint: Compare.") == shown.count("97.8 %") == 1 and found[1].message not in shown
    assert shown.count("1 to 32") == 3 and shown.count("\u2713 32 sizes") == 1, "each task has its numbers once"


def test_a_note_is_wrapped_between_words(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_console", lambda: Console(width=40, force_terminal=True))
    console.note("few layers compute in INT8: quantize more of the graph")
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "note: few layers compute in INT8:",
        "      quantize more of the graph",
    ]


@pytest.fixture
def own_course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the course's folder, whose labs may be generated anew."""
    monkeypatch.setenv("COURSE_ROOT", str(tmp_path))
    return new_course(tmp_path)


def test_release_and_its_check(course: Course, own_course: Path) -> None:
    notebook = own_course / "labs/lab01_first_engine/lab01_first_engine.ipynb"
    notebook.write_text("{}")
    stale = course("release", "lab01", "--check", "--json")
    assert stale.status == 1 and stale.document() == {"stale": {"lab01_first_engine": ["lab01_first_engine.ipynb"]}}
    assert notebook.read_text() == "{}", "a check changes nothing"
    made = course("release", "lab01", "--json")
    assert made.status == 0 and made.document() == {"released": [str(own_course / "labs/lab01_first_engine")]}
    assert course("release", "lab01", "--check", "--json").document() == {"stale": {}}
    assert "BEGIN SOLUTION" not in notebook.read_text()


def test_version_and_help(course: Course) -> None:
    assert course("--version") == Done(0, f"{__version__}\n", "")
    alone, done = course(), course("--help")
    assert (alone.status, alone.err) == (done.status, done.err) == (0, "") and "doctor" in alone.out
    assert all(command in done.out for command in ("doctor", "build", "layers", "bench", "check", "release"))


# ---- one line of error

GOOD = "[[profile]]\nimage = { min = [1, 1, 32, 32], opt = [8, 1, 32, 32], max = [32, 1, 32, 32] }\n"


@dataclass(frozen=True)
class Wrong:
    """A wrong input: the recipe, the file in place of the small classifier, further options, and the words of the error."""

    words: tuple[str, ...]
    recipe: str = GOOD
    file: str = "model.onnx"
    options: tuple[str, ...] = ()
    commands: tuple[str, ...] = ("build", "layers", "bench")
    backend: str = RTX


COMPILED = ("build", "layers")
COMMANDS = [one.callback.__name__.replace("_", "-") for one in app.app.registered_commands if one.callback]
WRONG = {
    "a missing file": Wrong(("absent.onnx", "no such file"), file="absent.onnx"),
    "a missing plan": Wrong(("absent.plan", "no such plan"), file="absent.plan"),
    "a missing recipe": Wrong(("absent.toml", "no such recipe"), options=("--recipe", "absent.toml")),
    "a file that is not ONNX": Wrong(("text.onnx: the file is not an ONNX model",), file="text.onnx"),
    "CUDA source": Wrong(("rope.cu: the file is not an ONNX model", "; expected an ONNX file, for example from"), file="rope.cu"),
    "another file to compare with": Wrong(
        ("rope.cu: the file is not an ONNX model",), options=("--against", "rope.cu"), commands=("bench",), backend=ORT
    ),
    "a dynamic input without a profile": Wrong(("'image'", "[[profile]]"), recipe="", commands=COMPILED),
    "min above max": Wrong(("recipe.toml", "image", "min <= opt <= max"), recipe=GOOD.replace("min = [1,", "min = [64,")),
    "an unknown key": Wrong(("recipe.toml", "'batch'", "known keys"), recipe="batch = 8\n" + GOOD),
    "an unknown backend": Wrong(("'tensorflow'", ORT), backend="tensorflow"),
    "a build that exceeds its time limit": Wrong(("0.05 s",), options=("--time-limit", "0.05"), commands=COMPILED),
    "a plan for another compute capability": Wrong(("runs on sm75", "default_runner"), file="sm75.plan", commands=("bench",)),
    "a corrupt plan": Wrong(("corrupt", "build it again"), file="corrupt.plan"),
    "a batch outside the profile": Wrong(
        ("33x1x32x32", "profile"), options=("--shape", "image=33x1x32x32"), commands=("bench",), backend=ORT
    ),
    "a word for a number": Wrong(("--time-limit", "valid number"), options=("--time-limit", "soon"), commands=COMPILED),
    "a folder that does not exist": Wrong(("absent", "No such file"), options=("-o", "absent/model.plan"), commands=("build",)),
}  # fmt: skip
CASES = [(what, command) for what, wrong in WRONG.items() for command in wrong.commands]
USAGE = {"a word for a number"}


@pytest.fixture
def wrong_files(model: Path, small_plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What every command may be given. What compilers and plans reject, and with which words, `tests/engines` says."""
    (tmp_path / "text.onnx").write_text("hello\n" * 100)
    (tmp_path / "rope.cu").write_text("__global__ void rope(float *x) {}\n")
    replace(small_plan, targets=("sm75",)).save(tmp_path / "sm75.plan")
    small_plan.save(tmp_path / "corrupt.plan")
    content = bytearray(small_plan.data)
    content[len(content) // 2] ^= 255
    (tmp_path / "corrupt.plan").write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("what", "command"), CASES, ids=[f"{command}: {what}" for what, command in CASES])
def test_what_is_wrong_is_said_in_one_line(what: str, command: str, course: Course, wrong_files: Path) -> None:
    wrong = WRONG[what]
    (wrong_files / "recipe.toml").write_text(wrong.recipe)
    before = _files(wrong_files)
    done = course(command, wrong.file, "--recipe", "recipe.toml", "--backend", wrong.backend, "--json", *wrong.options)
    is_one_line(done, wrong.words, status=2 if what in USAGE else 1)
    assert _files(wrong_files) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["frobnicate"], ["frobnicate"]),
        (["doctr"], ["'doctr'. Did you mean 'doctor'? `course --help`"]),
        (["--frobnicate"], ["--frobnicate"]),
        (["build"], ["argument", "model"]),
        (["check", "lab01", ".", "--tas", "x"], ["--tas", "--task"]),
        (["check", "lab01", ".", "--task"], ["--task", "requires an argument"]),
        (["doctor", "now"], ["now"]),
        (["release", "lab01", "--bundle", "there"], ["--bundle"]),
        (["migrate", ".", "--format", "fast"], ["'fast'", "github"]),
        (["grade", "lab01", "--workers", "2", "--scheduler", "tcp://a:1"], ["--workers", "--scheduler"]),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_wrong_command_line_is_one_line_with_status_2(arguments: list[str], words: list[str], course: Course) -> None:
    known = "" if "frobnicate" in arguments[0] or arguments[0] == "doctr" else f"{arguments[0]} "
    is_one_line(course(*arguments), (*words, f"`course {known}--help`"), status=2)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wrong_argument_points_to_the_help_of_its_command(command: str, course: Course) -> None:
    is_one_line(course(command, "--frobnicate"), ("--frobnicate", f"; `course {command} --help` lists its arguments"), status=2)
    assert course(command, "--help").status == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["check", "lab99"], ("no lab 'lab99'. `course progress` lists the 16 labs",)),
        (["check", "serving"], ("no lab 'serving': did you mean lab12_serving?",)),
        (["report", "Calibraton"], ("no lab 'Calibraton': did you mean lab05_calibration?",)),
        (["check", "lab01", "absent"], ("absent", "no such folder")),
        (["check", "lab01", "speed"], ("speed: no such folder; one task is checked with --task speed",)),
        (["check", "lab01", __file__], ("test_cli.py", "this is a file, expected its folder")),
        (["check", "Lab12"], ("no lab 'Lab12'", "did you mean lab12?")),
        (["check", "lab03_calibration"], ("no lab 'lab03_calibration'", "did you mean lab05_calibration?")),
        (["check", "lecture04"], ("no lab 'lecture04': the lab of lecture 4 is lab03. `course progress`",)),
        (["check", "../lectures/12_profiling.ipynb"], ("the lab of lecture 12 is lab10.",)),
        (["grade", "05_reduced_precision.ipynb"], ("the lab of lecture 5 is lab04.",)),
        (["check", "Lecture 14"], ("the labs of lecture 14 are lab12 and lab15.",)),
        (["check", "lecture11"], ("lecture 11 does not have a lab.",)),
        (["check", "lecture99"], ("the course does not have a lecture 99.",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_labs_that_do_not_exist(
    arguments: list[str], words: tuple[str, ...], course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = course(*arguments)
    is_one_line(done, words)
    assert "lab02_fusion" not in done.err, "it listed all labs in one line"
    assert list(tmp_path.iterdir()) == []


def test_labs_of_lectures_are_those_of_the_syllabus() -> None:
    start = (COURSE / "lectures" / "00_start_here.ipynb").read_text()
    prepared = re.findall(r'"\| \[(\d+)\. .*\|(.*)\|', start)
    own: dict[str, list[str]] = {}
    for lecture, text in prepared:
        with pytest.raises(CourseError, match=rf"lecture {lecture} (is|are|does not)") as error:
            labs.find(f"lecture{lecture}")
        own[lecture] = re.findall(r"lab(\d\d)", str(error.value).partition(f"lecture {lecture} ")[2].partition(".")[0])
        assert set(own[lecture]) <= set(re.findall(r"\d\d", text))
    assert len(own) == 17
    for part in re.findall(r"^\| \[\d+ .*", (COURSE / "README.md").read_text(), re.M):
        expected = [lab for lecture in re.findall(r"\[(\d+) [^]]+\]\(lectures/", part) for lab in own.pop(lecture)]
        assert re.findall(r"\(labs/lab(\d\d)_", part) == expected
    assert not own


def test_a_course_that_is_not_found(course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_ROOT", str(tmp_path))
    is_one_line(course("release"), ("COURSE_ROOT",))


def test_models_with_different_inputs_are_not_compared(
    course: Course, model: Path, recipe: Path, one_node: Callable[..., Any], tmp_path: Path
) -> None:
    onnx.save(one_node("Relu", output=[4, 4]), tmp_path / "relu.onnx")
    is_one_line(course("bench", model, "-r", recipe, "-b", ORT, "--against", tmp_path / "relu.onnx"), ("different inputs",))


def test_debug_shows_where_an_error_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    from course_lib.errors import BuildError

    monkeypatch.setenv("COURSE_DEBUG", "")
    monkeypatch.setattr(sys, "argv", ["course", "--debug", "layers", "absent.onnx"])
    with pytest.raises(BuildError, match="no such file"):
        app.main()


# ---- the real executable


def _executable(*arguments: object, **options: Any) -> Done:
    command = [Path(sys.executable).with_name("course"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, **options)
    return Done(done.returncode, done.stdout, done.stderr)


def test_the_installed_command(tmp_path: Path) -> None:
    assert _executable("doctor", "--json", cwd=tmp_path).document()["course"] == __version__
    is_one_line(_executable("layers", "absent.onnx", cwd=tmp_path), ("absent.onnx", "no such file"))
    assert "doctor" in _executable(cwd=tmp_path).out
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_seen_enough_gets_no_complaint(tmp_path: Path, model: Path, recipe: Path) -> None:
    course = Path(sys.executable).with_name("course")
    line = f"{course} layers {model} -r {recipe} -b {RTX} --json | head -c 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("{", "")


def test_modules_of_the_current_folder_are_not_imported(tmp_path: Path) -> None:
    """`python -m course_lib check` in a downloaded submission must not run its files as the instructor."""
    (tmp_path / "numpy.py").write_text("print('planted'); raise SystemExit(7)")
    (tmp_path / "typer.py").write_text("print('planted'); raise SystemExit(7)")
    library = str(Path(app.__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-m", "course_lib", "check", "lab01", str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": library},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert "planted" not in done.stdout + done.stderr and done.returncode != 7, done.stdout + done.stderr


def test_an_interruptis_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def doctor() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["course", "doctor"])
    command = next(one for one in app.app.registered_commands if one.callback.__name__ == "doctor")
    monkeypatch.setattr(command, "callback", doctor)
    with pytest.raises(SystemExit) as left:
        app.main()
    assert left.value.code == 130 and capsys.readouterr().err.strip().startswith("course: interrupted")


@pytest.mark.parametrize("width", [40, 80])
def test_a_learners_text_cannot_become_a_line_of_its_own(width: int) -> None:
    """A file with a long name made a row of the terminal that looked like another learner's result."""
    false = "[2/2] zoe: 12 of 12 points; 31 s"
    for before in range(width):
        screen = io.StringIO()
        console.in_full(
            Console(width=width, file=screen, force_terminal=True), escape(f"mallory: left out '{before * 'x'}/{false}'")
        )
        first, *others = screen.getvalue().splitlines()
        assert first.startswith("mallory: left out") and all(line.startswith("      ") for line in others)
        assert max(map(len, (first, *others))) <= width
