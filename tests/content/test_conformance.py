"""Every name of TensorRT's and keyword of Torch-TensorRT's that the course uses exists in the versions that its code is for.

The versions are read from NVIDIA's bindings and Torch-TensorRT's wheels; `tests/migration/test_bindings.py` reads the bindings again.
"""

from pathlib import Path

import pytest

from docs import conformance
from docs.conformance import EVERY, Row, check, course_folders, page


@pytest.fixture(scope="module")
def course() -> tuple[list[Row], list[str]]:
    return check(course_folders())


def test_the_course_uses_no_name_that_a_version_lacks(course: tuple[list[Row], list[str]]) -> None:
    assert course[1] == []


def test_the_check_sees_the_course(course: tuple[list[Row], list[str]]) -> None:
    rows = {row.name: row for row in course[0]}
    assert len(rows) > 120
    everywhere = rows["IExecutionContext.execute_async_v3"]
    assert everywhere.versions == everywhere.reached == EVERY
    assert {"course_lib/engines/backends/tensorrt/execution.py", "lectures/02_architecture_and_workflow.ipynb"} <= set(
        everywhere.files
    )
    assert rows["ICudaEngine.get_binding_shape"].reached == ("8.6.1",)
    assert rows["ICudaEngine.device_memory_size"].reached == ("8.6.1",)
    assert rows["ILayer.precision (assignment)"].reached == ("8.6.1",)
    assert rows["IBuilderConfig.num_compute_capabilities"].reached == ("rtx-1.7.1",)
    assert rows["torch_tensorrt.dynamo.compile(arg_inputs=)"].versions == ("2.11", "2.12", "2.13", "2.14")


def test_the_page_has_a_row_a_name(course: tuple[list[Row], list[str]]) -> None:
    text = page(course[0])
    assert text.count("\n| `") == len(course[0])
    assert (
        "| `ICudaEngine.get_binding_shape` | ✓ | ✗ | ✗ | ✗ | ✗ | ✗ | course_lib/engines/backends/tensorrt/loaded.py |" in text
    )


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("def f(trt):\n    trt.BuilderFlag.FP16", "TensorRT 11.0 has no BuilderFlag.FP16"),
        ("def f(trt):\n    trt.Runtime(x).deserialise(y)", "TensorRT 11.4 has no Runtime.deserialise"),
        ("import tensorrt as trt\ntrt.ComputeCapability", "TensorRT 11.4 has no ComputeCapability"),
        ("def f(config):\n    config.set_timing_cache(t, ignore_mismatsch=True)  # trt", "set_timing_cache(ignore_mism"),
        ("def f(context):\n    context.active_optimization_profile = 1  # trt", "active_optimization_profile (assign"),
        ("def f(trt):\n    if hasattr(trt, 'Builder'):\n        trt.Builder", "every version passes the condition"),
        ("def f(trt):\n    if hasattr(trt, 'Nothing'):\n        trt.Builder", "no version passes the condition"),
        ("def f(trt, n):\n    if n < trt.__version__:\n        trt.Builder", "the versions that reach this line cannot be determined"),
        ("def f(trt):\n    trt.Builder  # TensorRT 8.6 only", "every version has it"),
        ("def f(trt):\n    trt.IPluginV3  # TensorRT 8.6 only", "TensorRT 8.6.1 has no IPluginV3"),
        ("import torch_tensorrt as t\nt.compile(m, enabled_precisions={1}, ir='dynamo')", "not read by Torch-TensorRT 2.13, 2.14"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found(tmp_path: Path, code: str, problem: str) -> None:
    (tmp_path / "a.py").write_text(code)
    problems = check([tmp_path])[1]
    assert any(problem in text for text in problems), problems


@pytest.mark.parametrize(
    "code",
    [
        "def f(trt):\n    trt.IPluginV3  # not in TensorRT 8.6",
        "def f(trt, config):\n    config.num_compute_capabilities = 1  # TensorRT for RTX only",
        "import tensorrt_rtx as trt\ntrt.ComputeCapability.SM89",
        "def f(trt):\n    if not hasattr(trt, 'IPluginV3'):\n        raise RuntimeError\n    trt.IPluginV3OneCore",
        "def f(trt, engine):\n    return engine.device_memory_size_v2 if hasattr(engine, 'device_memory_size_v2') else 0",
        "def f(trt, engine):\n    return engine.get_tensor_dtype('x').name, trt.BuilderFlag.__members__.items()",
        "import torch_tensorrt as t\nt.compile(m, ir='dynamo', arg_inputs=[t.Input(shape=(1,))], truncate_double=True)",
    ],
)
def test_what_is_right_passes(tmp_path: Path, code: str) -> None:
    (tmp_path / "a.py").write_text(code)
    assert check([tmp_path])[1] == []


def test_the_command_prints_the_page_and_counts_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text("def f(trt):\n    trt.UffParser\n")
    monkeypatch.setattr(conformance, "course_folders", lambda: [tmp_path])
    assert conformance.main() == 5  # 8.6 has it
    said = capsys.readouterr()
    assert said.out.startswith("# TensorRT names") and "a.py:2: TensorRT 11.4 has no UffParser" in said.err
