"""The C++ plugins, compiled against TensorRT's own headers and loaded by TensorRT's own registry, if these are available.

COURSE_TENSORRT_INCLUDE names folders with headers, ``folder:folder``; NVIDIA publishes them with the open-source part of TensorRT.
COURSE_LEAN names unpacked wheels of the lean runtime, ``version=folder;version=folder``, whose registry needs no GPU.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.errors import BackendUnavailable
from course_lib.plugins import build_plugin, compilers
from course_lib.plugins.cpp_plugin import tensorrt_major

INCLUDES = [Path(name) for name in os.environ.get("COURSE_TENSORRT_INCLUDE", "").split(os.pathsep) if name]
LEAN = dict(one.split("=", 1) for one in os.environ.get("COURSE_LEAN", "").split(";") if one)
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


REGISTRY = """
import sys
import numpy as np
import tensorrt_lean_bindings as trt
registry = trt.get_plugin_registry()
assert registry.load_library(sys.argv[1])
creator = registry.get_creator("CourseRope", "1", "course")
assert [(f.name, f.type) for f in creator.field_names] == [("interleaved", trt.PluginFieldType.INT32)]
def make(name, values):
    array = np.array(values, np.int32)
    fields = trt.PluginFieldCollection([trt.PluginField(name, array, trt.PluginFieldType.INT32)])
    return creator.create_plugin("rope", fields, trt.TensorRTPhase.BUILD)
assert make("base", [1]) is None and make("interleaved", [1, 0]) is None
plugin = make("interleaved", [1])
core = plugin.get_capability_interface(trt.PluginCapabilityType.CORE)
assert (core.plugin_name, core.plugin_version, core.plugin_namespace) == ("CourseRope", "1", "course")
assert plugin.get_capability_interface(trt.PluginCapabilityType.BUILD).num_outputs == 1
assert plugin.get_capability_interface(trt.PluginCapabilityType.RUNTIME) is not None

from course_lib.errors import EngineError
from course_lib.plugins import register_rope
try:
    register_rope(trt)
    raise SystemExit("two plugins of one name")
except EngineError as rejected:
    assert "has one already" in str(rejected)
creator = None
print("loaded")
"""


@needs_headers
@pytest.mark.skipif(not LEAN, reason="COURSE_LEAN names no lean runtime")
@pytest.mark.parametrize("version", LEAN)
def test_a_real_registry_loads_it(nvcc: str, version: str) -> None:
    include = next((one for one in INCLUDES if tensorrt_major(one) == int(version.split(".")[0])), None)
    if include is None:
        pytest.skip(f"COURSE_TENSORRT_INCLUDE names no headers for {version}")
    folder = Path(LEAN[version])
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder / "tensorrt_lean_libs"),
        "PYTHONPATH": os.pathsep.join((str(folder), str(Path(__file__).parents[2]))),
    }
    command = [sys.executable, "-c", REGISTRY, str(build_plugin(include, architectures=("sm_90",)))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "loaded", done.stdout + done.stderr


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
