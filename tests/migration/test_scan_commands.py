"""Command lines: trtexec, Polygraphy, Nsight Systems, pip."""

from pathlib import Path

import pytest

from course_lib.migration import scan
from course_lib.migration.analysis.commands import judge_command, judge_pin, tool_variables
from course_lib.migration.analysis.sources import read

SAMPLES = Path(__file__).parent / "samples"


def said(line: str, to: str = "11.4") -> list[str]:
    return [f"{verdict.severity} {verdict.name}" for verdict in judge_command(line, to)]


def test_a_shell_script() -> None:
    assert [(one.line, one.verdict.severity, one.verdict.name) for one in scan([SAMPLES / "build_old.sh"]).findings] == [
        (3, "removed", "trtexec --explicitBatch"),
        (3, "removed", "trtexec --workspace"),
        (3, "removed", "trtexec --fp16"),
        (5, "removed", "trtexec --int8"),
        (5, "removed", "trtexec --calib"),
        (5, "removed", "trtexec --buildOnly"),
        (6, "deprecated", "trtexec --streams"),
        (6, "removed", "trtexec --tacticSources=CUDNN"),
        (8, "removed", "polygraphy --fp16"),
        (8, "removed", "polygraphy --workspace"),
        (8, "changed", "polygraphy --validate"),
        (9, "removed", "polygraphy --save-tactics"),
        (10, "removed", "nsys gpukernsum"),
        (10, "changed", ".qdrep"),
        (11, "deprecated", "pip install nvidia-pyindex"),
        (11, "deprecated", "pip install pytorch-quantization"),
        (11, "changed", "pip install tensorrt==8.6.1"),
    ]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("$ time trtexec --fp16 | tee log", ["removed trtexec --fp16"]),
        ("$(TRTEXEC) --fp16", ["removed trtexec --fp16"]),
        ('["trtexec", "--fp16"]', ["removed trtexec --fp16"]),
        ("trtexec -fp16", ["removed trtexec --fp16"]),
        ("trtexec --preview=+fasterDynamicShapes0805", ["removed trtexec --preview=+fasterDynamicShapes0805"]),
        ("trtexec --inputIOFormats=fp16:chw --saveEngine=fp16.plan", []),
        ("# trtexec --fp16", []),
        ("trtexec --onnx=a # --fp16", []),
        ("mytrtexec --fp16", []),
        ("polygraphy run m.onnx --trt --tactic-replay r.json", ["removed polygraphy --tactic-replay"]),
        ("polygraphy run m.onnx --trt --int8 --load-tactics t", ["removed polygraphy --int8", "removed polygraphy --load-tactics"]),
        ("nsys profile --stop-on-range-end=true ./app", ["removed nsys --stop-on-range-end"]),
        ("nsys stats -r cuda_gpu_kern_sum,gpumemtimesum a.nsys-rep", ["removed nsys gpumemtimesum"]),
        ("python -m pip install 'tensorrt==10.0.1'", ["changed pip install tensorrt==10.0.1"]),
        ("pip install tensorrt>=8.6 tensorrt_llm==0.9 mytensorrt==1.0", []),
        ("pip uninstall nvidia-tensorrt", []),
        ('"${TRT_EXEC}" --onnx=a --best', ["removed trtexec --best"]),
        ("$OTHER --fp16", []),
        ("cp out/report.qdrep /tmp", ["changed .qdrep"]),
    ],
)  # fmt: skip
def test_one_line(line: str, found: list[str]) -> None:
    assert said(line) == found


def test_the_version_decides() -> None:
    line = "trtexec --fp16 --workspace=1 --streams=2"
    assert said(line, "8.6.1") == ["deprecated trtexec --streams"]
    assert said(line, "10.16") == ["removed trtexec --workspace", "deprecated trtexec --streams"]
    assert said("pip install tensorrt==10.0", "10.16") == []


def test_fences_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text("trtexec --fp16\n```sh\na\n```\n~~~py\nx = 1\n~~~\n$ b\n```\nc\n````\n    d\n")
    source = read(page)
    assert [(place.line, text.strip()) for place, text in source.commands] == [(3, "a"), (8, "$ b"), (10, "c"), (12, "d")]
    assert [program.text for program in source.programs] == ["x = 1"]


def test_a_variable_that_holds_a_tool_is_the_tool(tmp_path: Path) -> None:
    assert tool_variables(["export BIN=/opt/trt/bin/trtexec", "N = 'nsys'", "X=trtexec.log"])["bin"] == "trtexec"
    script = tmp_path / "a.sh"
    script.write_text('EXE="/usr/src/tensorrt/bin/trtexec"\n$EXE --onnx=a \\\n  --fp16\n${EXE} --int8\n$X --fp16\n')
    (tmp_path / "b.py").write_text(
        "TOOL = '/bin/trtexec'\nrun([TOOL, '--fp16'])\nrun(f'{TOOL} --best')\nother = [NAME, '--fp16']\n"
    )
    assert [(Path(one.file).name, one.line, one.verdict.name) for one in scan([tmp_path]).findings] == [
        ("a.sh", 2, "trtexec --fp16"),
        ("a.sh", 4, "trtexec --int8"),
        ("b.py", 2, "trtexec --fp16"),
        ("b.py", 3, "trtexec --best"),
    ]


def _flags(path: Path, text: str) -> list[tuple[int, str]]:
    """Lines and flags of the findings in a file with this text."""
    path.write_text(text, encoding="utf-8")
    return [(one.line, one.verdict.name.split()[-1]) for one in scan([path]).findings]


BATCH = (
    "@echo off\r\nset M=x.onnx\r\n"
    '"C:\\TRT\\bin\\trtexec.exe" --onnx=%M% ^\r\n  --workspace=4096 ^\r\n  --explicitBatch --fp16\r\n'
    "REM trtexec --int8\r\n:: trtexec --int8\r\n"
    'set "TRT=C:\\Program Files\\TensorRT\\bin\\trtexec.exe"\r\n"%TRT%" --best\r\n%TRT% --buildOnly && echo --int8\r\n'
)
POWERSHELL = (
    "# trtexec --int8\n$trt = 'D:\\TRT\\trtexec.EXE'\n& $trt --onnx=a.onnx `\n  --best\n"
    '& "C:\\Program Files\\TRT\\trtexec.exe" --fp16\nStart-Process trtexec.exe -ArgumentList "--onnx=a", "--workspace=3"\n'
)
CONDA = (
    "dependencies:\n  - python=3.8\n  - conda-forge::tensorrt=8.6\n  - pip:\n    - nvidia-tensorrt==8.4.1.5\n"
    '    - torch-tensorrt==1.2\n    - "nvidia-pyindex"\n'
)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.bat", BATCH, "3 --workspace, 3 --explicitBatch, 3 --fp16, 9 --best, 10 --buildOnly"),
        ("a.ps1", POWERSHELL, "3 --best, 5 --fp16, 6 --workspace"),
        ("environment.yml", CONDA, "3 tensorrt==8.6, 5 nvidia-tensorrt, 5 nvidia-tensorrt==8.4.1.5, 7 nvidia-pyindex"),
    ],
)
def test_scripts_of_windows_and_packages_of_conda(name: str, text: str, found: str, tmp_path: Path) -> None:
    assert ", ".join(f"{line} {flag}" for line, flag in _flags(tmp_path / name, text)) == found


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('run(["trtexec",\n "--onnx=a",\n "--workspace=512",\n "--fp32"])', [(3, "--workspace"), (4, "--fp32")]),
        ('c = ["trtexec", f"--onnx={x}"]\nif y:\n    c.append("--fp16")\nc += ["--int8"]', [(3, "--fp16"), (4, "--int8")]),
        ('c = "trtexec --onnx=a"\nc += " --fp16"\nc = c + " --workspace=3"\nsystem(c)', [(2, "--fp16"), (3, "--workspace")]),
        ('e = "/usr/bin/trtexec"\nsystem("%s --workspace=8" % e)\nrun("{} --best".format(e))', [(2, "--workspace"), (3, "--best")]),
        ('e = os.path.join(root, "bin", "trtexec")\nrun([e, "--fp16"])\nrun(f"{e} --best")', [(2, "--fp16"), (3, "--best")]),
        ('run(["trtexec"] + (["--int8"] if x else []))', [(1, "--int8")]),
        ('run(["C:\\\\TRT\\\\trtexec.exe", "--preview", "+fasterDynamicShapes0805"])', [(1, "--preview=+fasterDynamicShapes0805")]),
        ('f = "--fp16"\nsystem("trtexec " + f)', [(2, "--fp16")]),
        (
            'class A:\n    def __init__(self):\n        self.c = ["trtexec"]\n    def run(self):\n        go(self.c + ["--int8"])\n'
            '        self.c += ["--fp16"]',
            [(5, "--int8"), (6, "--fp16")],
        ),
        ('def f():\n    c = ["trtexec"]\ndef g():\n    c = ["python"]\n    c += ["--fp16"]', []),
        ('"""Use trtexec --fp16."""', []),
    ],
)  # fmt: skip
def test_words_that_a_program_adds_to_a_command(code: str, found: list[tuple[int, str]], tmp_path: Path) -> None:
    assert _flags(tmp_path / "a.py", code + "\n") == found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('dependencies = ["numpy", "tensorrt==8.6.1"]', ["pip install tensorrt==8.6.1"]),
        ('    install_requires=["tensorrt-cu12 ~= 10.3"],', ["pip install tensorrt-cu12==10.3"]),
        ('tensorrt = { version = "8.5.*", source = "nvidia" }', ["pip install tensorrt==8.5"]),
        ("  - tensorrt=8.6", ["pip install tensorrt==8.6"]),
        ('tensorrt = ">=10"', []),
        ('"tensorrt>=8.6"', []),
        ('# "tensorrt==8.6"', []),
    ],
)
def test_a_pin_of_a_project_is_found(line: str, found: list[str]) -> None:
    assert [one.name for one in judge_pin(line, "11.4")] == found


@pytest.mark.parametrize("name", ["pyproject.toml", "setup.py", "setup.cfg", "environment.yml", "requirements.in"])
def test_pins_are_read_in_project_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("x = 1\ny = [\n  'tensorrt==8.6.1',\n]\n" if name == "setup.py" else "a\n\ntensorrt==8.6.1\n")
    assert [(one.line, one.verdict.name) for one in scan([tmp_path]).findings] == [(3, "pip install tensorrt==8.6.1")]
