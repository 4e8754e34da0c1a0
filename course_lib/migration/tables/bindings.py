"""TensorRT's Python API by version, read from NVIDIA's own bindings: no GPU, no driver, no TensorRT libraries needed.

The bindings are an extension module of about a megabyte, on PyPI for every version. The loader needs TensorRT's
libraries and a dozen functions in them, and empty stand-ins are sufficient. pybind11 writes each signature into a docstring, so
importing the module shows the whole API and its deprecations. No function is called.

``python -m course_lib.migration.tables.bindings`` writes the tables in `api/`; with ``--check`` it compares them with a fresh reading.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib._util.files import cache_folder, write_atomically
from course_lib.errors import CourseError
from course_lib.migration.tables import import_bindings
from course_lib.migration.tables.deprecations import parse_deprecations
from course_lib.migration.tables.signatures import parse_signatures

CACHE_VARIABLE = "COURSE_BINDINGS"
TABLES = Path(__file__).parent / "api"

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


def read_bindings(version: str) -> dict[str, Any]:
    """The API of one version as plain JSON values; the same wheel gives the same values.

    Args:
        version: a key of `RELEASES`.

    Returns:
        ``wheel`` (file, name, version, sha256), ``classes`` (bases, methods with their overloads as of `parse_signatures`,
        properties as "r", "w" or "rw", their types, attributes), ``enums`` (members and numbers), ``functions``, ``values``,
        ``deprecated`` (the sentence of the docstring, by full name).

    Raises:
        ValueError: no such version.
        NoNetwork: pip reached no registry.
        BindingsUnavailable: no wheel for this Python, no C compiler, or the module cannot be imported.
    """
    if version not in RELEASES:
        raise ValueError(f"no version {version!r}: there are {', '.join(RELEASES)}")
    release = RELEASES[version]
    wheel = download(release)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
        make_libraries(release.libraries, Path(folder))
        found = _import(release, folder)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    for kind in found["classes"].values():
        kind["methods"] = {name: parse_signatures(doc) for name, doc in kind["methods"].items()}
        kind["types"] = {name: read[0]["returns"] for name, doc in kind["types"].items() if (read := parse_signatures(doc))}
        if not kind["methods"].get("__init__", True):  # made by TensorRT only
            del kind["methods"]["__init__"]
    found["functions"] = {name: parse_signatures(doc) for name, doc in found["functions"].items()}
    docs = found.pop("docs")
    found["deprecated"] = {name: text for owner, doc in docs.items() for name, text in parse_deprecations(owner, doc)}
    return {"wheel": {"file": wheel.name, "name": release.package, "version": release.version, "sha256": digest}, **found}


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


def _import(release: Release, folder: str) -> dict[str, Any]:
    environment = {**os.environ, "LD_LIBRARY_PATH": folder, "PYTHONPATH": folder}
    command = [sys.executable, import_bindings.__file__, release.module]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        reason = " ".join(done.stderr.strip().splitlines()[-1:])
        raise BindingsUnavailable(f"{release.package} {release.version} cannot be imported: {reason}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def table_file(version: str) -> Path:
    """Where the table of a version is kept."""
    return TABLES / f"{version}.json.gz"


def main(arguments: list[str]) -> int:
    """Write the tables, or compare them with ``--check``; the number of tables that differ is the exit status."""
    stale = 0
    for version in RELEASES:
        text = json.dumps(read_bindings(version), sort_keys=True, separators=(",", ":")).encode()
        file = table_file(version)
        same = file.exists() and gzip.decompress(file.read_bytes()) == text  # compressed bytes depend on the zlib
        if "--check" in arguments:
            print(f"{version}: {'as committed' if same else 'differs from the committed table'}")
            stale += not same
        elif not same:
            write_atomically(file, gzip.compress(text, mtime=0))
            print(f"{version}: written")
    return stale


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CourseError as error:
        sys.exit(str(error))
