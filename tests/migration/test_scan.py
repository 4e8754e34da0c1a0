"""The scan on programs written for this test: every comment in them says what must be found on its line, and nothing else may be."""

import re
from pathlib import Path

import pytest

import course_lib
from course_lib.errors import CourseError
from course_lib.migration import scan
from course_lib.migration.analysis.sources import from_python
from course_lib.migration.scanner import Scan, scan_source, target_version

SAMPLES = Path(__file__).parent / "samples"
_EXPECTED = re.compile(r"# [^#]*?\b(removed|unknown|ignored|changed|deprecated) ([^#]+)")

Found = set[tuple[int, str, str]]


def expected(path: Path) -> Found:
    wanted = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for comment in _EXPECTED.finditer(line):
            wanted |= {(number, comment[1], name.strip()) for name in comment[2].split(",")}
    return wanted


def found(result: Scan) -> Found:
    return {(one.line, one.verdict.severity, one.verdict.name) for one in result.findings}


def of(code: str, to: str = "11.4") -> list[tuple[int, str, str]]:
    """Line, severity and name of what a program holds."""
    verdicts, _ = scan_source(from_python(code), target_version(to))
    return [(place.line, verdict.severity, verdict.name) for place, verdict in verdicts]


def names(code: str, to: str = "11.4") -> list[str]:
    return [name for _, _, name in of(code, to)]


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_a_sample_holds_what_its_comments_say(path: Path) -> None:
    assert found(scan([path])) == expected(path)


def test_the_samples_would_show_a_miss() -> None:
    counts = {path.stem: len(expected(path)) for path in SAMPLES.glob("*.py")}
    assert counts == {"builder_7": 40, "runtime_8": 30, "python_2": 4, "torch_tensorrt_old": 10, "current": 0}


@pytest.mark.parametrize("version", ["8.6", "10.16", "11.4"])
def test_code_for_all_versions_has_no_finding_in_any(version: str) -> None:
    assert found(scan([Path(course_lib.__file__).parent / "engines"], version)) == set()


def test_a_notebook_is_read_cell_by_cell() -> None:
    result = scan([SAMPLES / "old.ipynb"])
    assert [(one.cell, one.line, one.verdict.name) for one in result.findings] == [
        (1, 3, "trtexec --best"),
        (2, 2, "pip install nvidia-tensorrt"),
        (3, 2, "trtexec --fp16"),
        (4, 1, "trtexec --workspace"),
        (4, 4, "Builder.build_cuda_engine"),  # `builder` comes from cell 2
        (5, 3, "Builder.max_batch_size"),
        (6, 2, "trtexec --int8"),
        (6, 3, "trtexec --best"),
    ]


def test_python_2_is_scanned_and_said_to_be() -> None:
    result = scan([SAMPLES / "python_2.py"])
    assert len(result.notes) == 1 and "not Python 3 (line 6" in result.notes[0] and not result.unread


# ---- the version decides


HALF = "import tensorrt as trt\nflag = trt.BuilderFlag.FP16\n"
ATTENTION = "import tensorrt as trt\ndef f(n: trt.INetworkDefinition):\n    n.add_attention()\n    n.add_plugin_v2([], p)\n"
STRONGLY = "import tensorrt as trt\ntrt.NetworkDefinitionCreationFlag.STRONGLY_TYPED"
REFIT = "import tensorrt as trt\n# {}\nconfig.set_flag(trt.BuilderFlag.REFIT)\n"
POLYGRAPHY = "from polygraphy.backend.trt import CreateConfig\nCreateConfig(fp16=True, int8=False, memory_pool_limits={})\n"


@pytest.mark.parametrize(
    ("code", "to", "found"),
    [
        (HALF, "8.6", []),
        (HALF, "10.16", ["deprecated BuilderFlag.FP16"]),
        (HALF, "11.0", ["removed BuilderFlag.FP16"]),
        (HALF, "rtx", ["removed BuilderFlag.FP16"]),
        ("import tensorrt as trt\ntrt.Builder(x).max_workspace_size = 1", "8.6", ["removed Builder.max_workspace_size"]),
        # deprecation comes from NVIDIA's docstrings and from the rules
        (ATTENTION, "11.4", ["deprecated INetworkDefinition.add_attention", "deprecated INetworkDefinition.add_plugin_v2"]),
        (ATTENTION, "8.6", []),
        (STRONGLY, "11.4", ["deprecated NetworkDefinitionCreationFlag.STRONGLY_TYPED"]),
        (STRONGLY, "10.16", []),
        # a keyword that no version had is a typing error, which is not the scan's business
        ("import tensorrt as trt\nlayer = trt.Builder(x).create_network().add_resize(input=1, output_dims=2)\n", "11.4", []),
        # folklore needs the words beside it
        (REFIT.format("saves memory by reuse"), "11.4", ["changed BuilderFlag.REFIT"]),
        (REFIT.format("weights are updated every night"), "11.4", []),
        (POLYGRAPHY, "11.4", ["removed CreateConfig(fp16=)"]),
        (POLYGRAPHY, "10.16", []),
        ("CreateConfig(max_workspace_size=1, calibrator=c)", "10.16", ["removed CreateConfig(max_workspace_size=)"]),
    ],
)
def test_the_target_decides(code: str, to: str, found: list[str]) -> None:
    assert [f"{severity} {name}" for _, severity, name in of(code, to)] == found


def test_an_unknown_version_and_a_path_that_does_not_exist_are_rejected() -> None:
    for text in ("9", "", "11.", "x", "12.0"):
        with pytest.raises(ValueError, match="no table of TensorRT"):
            target_version(text)
    with pytest.raises(CourseError, match="no/such: no such file or folder"):
        scan(["no/such"])


# ---- which names are TensorRT's


@pytest.mark.parametrize(
    "code",
    [
        "import tensorrt\ntensorrt.BuilderFlag.FP16",
        "from tensorrt import BuilderFlag as F\nF.FP16",
        "from tensorrt import *\nBuilderFlag.FP16",
        "import tensorrt_rtx as trt\ntrt.BuilderFlag.FP16",
        "trt = importlib.import_module('tensorrt')\ntrt.BuilderFlag.FP16",
        "import tensorrt as trt\ntrt.tensorrt.BuilderFlag.FP16",
        "import tensorrt as trt\ngetattr(trt.BuilderFlag, 'FP16')",
        "def f(trt):\n    return trt.BuilderFlag.FP16",
        "import tensorrt as trt\nflags = trt.BuilderFlag\nflags.FP16",
    ],
)
def test_the_module_is_known_under_any_name(code: str) -> None:
    assert names(code)[-1:] == ["BuilderFlag.FP16"]


@pytest.mark.parametrize(
    "code",
    [
        "from tensorflow.python.compiler.tensorrt import trt_convert as trt\ntrt.BuilderFlag.FP16",
        "import tensorrt as trt\nimport argparse\nparser = argparse.ArgumentParser()\nparser.register_input(1)",
        "import tensorrt as trt\nfrom sqlalchemy import create_engine\nengine = create_engine('x')\nengine.num_bindings",
        "import tensorrt as trt\nengine = 'path'\nengine.num_bindings",
        "import tensorrt as trt\nthing.execute()\nthing.precision\nthing.max_batch_size\nthing.build_engine()",
        "x.max_workspace_size = 1; y.algorithm_selector",  # a file that does not speak of it
        "import tensorrt as trt\ntrt_setting.max_workspace_size = 1\nexport_params.num_bindings = 2",
        "import tensorrt as trt\nengine = open(path, 'rb').read()\nlen(engine)",
        "import tensorrt as trt\nwith open(path, 'rb') as file:\n    engine = file.read()\nlen(engine)",
        "import tensorrt as trt\ndef f(engine: bytes):\n    return len(engine)",
        "import tensorrt as trt\ndef load() -> bytes: ...\nengine = load()\nlen(engine)",
        "import tensorrt as trt\ndef f(engine):\n    log(len(engine))\n    return runtime.deserialize_cuda_engine(engine)",
        "import tensorrt as trt\nengine = builder.build_serialized_network(n, c)\nengine = bytes(engine)\nlen(engine)",
        "import tensorrt as trt\nlen(serialized_engine), len(plan_engine)",
        "import tensorrt as trt\nself.precision = trt.float16\nargs.precision = trt.float16",
    ],
)
def test_what_is_not_tensorrts_is_left_alone(code: str) -> None:
    assert names(code) == []


@pytest.mark.parametrize(
    "code",
    [
        "import tensorrt as trt\nwith trt.Builder(x) as b, b.create_builder_config() as c:\n    c.max_workspace_size = 1",
        "import tensorrt as trt\ndef make():\n    return trt.Builder(x).create_builder_config()\nc = make()\nc.max_workspace_size = 1",
        "import tensorrt as trt\nclass A:\n    def b(self):\n        self.c.max_workspace_size = 1\n"
        "    def a(self):\n        self.c = trt.Builder(x).create_builder_config()",
        "import tensorrt as trt\nc: 'trt.IBuilderConfig'\nc.max_workspace_size = 1",
        "import tensorrt as trt\nfrom typing import Optional\ndef f(c: Optional[trt.IBuilderConfig] = None):\n    c.max_workspace_size = 1",
        "import tensorrt as trt\nif (c := trt.Builder(x).create_builder_config()):\n    setattr(c, 'max_workspace_size', 1)",
        "import tensorrt as trt\nasync def f(my_config):\n    my_config.max_workspace_size = 1",
        "import tensorrt as trt\nc, d = trt.Builder(x).create_builder_config(), 2\nc.max_workspace_size = 1",
        "import tensorrt as trt\nf = lambda config: config.max_workspace_size",
        "import tensorrt as trt\nstack.enter_context(trt.Builder(x)).create_builder_config().max_workspace_size = 1",
    ],
)
def test_types_are_followed(code: str) -> None:
    assert names(code) == ["IBuilderConfig.max_workspace_size"]


# ---- conditions


@pytest.mark.parametrize(
    ("test", "reached"),
    [
        ("hasattr(engine, 'num_bindings')", False),
        ("not hasattr(engine, 'num_io_tensors')", False),
        ("hasattr(trt, 'IPluginV3')", True),
        ("hasattr(options, 'verbose')", True),  # no question about TensorRT
        ("int(trt.__version__.split('.')[0]) >= 7", True),
        ("tuple(map(int, trt.__version__.split('.')[:2])) < (8, 5)", False),
        ("LooseVersion(trt.__version__) < LooseVersion('8.5')", False),
        ("trt_version() >= '7.0'", True),
        ("trt.__version__ >= '10'", True),
        ("trt.__version__ >= '7'", True),  # as text it is not, and it was meant to be
        ("TRT_BUILD > 8601 and IS_TRT8", False),  # unclear: its author knows
        ("'FP16' in trt.BuilderFlag.__members__", False),
        ("'FP16' not in dir(trt.BuilderFlag)", True),
        ("old and int(trt.__version__.split('.')[0]) < 10", False),
        ("old or int(trt.__version__.split('.')[0]) < 10", True),
    ],
)
def test_code_that_is_not_reached_is_not_reported(test: str, reached: bool) -> None:
    code = f"import tensorrt as trt\ndef f(engine: trt.ICudaEngine):\n    if {test}:\n        engine.num_bindings\n"
    assert ("ICudaEngine.num_bindings" in names(code)) is reached


BRANCH = "import tensorrt as trt\ndef f(engine, new):\n    return engine.num_io_tensors if {} else engine.num_bindings\n"
RETURN = "import tensorrt as trt\ndef f(engine):\n    if {}:\n        {}\n    return engine.num_bindings\n"
CALLED = (
    "import tensorrt as trt\nNEW = hasattr(trt, 'IPluginV3')\ndef old(engine):\n    return engine.num_bindings\n"
    "def f(engine):\n    return 0 if NEW else old(engine)\n"
)


@pytest.mark.parametrize(
    ("code", "reached"),
    [
        (BRANCH.format("hasattr(engine, 'num_io_tensors')"), False),
        (BRANCH.format("hasattr(engine, 'num_bindings')"), True),
        (BRANCH.format("new"), True),
        (RETURN.format("hasattr(engine, 'num_io_tensors')", "return engine.num_io_tensors"), False),
        # a rejection of older versions guards nothing
        (RETURN.format("int(trt.__version__.split('.')[0]) < 7", "raise RuntimeError('too old')"), True),
        (RETURN.format("TRT_BUILD < 7000", "raise RuntimeError('too old')"), True),
        (CALLED, False),  # a function that is called under a condition only is under it too
        (CALLED + "old(e)\n", True),
    ],
)
def test_branches_returns_and_calls_guard_what_follows(code: str, reached: bool) -> None:
    assert names(code) == ["ICudaEngine.num_bindings"] * reached


# ---- keywords, comments, lost lines


def test_lines_that_no_python_parses_are_searched_for_names() -> None:
    code = "import tensorrt as trt\n  ) trt.UffParser() config.max_workspace_size = 1\nx = trt.BuilderFlag.FP16\n"
    assert names(code) == ["UffParser", "IBuilderConfig.max_workspace_size", "BuilderFlag.FP16"]


@pytest.mark.parametrize(
    ("code", "name", "advice"),
    [
        ("r = n.add_resize(x)\nr.align_corners = True", "IResizeLayer.align_corners", "ALIGN_CORNERS"),
        (
            "n.add_matrix_multiply_deprecated(a, True, b, False)",
            "INetworkDefinition.add_matrix_multiply_deprecated",
            "TRANSPOSE",
        ),
    ],
)
def test_names_of_version_7_are_removed_and_not_unknown(code: str, name: str, advice: str) -> None:
    text = f"import tensorrt as trt\nn = trt.Builder(trt.Logger()).create_network()\nx = n.add_input('x', trt.float32, (1,))\n{code}\n"
    [(verdict,)] = [[v for _, v in scan_source(from_python(text), "11.4")[0] if v.name == name]]
    assert verdict.severity == "removed" and verdict.since == "8.0" and advice in verdict.use


# ---- Torch-TensorRT


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("s = torch.jit.trace(n, x)\nm_trt = t.compile(s, {})\ntorch.jit.save(m_trt, 'm')", []),
        ("s = torch.jit.script(n).eval().cuda()\nm_trt = t.compile(s, ir='ts', {})", []),
        ("def f(n: torch.jit.ScriptModule):\n    return t.compile(module=n, {})", []),
        ("s = torch.jit.script(n)\nm = t.compile(s, ir='dynamo', {})", ["ignored torch_tensorrt.compile(enabled_precisions=)"]),
        ("m = t.compile(n, {})", ["ignored torch_tensorrt.compile(enabled_precisions=)"]),
    ],
)
def test_a_script_module_has_the_keywords_of_its_own_front_end(code: str, found: list[str]) -> None:
    text = "import torch\nimport torch_tensorrt as t\n" + code.replace("{}", "enabled_precisions={torch.half}") + "\n"
    assert [f"{severity} {name}" for _, severity, name in of(text)] == found


@pytest.mark.parametrize(
    ("arguments", "to", "found"),
    [
        ("enabled_precisions={torch.half}", "11.4", ["ignored torch_tensorrt.compile(enabled_precisions=)"]),
        ("enabled_precisions={torch.half}", "10.16", ["removed torch_tensorrt.compile(enabled_precisions=)"]),
        ("enabled_precisions={torch.half}", "8.6", []),  # no wheel of that time was read
        ("calibrator=c, ir='ts', enabled_precisions={torch.half}", "11.4", ["removed torch_tensorrt.compile(calibrator=)"]),
        ("arg_inputs=[t.Input(shape=(1,), shapes=2)], truncate_double=True", "11.4", ["ignored torch_tensorrt.Input(shapes=)"]),
        ("cache_built_engines=True, immutable_weights=False", "11.4", []),
        ("**{'refit': True}", "11.4", ["removed torch_tensorrt.compile(refit=)"]),
    ],
)
def test_keywords_of_torch_tensorrt(arguments: str, to: str, found: list[str]) -> None:
    code = f"import torch\nimport torch_tensorrt as t\nmodel_trt = t.compile(m, {arguments})\n"
    assert [f"{severity} {name}" for _, severity, name in of(code, to)] == found


# ---- files


def test_folders_are_searched(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.py").write_text("import tensorrt as trt\ntrt.UffParser()\n")
    (tmp_path / "Dockerfile").write_text("FROM x\nRUN trtexec --onnx=m --fp16\n")
    (tmp_path / "requirements-gpu.txt").write_text("numpy\ntensorrt==8.6.1  # old\nnvidia-pyindex\n")
    (tmp_path / "README.md").write_text(
        "Use --fp16 with trtexec.\n\n```python\nimport tensorrt as trt\n...\nbuilder.max_batch_size = 1\n```\n\n    trtexec --best\n"
    )
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "y.py").write_text("import uff\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    result = scan([tmp_path])
    assert result.files == 4 and result.fails
    assert [(Path(one.file).name, one.line, one.verdict.name) for one in result.findings] == [
        ("Dockerfile", 2, "trtexec --fp16"),
        ("README.md", 6, "Builder.max_batch_size"),
        ("README.md", 9, "trtexec --best"),
        ("x.py", 2, "UffParser"),
        ("requirements-gpu.txt", 2, "pip install tensorrt==8.6.1"),
        ("requirements-gpu.txt", 3, "pip install nvidia-pyindex"),
    ]


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    for name, content in {
        "a.ipynb": b"{",
        "b.ipynb": b"[]",
        "c.py": b"\0\0\0\0",
        "d.py": b"\xff\xfe" + "import uff".encode("utf-16-le"),
        "e.py": b"\xef\xbb\xbfimport uff\r\n",
        "f.ipynb": b'{"cells": [3, {"cell_type": "code"}, {"cell_type": "code", "source": "import uff"}]}',
        "g.ipynb": b'{"worksheets": [{"cells": [{"cell_type": "code", "input": ["import uff"]}]}]}',
    }.items():
        (tmp_path / name).write_bytes(content)
    result = scan([tmp_path])
    assert [text.partition(": ")[2].split(",")[0] for text in result.unread] == [
        "not a notebook",
        "not a notebook",
        "not a text file",
    ]
    assert result.files == 4 and [one.verdict.name for one in result.findings] == ["import uff"] * 4


def test_code_in_other_languages_is_counted(tmp_path: Path) -> None:
    for name in ("a.cpp", "b.cu", "c.cs", "third/d.h", ".git/e.cpp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("b->setMaxBatchSize(1);\n", encoding="utf-8")
    result = scan([tmp_path], exclude=["third"])
    assert result.files == 0 and not result.unread
    assert [note.partition(": ")[2] for note in result.notes] == [
        "2 files of C++ and CUDA not read: only Python, notebooks and command lines are understood",
        "1 file of another language not read: only Python, notebooks and command lines are understood",
    ]


def test_a_tower_of_brackets_is_no_crash() -> None:
    nested = "import tensorrt as trt\nx = " + "(" * 3000 + "1" + ")" * 3000 + "\ntrt.UffParser()\n"
    assert "UffParser" in names(nested)
    long_sum = "import tensorrt as trt\nx = " + "+".join(["1"] * 20000) + "\n"
    verdicts, problem = scan_source(from_python(long_sum), "11.4")
    assert verdicts == [] and "nested" in problem
