"""Lab 12's server in the notebook: what the learner's two files do with engines of this process."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from course_lib.errors import CourseError, EngineError, PlanError
from course_lib.labs import find
from course_lib.labs.lab12_serving import trial
from course_lib.labs.lab12_serving.network import Scorer
from course_lib.labs.lab12_serving.sandboxed import server_process
from course_lib.recipe import Recipe

LAB = find("lab12")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    LAB.write_given(tmp_path)
    LAB.write_reference(tmp_path)
    return tmp_path


def requests(*rows: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"features": rng.random((n, 256), dtype=np.float32)} for n in rows]


def test_the_references_server_answers_and_reloads(folder):
    server = trial.start(folder)
    asked = requests(1, 3, 16)
    direct = trial.Engines()
    engine = direct.load(direct.build((folder / "scorer.onnx").read_bytes(), Recipe.load(folder / "recipe.toml").wire()))
    for feeds, got in zip(asked, trial.ask(server, asked), strict=True):
        np.testing.assert_allclose(got["scores"], engine.infer(feeds)["scores"], atol=1e-5)
    before = trial.ask(server, asked)[0]["scores"]
    (folder / "other.onnx").write_bytes(Scorer(seed=5, hidden=64).onnx())
    server.reload(folder / "other.onnx")
    assert np.abs(trial.ask(server, asked)[0]["scores"] - before).max() > 1e-3


def test_errors_come_in_place_of_answers(folder):
    [good, large] = trial.ask(trial.start(folder), requests(2, 17))
    assert good["scores"].shape == (2, 8) and isinstance(large, ValueError)


def test_the_files_are_read_again_at_each_start(folder):
    trial.start(folder)
    records = "class Server:\n    def __init__(self, *given):\n        self.given = given\n"
    (folder / "server.py").write_text(records + "raise NotImplementedError\n")
    server = trial.start(folder)
    model, recipe, cache, engines = server.given
    assert model.name == "scorer.onnx" and recipe["profiles"] and cache.is_dir() and engines.version and engines.device


@pytest.mark.parametrize(
    ("text", "error"),
    [("x = 1\n", NameError), ("import onnx\n", ImportError), ("class Server:\n    pass\n", TypeError)],
    ids=["no class", "a package", "no arguments"],
)
def test_what_the_files_raise_is_raised(folder, text, error):
    (folder / "server.py").write_text(text)
    with pytest.raises(error):
        trial.start(folder)


HANGS = {
    "__init__ serves requests": "class Server:\n    def __init__(self, *given):\n        threading.Event().wait()\n",
    "a busy loop": "class Server:\n    def __init__(self, *given):\n        while not ended(): pass\n",
    "the file": "x = 1\n\nthreading.Event().wait(20)\n",
}


@pytest.mark.parametrize("text", HANGS.values(), ids=HANGS)
def test_a_start_that_does_not_end_is_one_line(folder, monkeypatch, text):
    until = "import threading, time\nends = time.monotonic() + 20\ndef ended(): return time.monotonic() > ends\n"
    (folder / "server.py").write_text(until + text)
    monkeypatch.setattr(trial, "READY_S", 0.3)
    started = time.monotonic()
    with pytest.raises(CourseError) as error:
        trial.start(folder)
    assert time.monotonic() - started < 15, "the time of the build, and 0.3 s"
    assert re.fullmatch(
        r"the server was not up after 0\.3 s, .* server\.py, line \d\. Let `__init__` return: .*", str(error.value)
    )


def test_the_time_of_a_build_does_not_count(folder, monkeypatch):
    """It is built before the thread starts whose time is limited, and once."""
    threads, built = [], trial.build
    monkeypatch.setattr(
        trial, "build", lambda *given, **options: (threads.append(threading.current_thread()), built(*given, **options))[1]
    )
    [got] = trial.ask(trial.start(folder), requests(2))
    assert got["scores"].shape == (2, 8) and threads == [threading.current_thread()]


def test_the_limits_are_the_graders():
    assert (trial.READY_S, trial.ANSWER_S) == (server_process.READY_S, server_process.ANSWER_S)


def test_a_server_that_leaves_python_does_so_in_the_cell(folder):
    (folder / "server.py").write_text("import sys\n\nclass Server:\n    def __init__(self, *given):\n        sys.exit(3)\n")
    with pytest.raises(SystemExit):
        trial.start(folder)


SCORES = np.zeros((2, 8), np.float32)


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (None, ("answer returned None, expected {'scores': NumPy array of shape (rows, 8)}: check its `return`",)),
        (SCORES, ("answer returned ndarray, expected {'scores'",)),
        ({"scores": None}, ("answer returned a dictionary with None, expected {'scores'",)),
        ({"scores": SCORES.tolist()}, ("a dictionary with list",)),
        ({"score": SCORES}, ("expected scores float32 (2, 8), found score float32 (2, 8)",)),
        ({"scores": SCORES[:1]}, ("expected scores float32 (2, 8), found scores float32 (1, 8)",)),
        ({"scores": SCORES.astype(float)}, ("found scores float64 (2, 8)",)),
        ({}, ("expected scores float32 (2, 8), found nothing",)),
    ],
    ids=["None", "an array", "None in a dictionary", "a list", "another name", "fewer rows", "float64", "empty"],
)
def test_an_answer_in_another_form_is_an_error_in_one_line(returned, words):
    [error] = trial.ask(Returns(returned), requests(2))
    assert isinstance(error, TypeError) and "\n" not in str(error)
    assert [word for word in words if word not in str(error)] == [], str(error)


def test_scores_for_a_malformed_request_are_returned_as_they_are():
    """Whether a request is valid is the server's task; its answer does not have an expected shape."""
    asked = [{}, {"features": np.float32(1)}, {"features": np.zeros((2, 3), np.float32)}]
    assert [got["scores"] is SCORES for got in trial.ask(Returns({"scores": SCORES}), asked)] == [True] * 3
    assert all(isinstance(got, TypeError) for got in trial.ask(Returns(None), asked))


class Returns:
    """A server with one answer to all requests."""

    def __init__(self, returned):
        self.returned = returned

    def answer(self, feeds):
        return self.returned


def test_a_request_that_is_never_answered_does_not_stop_the_others(monkeypatch):
    class Forgets:
        def answer(self, feeds):
            if len(feeds["features"]) > 1:
                time.sleep(60)
            return {"scores": np.zeros((1, 8), np.float32)}

    monkeypatch.setattr(trial, "ANSWER_S", 0.3)
    lost, got = trial.ask(Forgets(), requests(2, 1))
    assert isinstance(lost, TimeoutError) and got["scores"].shape == (1, 8)


def test_engines_raise_what_the_graders_raise(folder):
    engines = trial.Engines()
    plan = engines.build((folder / "scorer.onnx").read_bytes(), Recipe.load(folder / "recipe.toml").wire())
    for wrong in (b"", plan[:50], b"nothing\n" + plan, b"[1]\n"):
        with pytest.raises(PlanError):
            engines.load(wrong)
    context, entered, leave = engines.load(plan), threading.Event(), threading.Event()
    infer = context._engine.infer
    context._engine.infer = lambda feeds: (entered.set(), leave.wait(10), infer(feeds))[2]
    one = threading.Thread(target=context.infer, args=(requests(1)[0],))
    one.start()
    assert entered.wait(10)
    with pytest.raises(EngineError, match="two threads"):
        context.infer(requests(1)[0])
    leave.set()
    one.join()


def test_a_folder_without_the_given_files_is_named(folder):
    (folder / "scorer.onnx").unlink()
    with pytest.raises(CourseError, match=r"scorer.onnx is not in .*run the notebook's first cell"):
        trial.start(folder)
