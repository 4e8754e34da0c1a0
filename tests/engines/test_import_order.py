"""TensorRT is imported before pycuda: the builder of TensorRT 8.6.0 crashes where pycuda came first."""

from __future__ import annotations

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


def imported(folder: Path, code: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_tensorrt_comes_first(installed: Path) -> None:
    assert imported(installed, FIRST_USE) == ["tensorrt", "pycuda.driver"]


def test_one_tensorrt_is_enough(installed: Path) -> None:
    assert imported(installed, f"import tensorrt_rtx; {FIRST_USE}") == ["tensorrt_rtx", "pycuda.driver"]


def test_pycuda_works_without_a_usable_tensorrt(installed: Path) -> None:
    (installed / "tensorrt.py").write_text("raise ImportError('libnvinfer.so.8: cannot open shared object file')")
    assert imported(installed, FIRST_USE) == ["pycuda.driver"]
