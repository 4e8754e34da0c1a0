"""The C++ plugins, compiled against TensorRT's own headers; `tests/gpu/test_rope.py` loads them by TensorRT's own registry.

COURSE_TENSORRT_INCLUDE names folders with headers, ``folder:folder``; NVIDIA publishes them with the open-source part of TensorRT.
"""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from course_lib.errors import BackendUnavailable
from course_lib.plugins import build_plugin, compilers
from course_lib.plugins.cpp_plugin import tensorrt_major

INCLUDES = [Path(name) for name in os.environ.get("COURSE_TENSORRT_INCLUDE", "").split(os.pathsep) if name]
ENTRY = {8: "getPluginCreators", 10: "getCreators", 11: "getCreators"}  # what load_library looks for

needs_headers = pytest.mark.skipif(not INCLUDES, reason="COURSE_TENSORRT_INCLUDE names no TensorRT headers")


@needs_headers
@pytest.mark.parametrize("include", INCLUDES, ids=str)
def test_it_compiles_without_a_warning_and_needs_nothing_of_tensorrt(nvcc: str, include: Path) -> None:
    library = build_plugin(include, architectures=("sm_80", "sm_90"))
    loaded = ctypes.CDLL(str(library), mode=os.RTLD_NOW)  # every symbol must be found, and no TensorRT is there
    count = ctypes.c_int32()
    create = getattr(loaded, ENTRY[tensorrt_major(include)])
    create.restype = ctypes.c_void_p
    assert create(ctypes.byref(count)) and count.value == 1
    assert loaded.setLoggerFinder and loaded.rope_launch


@needs_headers
@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
@pytest.mark.parametrize("include", INCLUDES, ids=str)
def test_cmake_builds_the_same(nvcc: str, include: Path, tmp_path: Path) -> None:
    settings = [f"-DTENSORRT_INCLUDE={include}", "-DCMAKE_CUDA_ARCHITECTURES=90"]
    command = ["cmake", "-S", str(compilers.FOLDER / "cpp"), "-B", str(tmp_path), *settings]
    configured = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CUDACXX": nvcc})
    assert configured.returncode == 0, configured.stdout + configured.stderr
    built = subprocess.run(["cmake", "--build", str(tmp_path)], capture_output=True, text=True)
    assert built.returncode == 0 and "warning" not in built.stdout + built.stderr, built.stdout + built.stderr
    assert hasattr(ctypes.CDLL(str(tmp_path / "libcourse_rope.so")), ENTRY[tensorrt_major(include)])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no TensorRT headers in"),
        ("#define SOMETHING 8\n", "does not define a TensorRT version"),
        ("#define NV_TENSORRT_MAJOR 7 //!< major\n", "supports TensorRT 8 to 11"),
        ("#define TRT_MAJOR_ENTERPRISE 12\n#define NV_TENSORRT_MAJOR TRT_MAJOR_ENTERPRISE\n", "headers of 12"),
    ],
)
def test_headers_that_are_rejected(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "NvInferVersion.h").write_text(text)
    with pytest.raises(BackendUnavailable, match=said):
        build_plugin(tmp_path)
