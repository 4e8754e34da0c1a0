"""CUDA C++ into shared libraries and PTX: by nvcc for a GPU, by a host compiler for a machine without a GPU.

Compiled libraries are kept in a cache folder, under a name that depends on all inputs of the compilation.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from course_lib._util.files import cache_folder
from course_lib.errors import BackendUnavailable, BuildError

CACHE_VARIABLE = "COURSE_KERNELS"
FOLDER = Path(__file__).parent / "rope"
SOURCE = FOLDER / "rope.cu"

_INCLUDED = ("*.cu", "*.cuh", "*.h")  # a change in any of these beside the source makes another library


def compile_for_host(source: Path = SOURCE, *, flags: Sequence[str] = ()) -> Path:
    """Compile CUDA C++ with the host's compiler; `rope/cuda_on_host.h` stands in for CUDA.

    Args:
        source: a file that includes ``cuda_on_host.h`` where ``ROPE_ON_HOST`` is defined.
        flags: additional flags for the compiler.

    Returns:
        a shared library whose pointers are host pointers.

    Raises:
        BackendUnavailable: no C++ compiler.
        BuildError: the compiler rejected the source.
    """
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise BackendUnavailable("a kernel on the host needs a C++ compiler (c++, g++ or clang++): install one, such as g++")
    command = [compiler, "-std=c++17", "-O2", "-shared", "-fPIC", f"-I{FOLDER}", "-DROPE_ON_HOST", *flags, "-x", "c++"]
    return _compiled(tuple(command), (source,))


def compile_with_nvcc(
    *sources: Path, architectures: Sequence[str] = ("native",), flags: Sequence[str] = (), read: Sequence[Path] = ()
) -> Path:
    """Compile CUDA C++ with nvcc, warnings as errors.

    Args:
        sources: ``.cu`` and ``.cpp`` files; none means the course's RoPE.
        architectures: such as ``("sm_80", "sm_90")``; ``"native"`` is the GPU of this machine.
        flags: additional flags for nvcc.
        read: other headers. Other contents give another library.

    Returns:
        a shared library whose pointers are device pointers.

    Raises:
        BackendUnavailable: no nvcc.
        BuildError: nvcc rejected the source.
    """
    targets = ["-arch=native"] if tuple(architectures) == ("native",) else [_generate(name) for name in architectures]
    command = [nvcc(), "-std=c++17", "-O3", "-shared", "-Xcompiler=-fPIC,-Wall,-Wextra", "-Werror=all-warnings", f"-I{FOLDER}"]
    return _compiled((*command, *targets, *flags), sources or (SOURCE,), read)


def compile_to_ptx(source: Path = SOURCE, *, architecture: str = "compute_80") -> str:
    """Compile the kernels of a source to PTX with nvcc. No GPU is needed.

    Args:
        source: a ``.cu`` file.
        architecture: the oldest that the kernels are for. The driver compiles PTX for the GPU on which it is loaded.

    Raises:
        BackendUnavailable: no nvcc.
        BuildError: nvcc rejected the source.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "kernels.ptx"
        command = [nvcc(), "-std=c++17", "-O3", "--ptx", f"-arch={architecture}", f"-I{FOLDER}", str(source), "-o", str(output)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise BuildError(f"nvcc rejects {source.name}: {_first_error(done.stdout + done.stderr)}")
        return output.read_text(encoding="utf-8")


def nvcc() -> str:
    """The path of NVIDIA's compiler.

    Raises:
        BackendUnavailable: there is none.
    """
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")
    if found is None:
        raise BackendUnavailable("compiling for a GPU needs nvcc: install the CUDA toolkit, or name its folder in CUDA_HOME")
    return found


def kernel_folder() -> Path:
    """The folder of compiled libraries."""
    return Path(os.environ.get(CACHE_VARIABLE) or cache_folder("kernels"))


def _generate(architecture: str) -> str:
    return f"-gencode=arch={architecture.replace('sm_', 'compute_')},code={architecture}"


def _compiled(command: tuple[str, ...], sources: Sequence[Path], read: Sequence[Path] = ()) -> Path:
    folder = kernel_folder()
    library = folder / f"{sources[0].stem}-{_fingerprint(command, sources, read)}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:  # another process never meets half a library
        output = Path(scratch) / library.name
        done = subprocess.run([*command, *map(str, sources), "-o", str(output)], capture_output=True, text=True)
        if done.returncode != 0:
            names = " and ".join(source.name for source in sources)
            raise BuildError(f"{Path(command[0]).name} rejects {names}: {_first_error(done.stdout + done.stderr)}")
        os.replace(output, library)
    return library


def _fingerprint(command: tuple[str, ...], sources: Sequence[Path], read: Sequence[Path]) -> str:
    folders = sorted({FOLDER, *(source.parent for source in sources)})
    beside = [file for folder in folders for pattern in _INCLUDED for file in sorted(folder.glob(pattern))]
    digest = hashlib.sha256("\0".join((*command, _version(command[0]))).encode())
    for file in (*sources, *beside, *read):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:20]


@cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[-1] if lines else "it said nothing")
