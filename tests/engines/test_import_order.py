"""TensorRT is imported before pycuda: the builder of TensorRT 8.6.0 crashes where pycuda came first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.labs.untouched import ROOT

MODULES = {
    "tensorrt.py": "print('tensorrt')",
    "tensorrt_rtx.py": "print('tensorrt_rtx')",
    "pycuda/__init__.py": "",
    "pycuda/driver.py": """
print('pycuda.driver')
class Context:
    push = staticmethod(lambda: None)
    pop = staticmethod(lambda: None)
    retain_primary_context = classmethod(lambda cls: cls)
Device = lambda index: Context
init = lambda: None
""",
}
FIRST_USE = "from course_lib.engines.backends.tensorrt.memory import cuda; cuda()"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with stand-ins that print their names when they are imported."""
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("before", "usable", "order"),
    [
        ("", True, ["tensorrt", "pycuda.driver"]),
        ("import tensorrt_rtx; ", True, ["tensorrt_rtx", "pycuda.driver"]),
        ("", False, ["pycuda.driver"]),
    ],
)
def test_tensorrt_comes_first(before: str, usable: bool, order: list[str], installed: Path) -> None:
    if not usable:
        (installed / "tensorrt.py").write_text("raise ImportError('libnvinfer.so.8: cannot open shared object file')")
    environment = {**os.environ, "PYTHONPATH": f"{installed}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", before + FIRST_USE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == order
