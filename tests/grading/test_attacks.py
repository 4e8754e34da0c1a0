"""Hand-ins that attack the grader. One class: every attacker beside an honest hand-in, graded in one batch, as it would be.

Each attack touches only what this test made: its own course, planted secrets, a listener on loopback, its own processes.
"""

from __future__ import annotations

import http.server
import json
import os
import threading
from pathlib import Path

import pytest

from course_lib.grading.classroom import Classroom
from tests.grading.conftest import LAB, needs_sandbox, new_course, submit

pytestmark = [needs_sandbox, pytest.mark.timeout(900)]

SECRET = "planted-secret-4711"

# name: what its first cell does. @ROOT@ is the course's folder, @PORT@ a listener on loopback.
ATTACKS = {
    "edits_the_gradebook": """
import os, sqlite3
for folder, _, files in os.walk("/"):
    for name in files:
        if name == "gradebook.db":
            sqlite3.connect(os.path.join(folder, name)).execute("update grade set auto_score = 99").connection.commit()
path = "@ROOT@/classroom/gradebook.db"
os.makedirs(os.path.dirname(path), exist_ok=True)
sqlite3.connect(path).execute("update grade set auto_score = 99, manual_score = 99").connection.commit()
""",
    "patches_the_check": """
import sys, types
import course_lib.labs.base as base, course_lib.labs as labs, course_lib.benchmark.statistics as statistics, time
base.Lab.check = lambda self, task, folder=".": base.Outcome(self._task(task), "full", self._task(task).points, "well done")
statistics.speedup = lambda *a, **k: statistics.Interval(99, 99, 99)
time.perf_counter = lambda: 0.0
sys.modules["course_lib.grading.judge"] = types.SimpleNamespace(judge=lambda *a, **k: None)
get_ipython().input_transformers_post.append(lambda lines: ["10\\n"])
""",
    "exits": "import os; os._exit(0)",
    "loops_for_ever": "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
    "floods": "for _ in range(40): print('x' * 1_000_000)",
    "steals_from_a_neighbour": """
import glob, os
for path in glob.glob("@ROOT@/**", recursive=True) + glob.glob("/tmp/**/secret*", recursive=True):
    try: print(open(path).read())
    except OSError: pass
for name in ("model.onnx", "recipe.toml"):
    for source in glob.glob(f"@ROOT@/classroom/submitted/honest/**/{name}", recursive=True):
        open(name, "wb").write(open(source, "rb").read())
""",
    "calls_home": """
import urllib.request
urllib.request.urlopen("http://127.0.0.1:@PORT@/stolen", timeout=3).read()
""",
    "writes_outside": """
import os
for path in ("@ROOT@/labs/planted", "@ROOT@/classroom/planted", "/usr/planted", "/etc/planted"):
    try: os.makedirs(os.path.dirname(path), exist_ok=True); open(path, "w").write("x")
    except OSError as error: print(error)
""",
    "leaves_a_daemon": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: time.sleep(0.1)
    os._exit(0)
""",
    "links_to_a_secret": "import os; os.symlink('@ROOT@/secret.txt', 'recipe.toml'); os.symlink('@ROOT@/secret.txt', 'model.onnx')",
    "hands_in_a_pipe": "import os; os.mkfifo('model.onnx'); os.mkfifo('recipe.toml')",
    "prints_a_page": 'from IPython.display import HTML; HTML(\'<script>fetch("/formgrader")</script><b>'
    + SECRET
    + "-shown</b>')",
    "forges_points": "99999",
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory, reference):
    """Everybody graded in one batch, the honest one last."""
    root = new_course(tmp_path_factory.mktemp("course"))
    (root / "secret.txt").write_text(SECRET)
    calls: list[str] = []

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            calls.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    room = Classroom(root, limits={"timeout": 15, "total_timeout_s": 40.0})
    for name, cell in ATTACKS.items():
        submit(room, name, first_cell=cell.replace("@ROOT@", str(root)).replace("@PORT@", str(server.server_port)))
    folder = submit(room, "submits_links")
    for name in LAB.artefacts:
        (folder / name).symlink_to(root / "secret.txt")
    (folder / "stolen.txt").symlink_to(root / "secret.txt")
    submit(room, "honest", reference=reference)
    before = _processes()
    grades = {grade.student: grade for grade in room.grade(LAB, room.students(LAB))}
    left = _processes() - before
    server.shutdown()
    return room, grades, calls, left


def _processes() -> set[int]:
    """Processes that run a kernel, by id."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"ipykernel" in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found - {os.getpid()}


@pytest.mark.parametrize("name", [*ATTACKS, "submits_links"])
def test_attacker_scores_nothing_and_is_graded(graded, name):
    _, grades, _, _ = graded
    assert grades[name].error == ""
    assert grades[name].score == 0
    assert grades[name].report.is_file() and grades[name].feedback.is_file()


def test_honest_neighbour_has_full_marks(graded):
    _, grades, _, _ = graded
    assert grades["honest"].score == grades["honest"].max_score == 10, grades["honest"].report.with_suffix(".json").read_text()


def test_nothing_left_its_sandbox(graded):
    room, _, calls, left = graded
    assert calls == []
    assert left == set()
    planted = [room.root / "labs/planted", room.folder / "planted", Path("/usr/planted"), Path("/etc/planted")]
    assert not any(path.exists() for path in planted)


def test_secrets_are_in_no_output(graded):
    room, _, _, _ = graded
    pages = [
        path for kind in ("autograded", "feedback", "reports") for path in (room.folder / kind).rglob("*") if path.is_file()
    ]
    assert len(pages) > len(ATTACKS)
    assert [path for path in pages if SECRET.encode() in path.read_bytes() and "prints_a_page" not in str(path)] == []


def test_active_content_is_stripped_from_feedback(graded):
    room, grades, _, _ = graded
    notebook = json.loads((room.folder / "autograded/prints_a_page" / LAB.name / f"{LAB.name}.ipynb").read_text())
    outputs = [output for cell in notebook["cells"][:1] for output in cell.get("outputs", [])]
    assert outputs and all("text/html" not in output.get("data", {}) for output in outputs)
    assert f"<b>{SECRET}-shown</b>" not in grades["prints_a_page"].feedback.read_text()


@pytest.mark.parametrize(
    ("name", "reason"), [("exits", "Kernel died"), ("loops_for_ever", "longer than"), ("floods", "printed more than 5 MB")]
)
def test_reason_is_in_the_feedback(graded, name, reason):
    _, grades, _, _ = graded
    assert reason in grades[name].feedback.read_text()
