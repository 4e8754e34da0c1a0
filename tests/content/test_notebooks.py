"""Notebooks as they are committed, and lectures and solutions run top to bottom."""

import contextlib
import getpass
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from course_lib import labs, style
from course_lib.grading.nbgrader.learner_version import stale
from docs import make_links
from tests import unchanged, warm_processes

ROOT = Path(__file__).resolve().parents[2]
LECTURES = sorted(ROOT.glob("lectures/*.ipynb"))
SOLUTIONS = sorted(ROOT.glob("solutions/*/*.ipynb"))
LESSONS = [path for path in LECTURES if not path.name.startswith("00")]
NOTEBOOKS = [*LECTURES, *SOLUTIONS, *sorted(ROOT.glob("labs/*/*.ipynb"))]
# torch's own choice of a folder: what one notebook compiles serves all
INDUCTOR = f"{tempfile.gettempdir()}/torchinductor_{getpass.getuser()}"


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_committed_clean(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    ids = [cell["id"] for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_code_fits_the_page(path):
    """The book shows 92 columns at 1440 pixels."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [(cell["id"], line) for cell in cells for line in cell.source.splitlines() if len(line) > 92] == []


GITHUB, ELSEWHERE = "https://github.com/someone/a-course", "https://example.org/someone/a-course"


@pytest.mark.parametrize("path", make_links.sources(), ids=name_of)
def test_a_notebook_has_the_address_of_pyproject_and_links_only_where_there_is_one(path):
    name = make_links.name_in_repository(path)
    notebook = nbformat.read(path, as_version=4)
    assert notebook == make_links.with_links(notebook, name, make_links.repository()), "run `python docs/make_links.py`"
    published = make_links.with_links(notebook, name, GITHUB)
    assert f"https://someone.github.io/a-course/{name.replace('.ipynb', '.html')})" in published.cells[0].source
    assert f"https://colab.research.google.com/github/someone/a-course/blob/main/{name})" in published.cells[0].source
    elsewhere = make_links.with_links(published, name, ELSEWHERE)
    assert f'@ git+{ELSEWHERE}"' in elsewhere.cells[1].source and not re.search("github|colab", str(elsewhere.cells[:2]))
    unpublished = make_links.with_links(elsewhere, name, "")
    assert not re.search(r"https?://\S*a-course|\bgit\+|\[Read it", str(unpublished))
    assert make_links.with_links(unpublished, name, GITHUB) == published


def test_readme_links_to_the_book_from_its_first_lines_and_from_each_row_of_the_syllabus():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == make_links.readme(text, make_links.repository()), "run `python docs/make_links.py`"
    published, book = make_links.readme(text, GITHUB), "https://someone.github.io/a-course/"
    assert re.findall(rf"\(\[outputs\]\({re.escape(book)}lectures/(\w+)\.html\)\)(?:<br>| \|)", published) == [
        path.stem for path in LESSONS
    ]
    assert published.index(book) < published.index("<img") and f"git clone {GITHUB} && cd a-course\n" in published
    elsewhere = make_links.readme(published, ELSEWHERE)
    assert f"git clone {ELSEWHERE} && cd a-course\n" in elsewhere and "github.io" not in elsewhere
    assert "a-course" not in make_links.readme(elsewhere, "")


CELL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell()
shell.register_magic_function(print, magic_name="pip")
sys.modules["course_lib"] = None  # not installed
shell.run_cell(sys.stdin.read()).raise_error()
"""


@pytest.mark.parametrize(
    "answer, extra", [("echo 580.95.05", "[gpu]"), ("echo 550.54.15", ""), ("echo NVIDIA-SMI has failed", ""), ("exit 127", "")]
)
def test_a_hosted_machine_gets_tensorrt_where_its_driver_can_run_it(answer, extra, tmp_path):
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{answer}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "IPYTHONDIR": str(tmp_path)}
    source = make_links.INSTALL.replace("REPOSITORY", ELSEWHERE)
    ran = subprocess.run([sys.executable, "-c", CELL], input=source, capture_output=True, text=True, env=environment)
    assert (ran.stdout, ran.stderr) == (f'install -q "tensorrt-course{extra} @ git+{ELSEWHERE}"\n', "")


@pytest.fixture(scope="module")
def warm(tmp_path_factory) -> Iterator[str]:
    """The name of a kind of kernel that starts at once; see `warm_processes`."""
    folder = tmp_path_factory.mktemp("warm")
    kind = folder / "kernels" / "warm"
    kind.mkdir(parents=True)
    here = contextlib.nullcontext() if warm_processes.VARIABLE in os.environ else warm_processes.start(str(folder))
    with here, pytest.MonkeyPatch.context() as patched:
        argv = [*warm_processes.command(), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        (kind / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "warm", "language": "python"}))
        patched.setenv("JUPYTER_PATH", str(folder))
        yield "warm"


# Runs first: measurements, training and the evaluation of a text end early, because their figures are drawn all the same.
SHORT = """
from course_lib import benchmark, precision
from course_lib.benchmark import serving
from course_lib.teaching.low_bits import loss
def _short(measurement, limit, most):
    return lambda *given, **options: measurement(*given, **{**options, limit: min(options.get(limit, most), most)})
benchmark.compare = _short(benchmark.compare, "time_limit_s", 0.3)
benchmark.measure = _short(benchmark.measure, "seconds", 0.5)
serving.throughputs = _short(serving.throughputs, "seconds", 0.1)
def _first(work, most):
    return lambda subject, data, **options: work(subject, data[:most], **options)
precision.train = _first(precision.train, 3)  # batches
loss.window_bits = _first(loss.window_bits, 1024)  # bytes
"""


def executed(path: Path, tmp_path: Path, kind: str = "python3", first: str = "") -> nbformat.NotebookNode:
    """A notebook with its outputs, run in a copy of its folder; raises on the first cell that fails."""
    folder = tmp_path / path.parent.relative_to(ROOT)
    shutil.copytree(path.parent, folder)
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(first))
    where = {"metadata": {"path": str(folder)}}
    # A kernel with torch in it takes two seconds to leave by itself. Ended at once it leaves its temporary files.
    client = NotebookClient(notebook, timeout=180, kernel_name=kind, resources=where, shutdown_kernel="immediate")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        return client.execute(env={"TORCHINDUCTOR_CACHE_DIR": INDUCTOR, **os.environ, "TMPDIR": scratch})


# The longest of them: `make slow-test` runs all solutions, with their checks.
LONG = ("lab02", "lab05", "lab04", "lab07", "lab10", "lab12", "lab15", "lab13", "lab14", "lab06")
QUICK = [path for path in SOLUTIONS if not path.name.startswith(LONG)]


@pytest.mark.parametrize("path", [*LECTURES, *QUICK], ids=name_of)
def test_runs_top_to_bottom(path, tmp_path, monkeypatch, request):
    """The checks of a lab examine nothing here, as when it is graded: `test_solution_passes_its_checks` runs them.

    What ran once runs again when the notebook changes, or the library's packages that it imports, or an installed package.
    """
    source = path.read_text(encoding="utf-8")
    key = unchanged.key("executed", files=[path, *unchanged.imported(source)])
    if unchanged.known(key):
        return
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    cells = executed(path, tmp_path, request.getfixturevalue("warm"), first=SHORT).cells
    said = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output for output in said if output.output_type == "stream" and output.name == "stderr"] == []
    pictures = [output.data["image/png"] for output in said if "image/png" in output.get("data", {})]
    widths = [int.from_bytes(b64decode(png[:32])[16:20], "big") for png in pictures]
    assert all(width <= round(110 * style.WIDTH) for width in widths), f"figures are too wide for a phone: {widths} pixels"
    if path in LESSONS:
        assert len(pictures) >= 4, "a lecture has at least four figures"
    unchanged.remember(key)


@pytest.mark.parametrize("path", LESSONS, ids=name_of)
def test_a_lecture_has_what_every_lecture_has(path):
    cells = nbformat.read(path, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    start = r"# \d+\. .*\n\n(\[Read it .*\n\n)?> \*\*After this lecture you can\*\*\n(>.*\n)+\n!\["  # a box, and the key figure
    assert cells[0].source.startswith(f"# {int(path.name[:2])}. ") and re.match(start, cells[0].source)
    assert all(word in cells[0].source for word in ("**You need**", "**It takes**", "**It prepares**"))
    questions = re.findall(r"\*\*Question\.\*\*.*?<details><summary>Answer</summary>", text, re.DOTALL)
    assert len(questions) >= 3
    for part in (
        "**_Common misconception._**",
        "**Migration box.**",
        "## Pitfalls",
        "## Explain it to a colleague",
        "## Summary",
        "## Sources",
    ):
        assert part in text, part
    assert re.search(r"\*\*Next:\*\* .*\]\(.*ipynb\)", text)


# What stands below the heading of a section: how hard it is, and whether a reader may skip it.
MARKS = re.compile(r"^\*Difficulty (●○○|●●○|●●●), importance (●○○|●●○|●●●)\*$", re.MULTILINE)
CLOSING = {"Pitfalls", "Explain it to a colleague", "Summary", "Sources"}


@pytest.mark.parametrize("path", LESSONS, ids=name_of)
def test_each_section_says_how_hard_and_how_important_it_is(path):
    cells = nbformat.read(path, as_version=4).cells
    sections = [cell.source for cell in cells if cell.cell_type == "markdown" and cell.source.startswith("## ")]
    marked = {text.partition("\n")[0][3:]: MARKS.fullmatch([*text.splitlines(), ""][1]) for text in sections}
    assert [heading for heading, marks in marked.items() if not marks and heading not in CLOSING] == []
    assert {marks[2] for marks in marked.values() if marks} >= {"●●●", "●●○"}, "not everything is important"


@pytest.mark.parametrize("path", LESSONS, ids=name_of)
def test_a_lecture_has_at_most_3800_words(path):
    """What a reader reads: without exercises, hints, the link below the title, marks of a section and the list of sources."""
    cells = nbformat.read(path, as_version=4).cells
    read = [one.source for one in cells if one.cell_type == "markdown" and not one["id"].startswith("exercise-")]
    text = "\n".join(one for one in read if not one.startswith("## Sources"))
    text = re.sub(r"^\[Read it .*", "", MARKS.sub("", text), flags=re.MULTILINE)
    words = [word for word in text.split() if re.search(r"\w", word)]
    assert len(words) <= 3800, f"{len(words)} words: move or delete what a reader does not need"


def test_there_are_seventeen_lectures():
    assert [path.name[:2] for path in LESSONS] == [f"{number:02}" for number in range(1, 18)]


@pytest.mark.slow
@pytest.mark.parametrize("path", SOLUTIONS, ids=name_of)
def test_solution_passes_its_checks(path, tmp_path):
    checks = [cell for cell in executed(path, tmp_path).cells if cell.cell_type == "code" and "lab.check(" in cell.source]
    assert checks
    for cell in checks:
        said = "".join(str(output.get("data", {}).get("text/plain", "")) for output in cell.outputs)
        assert "Tier.FULL" in said, (cell.source, said)


@pytest.mark.parametrize("name", labs.names())
def test_lab_is_what_its_solution_generates(name):
    assert stale(labs.find(name), ROOT) == []


@pytest.mark.parametrize("name", labs.names())
def test_lab_holds_no_solution_and_every_task_has_its_grade_cell(name):
    lab = labs.find(name)
    path = ROOT / "labs" / name / f"{name}.ipynb"
    text = path.read_text()
    assert "BEGIN SOLUTION" not in text and "Rubric" not in text
    cells = nbformat.read(path, as_version=4).cells
    graded = {m["grade_id"]: m["points"] for cell in cells if (m := cell.metadata.get("nbgrader", {})).get("grade")}
    assert {task.id: task.points for task in lab.tasks}.items() <= graded.items()
    assert [task for task in graded if task not in {t.id for t in lab.tasks}] == ["written"]


@pytest.mark.parametrize("name", labs.names())
def test_a_task_has_one_name_in_the_table_its_heading_and_the_report(name):
    cells = nbformat.read(ROOT / "solutions" / name / f"{name}.ipynb", as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    headings = "\n".join(re.findall(r"^## Task \d+: (.*) \(.*points?\)$", text, re.M)).lower()
    for task in labs.find(name).tasks:
        assert f"\n| {task.title} ({task.points:g}) |" in text and task.title.lower() in headings


@pytest.mark.parametrize("name", labs.names())
def test_every_lecture_section_that_a_lab_names_exists(name):
    """A task points at the section that taught it, as [lecture N](...), "Section", "Section"; [lecture N](...), "Section"."""
    cells = nbformat.read(ROOT / "labs" / name / f"{name}.ipynb", as_version=4).cells
    taught = [line for cell in cells for line in cell.source.splitlines() if line.startswith("*Taught in")]
    assert len(taught) >= len(labs.find(name).tasks)
    for line in taught:
        for number, target, after in re.findall(r"lecture (\d+)(?:\]\((\S+?)\))?(.*?)(?=\[?lecture \d+|$)", line):
            if not list(ROOT.glob(f"lectures/{int(number):02}_*.ipynb")):
                continue  # not written yet; once it is, the line needs a link
            assert target, f"lecture {number} is written and has no link: {line}"
            lecture = nbformat.read((ROOT / "labs" / name / target).resolve(), as_version=4)
            headings = {
                text.lstrip("# ") for cell in lecture.cells for text in cell.source.splitlines() if text.startswith("#")
            }
            sections = re.findall(r'"([^"]+?)[,.]?"', after)
            assert sections and set(sections) <= headings, f"lecture {number} has no section {set(sections) - headings}"
