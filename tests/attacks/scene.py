"""The scene of the attacks: a classroom of its own with planted secrets, services that nobody may reach, and two controls."""

from __future__ import annotations

import http.server
import importlib
import json
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import pytest

from course_lib.grading.batch.classroom import Classroom, Grade
from tests.attacks.active import active_content
from tests.attacks.catalog import Attack
from tests.grading.conftest import LAB, new_course

SECRET = "planted-secret-4711"
# Limits short enough for the suite: its cells need no time, except those that want all of it.
LIMITS = {"timeout": 6, "total_timeout_s": 20.0, "startup_timeout": 8}
NOT_CONFINED = "not confined:"
_PRELUDE = 'won = lambda what: print("not" + " confined:", what)\n'
HONEST, WRONG, PARTLY = "zz_honest", "control_wrong", "control_partly"  # the honest one is graded last


@dataclass
class Scene:
    """A classroom before and after its grading.

    Attributes:
        reference: folder with the reference's files.
        calls: what reached the listener on loopback and the named sockets.
        left: processes of the sandboxes that are there after the grading.
        rubbish: folders that grading left among its temporary files.
    """

    room: Classroom
    reference: Path
    port: int = 0
    calls: list[str] = field(default_factory=list)
    grades: dict[str, Grade] = field(default_factory=dict)
    left: dict[int, str] = field(default_factory=dict)
    rubbish: list[str] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.room.root

    @property
    def secret(self) -> Path:
        return self.root / "secret.txt"

    def folder(self, student: str) -> Path:
        assert "/" not in student and student not in ("", ".", ".."), "an attack stays in its own folder"
        return self.room.folder / "submitted" / student / LAB.name

    def submission(self, attack: Attack) -> None:
        """Put an attack into the classroom."""
        cell = attack.cell.replace("@ROOT@", str(self.root)).replace("@PORT@", str(self.port))
        self.put(attack.name, cell=cell, files=attack.honest_files)
        if attack.make:
            self.craft(attack, self.folder(attack.name))

    def craft(self, attack: Attack, folder: Path) -> None:
        """Let the attack's maker change a submission's folder."""
        module, _, function = attack.make.partition(".")
        getattr(importlib.import_module(f"tests.attacks.{module}"), function)(folder, self)

    def put(self, student: str, *, cell: str = "", files: bool = False) -> None:
        """A submission of the grade cells alone, so that grading it takes two seconds; nothing else earns points."""
        folder = self.folder(student)
        folder.mkdir(parents=True)
        notebook = nbformat.read(self.root / "labs" / LAB.name / f"{LAB.name}.ipynb", as_version=4)
        notebook.cells = [found for found in notebook.cells if found.metadata.get("nbgrader", {}).get("grade")]
        if cell:
            notebook.cells.insert(0, nbformat.v4.new_code_cell(_PRELUDE + cell))
        nbformat.write(notebook, folder / f"{LAB.name}.ipynb")
        for name in LAB.artifacts if files else ():
            shutil.copyfile(self.reference / name, folder / name)

    @property
    def usual(self) -> set[str]:
        """What is active in the feedback of anybody: nbgrader's own scripts."""
        return active_content(self.grades[WRONG].feedback)

    def outputs(self, student: str) -> str:
        """Everything that the cells of a graded notebook show, as one text."""
        path = self.room.folder / "autograded" / student / LAB.name / f"{LAB.name}.ipynb"
        if not path.is_file():
            return ""
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return json.dumps([cell.get("outputs", []) for cell in cells])

    def pages(self, student: str = "*") -> list[Path]:
        """What grading wrote for a learner or an instructor to read, without the submitted files."""
        kinds = ("autograded", "feedback", "reports")
        return [
            path
            for kind in kinds
            for found in self.room.folder.glob(f"{kind}/{student}")
            for path in found.rglob("*")
            if path.is_file() and path.name not in LAB.artifacts
        ]


def grade(folder: Path, reference: Path, chosen: list[Attack], *, trusted: bool = False, controls: bool = True) -> Scene:
    """Grade attacks and a wrong submission in one batch, with `controls` an honest one, which comes last, and one that is right in part."""
    scene = Scene(Classroom(new_course(folder), limits=LIMITS, trusted=trusted, examiner={"measure_s": 12.0}), reference)
    scene.secret.write_text(SECRET)
    with _listening(scene), pytest.MonkeyPatch.context() as patched:
        patched.setenv("PLANTED", SECRET)
        for attack in chosen:
            scene.submission(attack)
        scene.put(WRONG)
        if controls:
            scene.put(HONEST, files=True)
            scene.submission(Attack(PARTLY, "right shapes, wrong answers", "", make="engines.random_weights"))
        with _temporary_files(scene):  # of grading alone: exporting an attack's network leaves torch's own cache behind
            scene.grades = {found.student: found for found in scene.room.grade(LAB, scene.room.students(LAB))}
    return scene


@contextmanager
def _temporary_files(scene: Scene) -> Iterator[None]:
    """A folder of its own for temporary files, with a short name: paths of sockets have at most 107 characters."""
    folder, before = tempfile.mkdtemp(prefix="t-"), tempfile.tempdir
    tempfile.tempdir = folder
    try:
        yield
        scene.left, scene.rubbish = _processes_in(folder), [path.name for path in Path(folder).iterdir() if path.is_dir()]
    finally:
        tempfile.tempdir = before
        subprocess.run(["rm", "-rf", folder], check=False)  # it does not recurse, as Python's way does


def _processes_in(folder: str) -> dict[int, str]:
    """Processes that were started with a path below this folder, or work there."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                said = (entry / "cmdline").read_bytes().decode(errors="replace")
                if folder in said or folder in str((entry / "cwd").readlink()):
                    found[int(entry.name)] = said[:200]
        except OSError:
            continue
    return found


@contextmanager
def _listening(scene: Scene) -> Iterator[None]:
    """Services on loopback, under an abstract name, and under a name in the course's folder."""

    class Listener(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            scene.calls.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Listener)
    scene.port = server.server_port
    ends = [_unix(str(scene.root / "service.sock")), _unix(f"\0planted-{scene.port}")]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for end in ends:
        threading.Thread(target=_note_calls, args=(end, scene.calls), daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        for end in ends:
            end.shutdown(socket.SHUT_RDWR)
            end.close()


def _unix(address: str) -> socket.socket:
    end = socket.socket(socket.AF_UNIX)
    end.bind(address)
    end.listen()
    return end


def _note_calls(end: socket.socket, calls: list[str]) -> None:
    while True:
        try:
            caller, _ = end.accept()
        except OSError:
            return
        with caller:
            calls.append(f"{end.getsockname()!r}")
