"""The RoPE plugin in C++: `IPluginV3` for TensorRT 10 and 11, `IPluginV2DynamicExt` for 8.6, as a library that TensorRT loads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from course_lib.errors import BackendUnavailable
from course_lib.plugins.compilers import FOLDER, SOURCE, compile_with_nvcc

INTERFACES = {"plugin_v2.cpp": range(8, 10), "plugin_v3.cpp": range(10, 12)}  # source by TensorRT's major versions


def build_plugin(tensorrt_include: Path | str, *, architectures: Sequence[str] = ("native",)) -> Path:
    """Compile the plugin for the TensorRT whose headers these are; `rope/cpp/CMakeLists.txt` does the same by hand.

    ``trt.get_plugin_registry().load_library(str(path))`` registers it with TensorRT. Call it before you parse an ONNX file or load an
    engine. The build needs only TensorRT's headers, because the plugin is not linked to a TensorRT library.

    Args:
        tensorrt_include: folder with ``NvInfer.h``; NVIDIA publishes the headers with the open-source part of TensorRT.
        architectures: see `compile_with_nvcc`.

    Raises:
        BackendUnavailable: the headers or nvcc are missing, or the plugin does not support the version.
        BuildError: nvcc rejected a source.
    """
    include = Path(tensorrt_include)
    major = tensorrt_major(include)
    interface = next((name for name, majors in INTERFACES.items() if major in majors), None)
    if interface is None:
        raise BackendUnavailable(f"the C++ plugin supports TensorRT 8 to 11, but {include} has headers of {major}")
    version = include / "NvInferVersion.h"
    sources = (FOLDER / "cpp" / interface, SOURCE)
    return compile_with_nvcc(*sources, architectures=architectures, flags=["-isystem", str(include)], read=[version])


def tensorrt_major(include: Path) -> int:
    """The major version of the headers in a folder.

    Raises:
        BackendUnavailable: these are not TensorRT's headers.
    """
    try:
        text = (include / "NvInferVersion.h").read_text(encoding="utf-8", errors="replace")
    except OSError:
        raise BackendUnavailable(f"no TensorRT headers in {include}: expected NvInfer.h and NvInferVersion.h there") from None
    found = re.search(r"#define (?:NV_TENSORRT|TRT)_MAJOR(?:_ENTERPRISE)? +(\d+)", text)
    if found is None:
        raise BackendUnavailable(f"{include}/NvInferVersion.h does not define a TensorRT version")
    return int(found[1])
