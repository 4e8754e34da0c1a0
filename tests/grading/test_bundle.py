"""The learner's bundle: what is in it, what is not, and that it works without the instructor's files."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from course_lib import labs
from course_lib.errors import CourseError
from course_lib.grading.isolation import withheld
from course_lib.grading.isolation.sandbox import Sandbox
from course_lib.grading.nbgrader import bundle, learner_version
from docs import make_links
from tests.grading.conftest import needs_sandbox

ROOT = Path(__file__).resolve().parents[2]
_TEXT = (".py", ".ipynb", ".md", ".cu", ".toml", ".json")
_SHORTEST = 40  # characters of a line that is worth a search: shorter ones are in any program
FOR_INSTRUCTORS = ("docs/instructors.md", "docs/grading_machines.md", "docs/grading_reference.md")
# Lines of labs' solutions that lectures or the library teach in other places.
TAUGHT = {
    "b, s = yesterday.batch, yesterday.length",
    'export_onnx(detector(160), "model.onnx", opset=17)',
    "for name, one in calibration(learner).items()",  # a loop over what the course gives
    "__stcs(reinterpret_cast<uint4*>(to), words);",
    "return [trt.DimsExprs(inputs[0])]  # not in TensorRT 8.6",
    "if tensor.format != trt.TensorFormat.LINEAR:",
}


@pytest.fixture(scope="module")
def content() -> dict[str, bytes]:
    return dict(bundle.content(ROOT))


@pytest.fixture(scope="module")
def written(content, tmp_path_factory) -> Path:
    """The bundle as a folder. That labs are up to date is tested elsewhere, and takes half a minute."""
    folder = tmp_path_factory.mktemp("bundle")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(learner_version, "stale", lambda lab, root: [])
        assert bundle.write(ROOT, folder) == len(content)
    return folder


def test_the_bundle_has_what_learners_need_and_nothing_else(content):
    for name in ("Makefile", "README.md", "LICENSE", "pyproject.toml", "constraints.txt", "Containerfile", "docs/glossary.md"):
        assert name in content
    checkpoints = {path.relative_to(ROOT).as_posix() for path in (ROOT / "course_lib/models/checkpoints").iterdir()}
    assert {"course_lib/records/headline_h200.json", ".devcontainer/devcontainer.json", "binder/postBuild"} <= content.keys()
    assert checkpoints <= content.keys()
    for kind in ("lectures", "labs"):
        names = {path.relative_to(ROOT).as_posix() for path in ROOT.glob(f"{kind}/**/*.ipynb") if ".ipynb_" not in str(path)}
        assert names and names <= content.keys()
    tops = {name.partition("/")[0] for name in content}
    assert not tops & {"solutions", "tests", "benchmarks", "classroom", ".git", ".github", ".ci", ".venv", "build", "bundle"}
    assert not {name for name in content if "__pycache__" in name or name in FOR_INSTRUCTORS or name.endswith(".pyc")}
    here = str(ROOT).encode() + b"/"
    assert [name for name, data in content.items() if here in data] == [], "no path of the instructor's machine"


def test_two_bundles_are_equal_and_a_full_folder_is_rejected(content, written):
    found = (path for path in written.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    files = {path.relative_to(written).as_posix(): path.read_bytes() for path in found}
    assert files == content == dict(bundle.content(ROOT))
    with pytest.raises(CourseError, match="is not an empty folder") as error:
        bundle.write(ROOT, written)
    assert "\n" not in str(error.value)


def test_a_stale_lab_is_rejected(monkeypatch, tmp_path):
    """A lab that was solved in place would hand out its solution."""
    monkeypatch.setattr(learner_version, "stale", lambda lab, root: [f"{lab.name}.ipynb"])
    with pytest.raises(CourseError, match=r"labs/lab01_first_engine is stale .*: run `course release lab01_first_engine`"):
        bundle.write(ROOT, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_bundle_is_not_written_from_a_bundle(written, tmp_path):
    with pytest.raises(CourseError, match="the instructor's copy"):
        bundle.write(written, tmp_path / "again")


def test_a_wheel_holds_the_library_of_the_bundle_and_the_files_of_the_course(content):
    folder = f"course_lib/{bundle.IN_WHEEL}/"
    files = bundle.installed(ROOT)
    course = {name.removeprefix(folder): data for name, data in files.items() if name.startswith(folder)}
    library = {name: data for name, data in files.items() if not name.startswith(folder)}
    assert library == {name: data for name, data in content.items() if name.startswith("course_lib/")}
    assert course.items() <= content.items()
    assert {name for name in content if name.endswith(".ipynb")} <= course.keys()
    assert _dead_links(course) == []


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The files of a wheel in a folder, as `pip install` would write them."""
    folder = tmp_path_factory.mktemp("site-packages")
    bundle.write_files(bundle.installed(ROOT), folder)
    return folder


def test_start_writes_the_course_of_a_wheel(installed, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    environment.pop("COURSE_ROOT", None)

    def course(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "course_lib", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cwd, timeout=120)

    started = course("start", "my course", cwd=tmp_path)
    assert started.returncode == 0, started.stderr
    assert "cd 'my course' && course lab" in started.stdout
    progress = json.loads(course("progress", "--json", cwd=tmp_path / "my course").stdout)
    assert progress["lectures"][0]["title"] == "Lecture 1: Why an inference optimizer", "the course's folder was found"
    again = course("start", "my course", cwd=tmp_path)
    assert again.returncode == 1 and again.stderr == "course: my course is not an empty folder: name another one, or empty it\n"


def test_start_in_a_clone_says_where_the_course_is(tmp_path):
    with pytest.raises(CourseError, match=f"already in {re.escape(str(ROOT))}: run `course lab` there"):
        bundle.start(tmp_path / "course")


def test_links_of_pages_lead_to_files_of_the_bundle(content):
    assert _dead_links(content) == []
    readme = content["README.md"].decode()
    assert "instructors.md" not in readme
    targets = re.findall(r"^([\w-]+):", content["Makefile"].decode(), re.M)
    assert {"demo", "test"} <= set(re.findall(r"`?make ([\w-]+)", readme)) <= set(targets)


def _dead_links(content: Mapping[str, bytes]) -> list[str]:
    pages = {
        name: data.decode() for name, data in content.items() if name.endswith((".md", ".ipynb")) and "records" not in name
    }
    dead = []
    for name, text in pages.items():
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            path = link.partition("#")[0]
            if path and re.fullmatch(r"[\w./-]+\.(?:md|ipynb|png|svg|py)", path):
                found = os.path.normpath(Path(name).parent / path)
                dead += [f"{name}: {link}"] if found not in content else []
    return dead


def test_every_reference_is_a_placeholder(content):
    placeholder = withheld.PLACEHOLDER.read_bytes()
    names = {path.relative_to(ROOT).as_posix() for path in withheld.references(ROOT / "course_lib")}
    assert {name.split("/")[2] for name in names} == set(labs.names())
    assert {content[name] for name in names} == {placeholder}


def test_no_line_of_a_labs_solution_is_in_the_bundle(content):
    text = "\n".join(data.decode() for name, data in content.items() if name.endswith(_TEXT))
    given = {line for path in ROOT.glob("labs/*/*.ipynb") for line in _lines(path)}
    secret = {
        line.strip()
        for path in ROOT.glob("solutions/*/*.ipynb")
        for part in re.findall(r"### BEGIN (?:SOLUTION|HIDDEN TESTS)\n(.*?)### END", "\n".join(_lines(path, strip=False)), re.S)
        for line in part.splitlines()
    } - given
    long = {line for line in secret if len(line) >= _SHORTEST}
    assert len(long) > 100
    assert {line for line in long if line in text or json.dumps(line)[1:-1] in text} <= TAUGHT


def test_no_solution_of_a_lectures_exercise_is_in_the_bundle(content):
    """Single calls of TensorRT are taught there, so the whole body of a function is searched for."""
    text = "\n".join(data.decode() for name, data in content.items() if name.endswith(_TEXT))
    bodies = {}
    for path in sorted(ROOT.glob("solutions/lecture*.py")):
        source = path.read_text(encoding="utf-8")
        for function in ast.parse(source).body:
            if isinstance(function, ast.FunctionDef):
                lines = [line.strip() for line in (ast.get_source_segment(source, function) or "").splitlines()[1:]]
                bodies[f"{path.stem}.{function.name}"] = [line for line in lines if len(line) >= 20 and '"""' not in line]
    assert len(bodies) >= 48
    searched = {name: lines for name, lines in bodies.items() if len(lines) >= 2}
    assert len(searched) > 30
    known = [name for name, lines in searched.items() if all(line in text or json.dumps(line)[1:-1] in text for line in lines)]
    assert known == []


def _lines(path: Path, *, strip: bool = True) -> list[str]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    lines = [line for cell in cells for line in "".join(cell["source"]).splitlines()]
    return [line.strip() for line in lines] if strip else lines


@needs_sandbox
def test_the_sandbox_sees_the_library_of_the_bundle(content):
    """File by file, so without the labs' answers. Only the grader is hidden in it: learners need parts of it to check their files."""
    program = """
import course_lib, hashlib, json, pathlib
root = pathlib.Path(course_lib.__file__).parent
files = [path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
files += root.glob("labs/lab*/__pycache__/reference*")
print(json.dumps({path.relative_to(root.parent).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}))
"""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); exec({program!r})"
    ran = subprocess.run(Sandbox().command([sys.executable, "-c", code]), capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    expected = {
        name: hashlib.sha256(data).hexdigest()
        for name, data in content.items()
        if name.startswith("course_lib/") and not name.startswith("course_lib/grading/")
    }
    assert json.loads(ran.stdout) == expected


def _in_bundle(written: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(written), "COURSE_ROOT": str(written)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # each worker would compile the library again
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=written, timeout=300)


def test_check_in_the_bundle_leaves_open_what_needs_the_reference(written, tmp_path):
    labs.find("lab01").write_reference(tmp_path)
    code = f"""
from pathlib import Path
from course_lib import labs
from course_lib.labs import Examiner
for outcome in labs.find("lab01").examine(Path({str(tmp_path)!r}), Examiner(measure_s=1)).outcomes:
    compared = [one.met for one in outcome.criteria if one.name == "speed over the reference engine"]
    print(outcome.tier, outcome.code, any(met is not None for met in compared))
labs.find("lab02").write_reference(Path("."))
"""
    ran = _in_bundle(written, "-c", code)
    profile, accuracy, speed = ran.stdout.splitlines()
    assert profile.startswith("full ") and accuracy.startswith("full ")
    assert ran.returncode == 1 and "only the grader has it" in ran.stderr.splitlines()[-1]
    # How fast the engine is compared with PyTorch depends on the machine.
    assert speed in ("inconclusive no_reference False", "none  False"), speed


def test_what_needs_the_instructors_copy_says_so_in_one_line(written):
    for command in ("grade", "release"):
        ran = _in_bundle(written, "-m", "course_lib", command, "lab01")
        assert ran.returncode == 1 and ran.stdout == "" and len(ran.stderr.splitlines()) == 1, ran.stderr
        assert "needs the instructor's copy of the course" in ran.stderr and "the learner's bundle" in ran.stderr
    assert "run `course check LAB`" in _in_bundle(written, "-m", "course_lib", "grade", "lab01", "--student", "ada").stderr


@pytest.mark.slow
def test_both_commands_of_the_readme_work(written, tmp_path):
    """`make demo` and `make test` in an environment that they make: about ten minutes, most of it installation."""
    folder = tmp_path / "course"
    folder.mkdir()
    subprocess.run(["cp", "-r", f"{written}/.", folder], check=True)
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "COURSE_ROOT", "VIRTUAL_ENV")}
    for target, expected in (("demo", "0 of 12 points, 2 open"), ("test", "engines are built with")):
        command = ["make", target, f"PYTHON={sys.executable}"]
        ran = subprocess.run(command, capture_output=True, text=True, env=clean, cwd=folder, timeout=2400)
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
        assert expected in ran.stdout


def _python() -> str:
    """Python 3.12, which hosted notebooks have, if this machine has it; the tests' Python otherwise."""
    known = [*Path.home().glob(".pyenv/versions/3.12*/bin/python"), shutil.which("python3.12")]
    return str(next(filter(None, known), sys.executable))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_notebooks_alone_run_in_a_fresh_environment(written, tmp_path, monkeypatch, request):
    """The first code cell of each installs what it needs from the wheel: ten minutes, most of it installation."""
    for name in ("PYTHONPATH", "COURSE_ROOT", "VIRTUAL_ENV", "NBGRADER_EXECUTION"):
        monkeypatch.delenv(name, raising=False)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(written)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    environment = tmp_path / "environment"
    request.addfinalizer(lambda: shutil.rmtree(environment))  # pytest keeps folders of three runs, and this one has 6 GB
    subprocess.run([_python(), "-m", "venv", environment], check=True)
    subprocess.run([environment / "bin" / "pip", "install", "--quiet", "ipykernel"], check=True)
    kind = tmp_path / "kernels" / "fresh"
    kind.mkdir(parents=True)
    argv = [str(environment / "bin" / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kind / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "fresh", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))

    for path in ("solutions/lab01_first_engine/lab01_first_engine.ipynb", "lectures/13_torch_tensorrt.ipynb"):
        notebook = make_links.with_links(nbformat.read(ROOT / path, as_version=4), path.replace("solutions", "labs"), "WHEEL")
        notebook.cells[1].source = notebook.cells[1].source.replace("git+WHEEL", wheel.as_uri())
        alone = tmp_path / Path(path).stem
        alone.mkdir()
        NotebookClient(notebook, timeout=1800, kernel_name="fresh", resources={"metadata": {"path": str(alone)}}).execute()
        checks = [cell.outputs for cell in notebook.cells if cell.cell_type == "code" and "lab.check(" in cell.source]
        assert not checks or str(checks).count("Tier.FULL") >= 2
