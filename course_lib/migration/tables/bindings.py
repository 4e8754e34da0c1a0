"""NVIDIA's own bindings of TensorRT by version, importable without a GPU, a driver and TensorRT's libraries.

The bindings are an extension module of about a megabyte, on PyPI for every version. The loader needs TensorRT's libraries and a dozen
functions in them, and empty stand-ins are sufficient. `docs/make_tables.py` reads the tables of the API from them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from course_lib._util.files import cache_folder
from course_lib.errors import CourseError

CACHE_VARIABLE = "COURSE_BINDINGS"

_FUNCTIONS = """
createInferBuilder_INTERNAL createInferRuntime_INTERNAL createInferRefitter_INTERNAL createNvOnnxParser_INTERNAL
createNvOnnxParserRefitter_INTERNAL getBuilderPluginRegistry getPluginRegistry getNvOnnxParserVersion initLibNvInferPlugins
_ZN11nvuffparser15createUffParserEv _ZN11nvuffparser8FieldMapC1EPKcPKvNS_9FieldTypeEi
_ZN14nvcaffeparser117createCaffeParserEv _ZN14nvcaffeparser123shutdownProtobufLibraryEv
"""  # the last four, in C++ spelling, are the parsers that TensorRT 8 still had


@dataclass(frozen=True)
class Release:
    """A wheel of bindings: its name and version in the registry, its module, and the libraries that the module is linked to."""

    package: str
    version: str
    module: str
    libraries: tuple[str, ...]


def _release(package: str, version: str) -> Release:
    names = ("nvinfer", "nvinfer_plugin", "nvonnxparser", "nvparsers")
    return Release(package, version, "tensorrt_bindings", tuple(f"lib{name}.so.{version.split('.')[0]}" for name in names))


RELEASES = {
    "8.6.1": _release("tensorrt-bindings", "8.6.1"),
    "10.15": _release("tensorrt-cu13-bindings", "10.15.1.29"),
    "10.16": _release("tensorrt-cu13-bindings", "10.16.1.11"),
    "11.0": _release("tensorrt-cu13-bindings", "11.0.0.114"),
    "11.4": _release("tensorrt-cu13-bindings", "11.4.0.106"),
    "rtx-1.7.1": Release(
        "tensorrt-rtx-cu13-bindings",
        "1.7.1.116",
        "tensorrt_rtx_bindings",
        ("libtensorrt_rtx.so.1", "libtensorrt_onnxparser_rtx.so.1"),
    ),
}


class BindingsUnavailable(CourseError):
    """The bindings of a version cannot be read on this machine. The message says what is missing."""


class NoNetwork(BindingsUnavailable):
    """pip reached no registry, and the wheel is not in the cache folder."""


def download(release: Release) -> Path:
    """The wheel of a release, from the package index once and from then on from a cache folder.

    Raises:
        BindingsUnavailable: the index cannot be reached or does not have it.
    """
    cache = Path(os.environ.get(CACHE_VARIABLE) or cache_folder("bindings"))
    folder = cache / f"python{sys.version_info[0]}.{sys.version_info[1]}"  # each Python has its own wheel
    pattern = f"{release.package.replace('-', '_')}-{release.version}-*.whl"
    if not any(folder.glob(pattern)):
        arguments = ("download", "--no-deps", "--only-binary", ":all:", "--retries", "1", "--dest", str(folder))
        command = [sys.executable, "-m", "pip", *arguments, f"{release.package}=={release.version}"]
        done = subprocess.run(command, capture_output=True, text=True)  # pip names a broken connection when it tries again
        if done.returncode != 0:
            raise _download_error(release, done.stdout + done.stderr)
    return next(folder.glob(pattern))


def _download_error(release: Release, said: str) -> BindingsUnavailable:
    wanted = f"{release.package}=={release.version}"
    if "connection broken by" in said:
        return NoNetwork(
            f"{wanted} cannot be fetched: pip reached no registry; connect, or put the wheel into ${CACHE_VARIABLE}"
        )
    reason = " ".join(said.strip().splitlines()[-1:])
    return BindingsUnavailable(f"{wanted} cannot be fetched for Python {sys.version_info[0]}.{sys.version_info[1]}: {reason}")


def make_libraries(names: tuple[str, ...], folder: Path) -> None:
    """Empty libraries by these names, enough for the bindings to be imported on a machine without TensorRT.

    Raises:
        BindingsUnavailable: there is no C compiler, or it failed.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise BindingsUnavailable("reading the bindings needs a C compiler (cc, gcc or clang): install one, such as gcc")
    source = folder / "empty.c"
    source.write_text("".join(f"void *{name}(void) {{ return 0; }}\n" for name in _FUNCTIONS.split()))
    for name in names:
        command = [compiler, "-shared", "-fPIC", "-o", str(folder / name), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise BindingsUnavailable(f"the C compiler {compiler} failed: {' '.join(done.stderr.split())[:300]}")
