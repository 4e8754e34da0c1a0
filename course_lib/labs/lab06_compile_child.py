"""The process that compiles a learner's rope.cu, together with the program that runs it.

It is started as a file, with ``python -I``, and knows nothing of the course. The kernel is machine code of a stranger's: before it
is linked, its text may contain no assembler and no attributes, and its object file may call nothing outside and run nothing
before `main`. What is left can only compute, and each of its loads and stores is watched (on the host) or timed (on a GPU).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FILE = "rope.cu"
HEADERS = {
    *("cuda_on_host.h", "rope.h", "cuda_bf16.h", "cuda_fp16.h", "cuda_runtime.h"),
    *("cstdint", "stdint.h", "cstring", "string.h", "cstddef", "stddef.h", "cmath", "math.h", "type_traits"),
}
COMPILE_S = 20
PTX_ARCHITECTURE = "-arch=sm_90"  # an architecture to look at where there is no GPU
_WORDS = re.compile(
    r"\b(_*asm_*|_*attribute_*|_*builtin\w*|_Pragma|gnu|no_sanitize\w*|__asan\w*|__wrap\w*|__real\w*|watched_launch)\b"
)
_CUDA_ATTRIBUTES = re.compile(  # what nvcc makes of __global__ and its like
    r"__attribute__\s*\(\((?:global|device|host|constant|shared|launch_bounds|always_inline|aligned)(?:\s*\([^()]*\))?\)\)"
)
_HOST = ["-x", "c++", "-std=c++17", "-DROPE_ON_HOST"]
_WATCHED = ["-O0", "-fno-builtin", "-fno-stack-protector", "-fno-exceptions", "-fno-rtti", "-w", "-fsanitize=kernel-address"]
for _parameter in ("asan-instrumentation-with-call-threshold", "asan-stack", "asan-globals"):
    _WATCHED += ["--param", f"{_parameter}=0"]
# What the object file may ask of others: the watch, the launch, the thread's number, and mathematics.
_MATHS = r"(?:sin|cos|sincos|fma|fabs|sqrt|pow|exp2?|floor|ceil|fmin|fmax|rint)f?"
_HOST_CALLS = rf"__asan_\w+|_Z14watched_launch\w+|memcpy|_GLOBAL_OFFSET_TABLE_|{_MATHS}"
_GPU_CALLS = (
    r"__cuda\w+|__cxa_guard_\w+|cudaLaunchKernel\w*|cudaGetLastError|cudaPeekAtLastError|cudaFunc(?:Set|Get)Attributes?|atexit|__dso_handle|mem(cpy|set)"
    r"|_GLOBAL_OFFSET_TABLE_|__fatbin\w*|__stack_chk_fail|_ZTV\w+|__gxx_personality_v0|_Unwind_Resume"
)
_THREAD = ("gridDim", "blockDim", "blockIdx", "threadIdx")
_OWN_NAMES = rf"_Z\w+|rope\w*|{'|'.join(_THREAD)}|DW\.ref\.\w+"


class Refused(Exception):
    """A reason that a learner can act on."""


def compiled(folder: Path, *, source: str, include: list[str], driver: str = "", gpu: bool = True) -> Path:
    """A program made of `source` and `driver`; without a driver the PTX that nvcc makes of `source`.

    Raises:
        Refused: it does not compile, or it is not only a kernel.
    """
    _check_includes(source)
    if "raise NotImplementedError" in source:
        raise Refused("is still empty: it has a line `raise NotImplementedError` where your code belongs")
    (folder / FILE).write_text(source)
    if not gpu and re.search(r"<<<.*?>>>", _without_comments(source), flags=re.DOTALL):
        raise Refused("launches with <<<...>>>, which only nvcc knows: fill a cudaLaunchConfig_t and call cudaLaunchKernelEx")
    architecture = "-arch=native" if driver else PTX_ARCHITECTURE
    compiler = [_find("nvcc"), "-std=c++17", "-O3", architecture] if gpu else [_find("g++"), *_HOST]
    paths = [f"-I{path}" for path in include]
    _check_words(_run([*compiler, *paths, "-E", FILE], folder))
    if not driver:
        _run([*compiler, *paths, "--ptx", FILE, "-o", "rope.ptx"], folder)
        return folder / "rope.ptx"
    _run([*compiler, *paths, *([] if gpu else _WATCHED), "-c", FILE, "-o", "rope.o"], folder)
    _check_symbols(_run(["nm", "-f", "sysv", "rope.o"], folder), _GPU_CALLS if gpu else _HOST_CALLS, gpu=gpu)
    program = folder / "program"
    _run([*compiler, *paths, "-O2", "-c", driver, "-o", "driver.o"], folder)
    link = [compiler[0], "-arch=native"] if gpu else [compiler[0], "-Wl,--wrap=memcpy"]
    _run([*link, "driver.o", "rope.o", "-o", str(program), "-lm"], folder)
    return program


def _find(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if found is None:
        raise Refused(f"cannot be compiled: {name} is not installed on this machine")
    return found


def _run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=COMPILE_S)
    except subprocess.TimeoutExpired:
        raise Refused(f"does not compile within {COMPILE_S} s") from None
    if done.returncode != 0:
        raise Refused(first_error(done.stdout + done.stderr))
    return done.stdout


def first_error(text: str) -> str:
    """The first error of a compiler or linker, with its line."""
    for pattern, said in (
        (r"rope\.cu[:(](\d+)[^\n]*?error\s?:? ?([^\n]*)", "does not compile. Line {0}: {1}"),
        (r"undefined reference to `(rope_launch)'", 'defines no function {0}: keep its line, extern "C" included'),
        (r"multiple definition of `(\w+)'", "defines {0}, which is not a kernel's to define"),
        (r"undefined reference to `(\w+)'", "uses {0}, which a kernel cannot call"),
        (r"error: ([^\n]*)", "does not compile: {0}"),
    ):
        if found := re.search(pattern, text):
            return said.format(*found.groups())
    return "does not compile: " + (text.strip().splitlines() or ["the compiler said nothing"])[-1]


def _without_comments(source: str) -> str:
    text = re.sub(r"\\\s*\n", "", source)
    return re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL))


def _check_includes(source: str) -> None:
    text = re.sub(r"\\\s*\n", "", source)
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    for line in re.findall(r"^\s*(?:#|%:|\?\?=)\s*(?:include|include_next|import|embed)\b(.*)", text, flags=re.MULTILINE):
        name = re.match(r'\s*[<"]([^>"]*)[>"]', line)
        if name is None or name[1] not in HEADERS:
            raise Refused(f"includes {line.strip()[:60]}: a kernel needs none but {', '.join(sorted(HEADERS))}")


def _check_words(preprocessed: str) -> None:
    """Look at what macros have become, in the lines that came from the learner's file."""
    own, mine = False, []
    for line in preprocessed.splitlines():
        if marker := re.match(r'#(?:line)? (\d+) "([^"]*)"', line):
            own = Path(marker[2]).name == FILE
        elif own:
            mine.append(line)
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', "\n".join(mine))
    text = _CUDA_ATTRIBUTES.sub("", text)
    if found := _WORDS.search(text) or re.search(r"#\s*pragma(?! unroll)", text):
        raise Refused(f"contains {found[0]!r}: a kernel is plain C++, without assembler, attributes, builtins and pragmas")


def _check_symbols(listing: str, permitted: str, *, gpu: bool) -> None:
    for line in listing.splitlines():
        columns = [column.strip() for column in line.split("|")]
        if len(columns) != 7:
            continue
        name, _, kind, _, _, _, section = columns
        if name.startswith("_GLOBAL__sub_I"):
            raise Refused(
                "has a global variable that must be computed before any launch: use constexpr, or compute in the kernel"
            )
        if kind == "U" and not re.fullmatch(permitted, name):
            raise Refused(f"uses {name}, which a kernel cannot call")
        if kind not in "Utrbdnw" and not re.fullmatch(_OWN_NAMES, name):
            raise Refused(f"defines {name}: names for the outside begin with rope")
        if not gpu and re.match(r"\.(bss|data(?!\.rel\.ro)|tbss|tdata)", section) and name not in _THREAD:
            raise Refused(f"has a variable that all threads share ({name}): they run in any order, and at the same time")


def main() -> None:
    """A line of JSON on standard input; on standard output ``ok`` and the program, or ``no`` and the reason."""
    request: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    with tempfile.TemporaryDirectory() as folder:
        try:
            answer = b"ok " + compiled(Path(folder), **request).read_bytes()
        except Refused as error:
            answer = f"no {FILE} {error}".encode()
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main()
