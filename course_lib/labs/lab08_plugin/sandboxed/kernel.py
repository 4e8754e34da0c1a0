"""The process that compiles a learner's rotary.cu together with the program that runs it, or that becomes the compiled program.

It is started as a file, with ``python -I``, and does not import the course. Its sandbox keeps the machine safe. The checks of words
and symbols keep the watch over the kernel's accesses complete: no assembler, no attributes, and no calls but a kernel's.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FILE = "rotary.cu"
HEADERS = {
    *("cuda_on_host.h", "rotary.h", "cuda_bf16.h", "cuda_fp16.h", "cuda_runtime.h"),
    *("cstdint", "stdint.h", "cstring", "string.h", "cstddef", "stddef.h", "cmath", "math.h", "type_traits"),
}
_WORDS = re.compile(
    r"\b(asm|__asm\w*|__attribute\w*|__builtin\w*|_Pragma|gnu|no_sanitize\w*|watched_launch)\b|#\s*pragma(?! unroll)"
)
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_HOST = ["-x", "c++", "-std=c++17", "-DON_HOST"]
_WATCHED = ["-O0", "-fno-builtin", "-fno-stack-protector", "-fno-exceptions", "-fno-rtti", "-w", "-fsanitize=kernel-address"]
for _parameter in ("asan-instrumentation-with-call-threshold", "asan-stack", "asan-globals"):
    _WATCHED += ["--param", f"{_parameter}=0"]
# What the object file may ask of others: the watch, the launch, the thread's number, and mathematics. None of these functions writes
# through a pointer, because the library is not watched.
_MATH = r"(?:sin|cos|tan|fma|fabs|sqrt|pow|exp2?|log2?|floor|ceil|trunc|round|fmin|fmax|rint|copysign|ldexp|ilogb|fmod)f?"
_HOST_CALLS = rf"__asan_\w+|_Z14watched_launch\w+|memcpy|_GLOBAL_OFFSET_TABLE_|{_MATH}"
_GPU_CALLS = (
    r"__cuda\w+|__cxa_guard_\w+|cudaLaunchKernel\w*|cudaGetLastError|cudaPeekAtLastError|cudaFunc(?:Set|Get)Attributes?|atexit"
    r"|__dso_handle|mem(?:cpy|set)|_GLOBAL_OFFSET_TABLE_|__fatbin\w*|__stack_chk_fail|_ZTV\w+|__gxx_personality_v0|_Unwind_Resume"
)
_ERRORS = (  # of a compiler or linker: pattern, message and code
    (r"rotary\.cu[:(](\d+)[^\n]*?error\s?:? ?([^\n]*)", "does not compile. Line {0}: {1}", "compile"),
    (r"undefined reference to `(rotary_launch)'", 'defines no function {0}: keep its line, extern "C" included', "other"),
    (r"undefined reference to `(\w+)'", "uses {0}, which a kernel cannot call", "call"),
    (r"error: ([^\n]*)", "does not compile: {0}", "compile"),
)


class Rejected(Exception):
    """A reason that a learner can act on.

    Its code is ``compile``, ``empty``, ``launch``, ``shared``, ``call``, ``missing`` or ``other``.
    """

    def __init__(self, text: str, code: str = "other") -> None:
        super().__init__(text)
        self.code = code


def compiled(folder: Path, *, source: str, include: str, driver: str, gpu: bool) -> Path:
    """A program compiled from `source` and `driver`."""
    source = source.removeprefix("\ufeff")  # the byte order mark of some editors, which compilers skip
    check_text(source)
    (folder / FILE).write_text(source)
    compiler = [_find("nvcc"), "-std=c++17", "-O3", "-arch=native"] if gpu else [_find("g++"), *_HOST]
    _run([*compiler, f"-I{include}", *([] if gpu else _WATCHED), "-c", FILE, "-o", "rotary.o"], folder)
    check_symbols(_run(["nm", "-f", "sysv", "rotary.o"], folder), gpu=gpu)
    _run([*compiler, f"-I{include}", "-O2", "-c", driver, "-o", "driver.o"], folder)
    link = [compiler[0], "-arch=native"] if gpu else [compiler[0], "-Wl,--wrap=memcpy"]
    _run([*link, "driver.o", "rotary.o", "-o", "program", "-lm"], folder)
    return folder / "program"


def check_text(source: str) -> None:
    """Reject a file that is still empty, that includes other files, or that has words which a kernel does not need."""
    if "raise NotImplementedError" in source:
        raise Rejected("is still empty: it has a line `raise NotImplementedError` where your code belongs", "empty")
    text = _COMMENTS.sub(" ", source.replace("\\\n", ""))
    if "<<<" in text:
        raise Rejected("launches with <<<...>>>: fill a cudaLaunchConfig_t and call cudaLaunchKernelEx", "launch")
    for name in re.findall(r"^\s*#\s*(?:include\w*|import|embed)\s*(.*)", text, flags=re.MULTILINE):
        if name.strip().strip('<>"') not in HEADERS:
            raise Rejected(f"includes {name.strip()[:60]}: a kernel needs none but {', '.join(sorted(HEADERS))}")
    if found := _WORDS.search(text):
        raise Rejected(f"contains {found[0]!r}: a kernel is plain C++, without assembler, attributes, builtins and pragmas")


def check_symbols(listing: str, *, gpu: bool) -> None:
    """Reject calls of functions that a kernel cannot call, and variables that all threads share.

    Args:
        listing: of ``nm -f sysv``.
    """
    for line in listing.splitlines():
        columns = [column.strip() for column in line.split("|")]
        if len(columns) != 7 or columns[0] == "Name":
            continue
        name, kind = columns[0], columns[2]
        if kind == "U":
            if not re.fullmatch(_GPU_CALLS if gpu else _HOST_CALLS, name):
                raise Rejected(f"uses {name}, which a kernel cannot call", "call")
        elif kind == "i" or name.startswith(("__asan", "_GLOBAL__sub_I")):
            raise Rejected(f"runs code before any launch, or replaces the watch ({name[:60]}): a kernel needs neither")
        if not gpu and kind in "bBdD" and not columns[6].startswith((".data.rel.ro", ".tbss")):
            raise Rejected(
                f"has a variable that all threads share ({name}): they run in any order, and at the same time", "shared"
            )


def first_error(text: str) -> tuple[str, str]:
    """The first error of a compiler or linker, with its line, and its code as in `Rejected`."""
    for pattern, message, code in _ERRORS:
        if found := re.search(pattern, text):
            return message.format(*found.groups()), code
    return "does not compile: " + (text.strip().splitlines() or ["the compiler gave no reason"])[-1], "compile"


def _find(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if found is None:
        raise Rejected(f"cannot be compiled: {name} is not installed on this machine", "missing")
    return found


def _run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        raise Rejected(*first_error(done.stdout + done.stderr))
    return done.stdout


def become(size: int) -> None:
    """Read exactly the program's bytes from standard input, and become the program, which reads the rest."""
    program = os.memfd_create("program")
    while size:
        part = os.read(0, min(size, 1 << 20))
        size -= os.write(program, part)
    os.execve(program, ["program"], dict(os.environ))


def main() -> None:
    """Compile a line of JSON, and answer ``ok`` and the program, or ``no``, a code and the reason. With the argument "run": `become`."""
    if sys.argv[1:] == ["run"]:
        become(int(os.read(0, 20)))
    with tempfile.TemporaryDirectory() as folder:
        try:
            answer = b"ok " + compiled(Path(folder), **json.loads(sys.stdin.buffer.readline())).read_bytes()
        except Rejected as error:
            answer = f"no {error.code} {FILE} {error}".encode()
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main()
