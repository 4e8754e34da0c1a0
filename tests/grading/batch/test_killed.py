"""A batch killed at any moment: after a rerun every score and reason is there, once, and right. Takes minutes: `make slow-test`."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from course_lib.grading.batch.classroom import Classroom
from course_lib.grading.isolation.supervise import descendants
from course_lib.grading.reports import attention, class_report
from tests.grading.batch.test_farm import empty
from tests.grading.conftest import LAB, needs_sandbox, new_course

pytestmark = [pytest.mark.slow, needs_sandbox, pytest.mark.timeout(1800)]

WITH_POINTS = ("s01", "s04", "s07", "s10", "s13", "s16")  # of 20, s00 to s19
EXPECTED = {f"s{index:02}": 10.0 if f"s{index:02}" in WITH_POINTS else 0.0 for index in range(20)}
COMMAND = [sys.executable, "-m", "course_lib.cli.app", "grade", LAB.name, "--workers", "2", "--json"]


@pytest.fixture
def room(tmp_path, reference) -> Classroom:
    room = Classroom(new_course(tmp_path))
    for index in range(20):
        folder = empty(room, f"s{index:02}")
        for name in LAB.artifacts if folder.parent.name in WITH_POINTS else ():
            shutil.copyfile(reference / name, folder / name)
    return room


def running(room: Classroom, marks: tuple[str, ...]) -> Callable[[int], int | None]:
    """Finds one descendant of the grader whose command holds one of the marks."""

    def find(grader: int) -> int | None:
        found = []
        for pid in descendants(grader):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if pid != grader and any(mark in command for mark in marks) and "supervise.py" not in command:
                found.append(pid)
        return random.choice(found) if found else None

    return find


VICTIMS = {
    "the grader": None,
    "a worker of the pool": ("multiprocessing.spawn", "multiprocessing-fork", "forkserver"),
    "a kernel": ("ipykernel_launcher",),
    "a runner": ("course_lib.engines.worker.child",),
}


@pytest.mark.parametrize("victim", VICTIMS)
def test_after_a_rerun_every_score_is_there_once(room, victim):
    seed = random.randrange(10**6)
    random.seed(seed)
    print(f"{victim}, seed {seed}")
    killed = 0
    for attempt in range(4):
        grader = subprocess.Popen(COMMAND, env={**os.environ, "COURSE_ROOT": str(room.root)}, stdout=subprocess.PIPE, text=True)
        find = (lambda pid: pid) if VICTIMS[victim] is None else running(room, VICTIMS[victim])
        if not killed:
            killed = kill_one(grader, find)
        said, _ = grader.communicate(timeout=900)
        if grader.returncode == 0:
            break
        assert attempt < 3, said
    assert killed
    rows = json.loads(said)["grades"]
    assert earned_or_open(rows) == EXPECTED and not any(row["error"] for row in rows)
    assert in_the_gradebook(room) == {row["student"]: row["score"] for row in rows}
    assert [path.name for path in (room.folder / "jobs" / LAB.name).iterdir()] == ["lock"]


def kill_one(grader: subprocess.Popen, find: Callable[[int], int | None]) -> int:
    """At a random moment of the batch, one process of the grader's own."""
    time.sleep(random.uniform(8, 20))
    while grader.poll() is None:
        if pid := find(grader.pid):
            os.kill(pid, signal.SIGKILL)
            return pid
        time.sleep(0.02)
    return 0


def earned_or_open(rows: list[dict]) -> dict[str, float]:
    """Points of the tasks by student, with those of a right submission that a busy machine left open: a kill must not lose any."""
    lost = {row["student"]: row["review"]["points"]["lost"] for row in rows}
    return {row["student"]: 10.0 - lost[row["student"]] if row["student"] in WITH_POINTS else row["score"] for row in rows}


def in_the_gradebook(room: Classroom) -> dict[str, float]:
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{room.folder / 'gradebook.db'}") as book:
        submissions = book.assignment_submissions(LAB.name)
        assert len(submissions) == len({one.student.id for one in submissions}) == 20
        ids = {task.id for task in LAB.tasks}
        return {one.student.id: sum(g.score for nb in one.notebooks for g in nb.grades if g.name in ids) for one in submissions}


MOMENTS = 20
REASONS = {"s02": "timestamp.txt holds no time", "s05": "the notebook could not be read", "s08": "left out 'holes.bin'"}


def with_reasons(room: Classroom) -> None:
    """Three that are graded with a reason, and a folder that is not graded at all."""
    submitted = room.folder / "submitted"
    (submitted / "s02" / LAB.name / "timestamp.txt").write_text("9" * 30)
    (submitted / "s05" / LAB.name / f"{LAB.name}.ipynb").write_text("{")
    with open(submitted / "s08" / LAB.name / "holes.bin", "wb") as file:
        file.truncate(60_000_000)
    (submitted / "a[1]" / LAB.name).mkdir(parents=True)


def test_twenty_kills_at_random_moments_lose_nothing_and_leave_nothing(room):
    """The grader itself is killed, again and again, from its start to its end: after each kill the same command goes on."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    draw, scratch = random.Random(seed), Path(tempfile.mkdtemp(prefix="k-"))
    with_reasons(room)
    environment = {**os.environ, "COURSE_ROOT": str(room.root), "TMPDIR": str(scratch)}
    kills = 0
    try:
        while kills < MOMENTS:
            grader = subprocess.Popen(COMMAND, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                assert grader.wait(draw.uniform(1, 20)) == 1, "it ended by itself: there are reasons"
            except subprocess.TimeoutExpired:
                grader.kill()
                grader.wait()
                kills += 1
        done = subprocess.run(COMMAND, env=environment, capture_output=True, text=True, timeout=900)
        assert done.returncode == 1, done.stderr
        known = json.loads(done.stdout)
        assert earned_or_open(known["grades"]) == EXPECTED
        assert in_the_gradebook(room) == {row["student"]: row["score"] for row in known["grades"]}
        for row in known["grades"]:
            assert row["error"].startswith(REASONS.get(row["student"], "")) and bool(row["error"]) == (
                row["student"] in REASONS
            )
        assert [row["submission"] for row in known["rejected"]] == ["'a[1]'"]
        assert {need.who[0]: need.why for need in attention.in_part(class_report.read(LAB, room))}.keys() == REASONS.keys()
        assert [path.name for path in (room.folder / "jobs" / LAB.name).iterdir()] == ["lock"]
        assert [path.name for path in scratch.iterdir()] == []
    finally:
        subprocess.run(["rm", "-rf", str(scratch)], check=True)
