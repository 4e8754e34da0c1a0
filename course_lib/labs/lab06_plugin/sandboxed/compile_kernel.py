"""The process that compiles a learner's rope.cu, together with the program that runs it.

It is started as a file, with ``python -I``, and does not import the course. The kernel is untrusted machine code. The depth of includes
decides which lines are the learner's, never the names in markers, which a learner can also write. The checks apply to the compiler's
output. Its assembler listing must not hold assembler from the learner. Its object file may hold only the sections, symbols and
instructions of a kernel, so that it calls nothing outside and runs nothing before `main`. The rest can only compute, and each of its
loads and stores is watched (on the host) or timed (on a GPU).
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
_MATH = r"(?:sin|cos|sincos|fma|fabs|sqrt|pow|exp2?|floor|ceil|fmin|fmax|rint)f?"
_HOST_CALLS = rf"__asan_\w+|_Z14watched_launch\w+|memcpy|_GLOBAL_OFFSET_TABLE_|{_MATH}"
_GPU_CALLS = (
    r"__cuda\w+|__cxa_guard_\w+|cudaLaunchKernel\w*|cudaGetLastError|cudaPeekAtLastError|cudaFunc(?:Set|Get)Attributes?|atexit|__dso_handle|mem(cpy|set)"
    r"|_GLOBAL_OFFSET_TABLE_|__fatbin\w*|__stack_chk_fail|_ZTV\w+|__gxx_personality_v0|_Unwind_Resume"
)
# Tokens of C++ in which a comment, an include or a directive can only seem to begin: numbers such as 1'000, strings, characters.
_TOKENS = re.compile(
    r"""(?P<raw>(?:u8|[uUL])?R"([^\s()\\"]{0,16})\(.*?\)\2")|[A-Za-z_]\w*|\.?\d(?:[eEpP][+-]|'\w|[\w.])*"""
    r"""|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|(?P<comment>//[^\n]*|/\*.*?\*/)""",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t\v\f]*(?:#|%:|\?\?=)[ \t\v\f]*(\w+)(.*)", re.MULTILINE)
_SECTIONS = re.compile(
    r"|\.(?:rela?)?\.?(?:text|rodata|data\.rel\.ro|eh_frame|gcc_except_table)(?:\..*)?|\.t?(?:data|bss)(?:\..*)?"
    r"|\.rela\.t?(?:data|bss)(?:\..*)?|\.comment|\.note\.[\w.-]+|\.group|\.symtab(?:_shndx)?|\.strtab|\.shstrtab"
)
_FORBIDDEN_INSTRUCTIONS = re.compile(
    r"^(?:syscall|sysenter|sysret|sysexit|int|int1|int3|into|iretq?|in|out|ins\w|outs\w|hlt|cli|sti|svc|hvc|smc|brk|msr"
    r"|(?:rd|wr)(?:fs|gs)base|(?:rd|wr)msr|wrpkru|xbegin|vmcall|vmmcall|clts|lgdt|lidt|lldt|ltr)$"
)
_THREAD = ("gridDim", "blockDim", "blockIdx", "threadIdx")
_OWN_NAMES = rf"_Z\w+|rope\w*|{'|'.join(_THREAD)}|DW\.ref\.\w+"


class Rejected(Exception):
    """A reason that a learner can act on, and its kind in a word: ``compile``, ``line``, ``empty``, ``launch``, ``shared``, ``call``."""

    def __init__(self, text: str, code: str = "other") -> None:
        super().__init__(text)
        self.code = code


def compiled(folder: Path, *, source: str, include: list[str], driver: str = "", gpu: bool = True) -> Path:
    """A program compiled from `source` and `driver`; without a driver, the PTX that nvcc makes from `source`.

    Raises:
        Rejected: the source does not compile, or it holds more than a kernel.
    """
    _check_includes(source)
    if "raise NotImplementedError" in source:
        raise Rejected("is still empty: it has a line `raise NotImplementedError` where your code belongs", "empty")
    (folder / FILE).write_text(source)
    if not gpu and re.search(r"<<<.*?>>>", _without_comments(source), flags=re.DOTALL):
        raise Rejected(
            "launches with <<<...>>>, which only nvcc knows: fill a cudaLaunchConfig_t and call cudaLaunchKernelEx", "launch"
        )
    architecture = "-arch=native" if driver else PTX_ARCHITECTURE
    compiler = [_find("nvcc"), "-std=c++17", "-O3", architecture] if gpu else [_find("g++"), *_HOST]
    paths = [f"-I{path}" for path in include]
    _check_words(_run([*compiler, *paths, "-E", FILE], folder), source)
    if not driver:
        _run([*compiler, *paths, "--ptx", FILE, "-o", "rope.ptx"], folder)
        return folder / "rope.ptx"
    if gpu:
        _run([*compiler, *paths, "-c", FILE, "-o", "rope.o"], folder)
    else:
        _run([*compiler, *paths, *_WATCHED, "-S", FILE, "-o", "rope.s"], folder)
        _check_listing((folder / "rope.s").read_text(errors="replace"))
        _run([compiler[0], "-c", "rope.s", "-o", "rope.o"], folder)
        _check_sections(_run(["readelf", "-SW", "rope.o"], folder))
        _check_instructions(_run(["objdump", "-d", "-w", "--no-show-raw-insn", "rope.o"], folder))
    _check_symbols(_run(["nm", "-f", "sysv", "rope.o"], folder), _GPU_CALLS if gpu else _HOST_CALLS, gpu=gpu)
    program = folder / "program"
    _run([*compiler, *paths, "-O2", "-c", driver, "-o", "driver.o"], folder)
    link = [compiler[0], "-arch=native"] if gpu else [compiler[0], "-Wl,--wrap=memcpy"]
    _run([*link, "driver.o", "rope.o", "-o", str(program), "-lm"], folder)
    return program


def _find(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if found is None:
        raise Rejected(f"cannot be compiled: {name} is not installed on this machine")
    return found


def _run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=COMPILE_S)
    except subprocess.TimeoutExpired:
        raise Rejected(f"does not compile within {COMPILE_S} s", "compile") from None
    if done.returncode != 0:
        raise Rejected(*first_error(done.stdout + done.stderr))
    return done.stdout


def first_error(text: str) -> tuple[str, str]:
    """The first error of a compiler or linker, with its line, and its kind as in `Rejected`."""
    for pattern, said, code in (
        (r"rope\.cu[:(](\d+)[^\n]*?error\s?:? ?([^\n]*)", "does not compile. Line {0}: {1}", "line"),
        (r"undefined reference to `(rope_launch)'", 'defines no function {0}: keep its line, extern "C" included', "other"),
        (r"multiple definition of `(\w+)'", "defines {0}, which a kernel must not define", "other"),
        (r"undefined reference to `(\w+)'", "uses {0}, which a kernel cannot call", "call"),
        (r"error: ([^\n]*)", "does not compile: {0}", "compile"),
    ):
        if found := re.search(pattern, text):
            return said.format(*found.groups()), code
    return "does not compile: " + (text.strip().splitlines() or ["the compiler said nothing"])[-1], "compile"


def _without_comments(source: str) -> str:
    """The text as the compiler reads it: lines that end with a backslash joined, and a space for each comment.

    Raises:
        Rejected: the text has a raw string, for whose lines a compiler has special rules.
    """

    def kept(token: re.Match[str]) -> str:
        if token["raw"] is not None:
            raise Rejected("contains a raw string: a kernel needs none")
        return " " if token["comment"] is not None else token[0]

    return _TOKENS.sub(kept, re.sub(r"\\[ \t\v\f\r]*\n", "", source.replace("\r\n", "\n")))


def _check_includes(source: str) -> None:
    """Every include must name a permitted header and come before the learner's macros, which could change the header.

    No other line may declare that lines come from another file.
    """
    defined = ""
    for word, rest in _DIRECTIVE.findall(_without_comments(source)):
        if word in ("include", "include_next", "import", "embed"):
            name = re.match(r'\s*[<"]([^>"]*)[>"]', rest)
            if name is None or name[1] not in HEADERS:
                raise Rejected(f"includes {rest.strip()[:60]}: a kernel needs none but {', '.join(sorted(HEADERS))}")
            if defined:
                raise Rejected(f"defines {defined} before it includes {name[1]}: put every #include before the first #define")
        elif word in ("define", "undef"):
            defined = defined or rest.split("(")[0].strip()[:60]
        elif word == "line" or word.isdigit():
            raise Rejected(f"contains '#{word}', which says that lines come from elsewhere: leave it out")


def _own_lines(preprocessed: str) -> list[str]:
    """The lines of the learner's file itself, outside all includes."""
    depth, own = 0, []
    for line in preprocessed.splitlines():
        if marker := re.match(r'#(?:line)? \d+ "(?:[^"\\]|\\.)*"([ \d]*)', line):
            flags = marker[1].split()
            depth += ("1" in flags) - ("2" in flags)
        elif depth <= 0:
            own.append(line)
    return own


def _check_words(preprocessed: str, source: str) -> None:
    """Check the learner's lines before and after macro expansion, including macros that are never used."""
    for lines in (_own_lines(preprocessed), _without_comments(source).splitlines()):
        text = re.sub(r'"(?:[^"\\\n]|\\.)*"', '""', "\n".join(lines))
        text = _CUDA_ATTRIBUTES.sub("", text)
        if found := _WORDS.search(text) or re.search(r"#\s*pragma(?! unroll)", text):
            raise Rejected(f"contains {found[0]!r}: a kernel is plain C++, without assembler, attributes, builtins and pragmas")


def _check_listing(listing: str) -> None:
    """The compiler marks each piece of assembler that does not come from itself."""
    if re.search(r"^\s*#\s*APP\b", listing, flags=re.MULTILINE):
        raise Rejected("contains assembler: a kernel is plain C++")


def _check_sections(table: str) -> None:
    for name in re.findall(r"^ *\[ *\d+\] (\S*) +[A-Z_]+ ", table, flags=re.MULTILINE):
        if not _SECTIONS.fullmatch(name):
            raise Rejected(f"has the section {name[:40]}, such as code that runs before any launch: a kernel must not have one")


def _check_instructions(listing: str) -> None:
    for line in listing.splitlines():
        words = line.partition(":\t")[2].split()
        while words and words[0] in (
            "lock",
            "rep",
            "repz",
            "repnz",
            "data16",
            "cs",
            "ds",
            "es",
            "fs",
            "gs",
            "ss",
            "bnd",
            "notrack",
        ):
            del words[0]
        if words and _FORBIDDEN_INSTRUCTIONS.match(words[0]):
            raise Rejected(f"contains the instruction {words[0]}: a kernel can only compute")


def _check_symbols(listing: str, permitted: str, *, gpu: bool) -> None:
    for line in listing.splitlines():
        columns = [column.strip() for column in line.split("|")]
        if len(columns) != 7:
            if len(columns) > 1:
                raise Rejected("has a symbol whose name is not an identifier")
            continue
        if columns[0] == "Name":
            continue
        name, _, kind, _, _, _, section = columns
        if name.startswith("_GLOBAL__sub_I"):
            raise Rejected(
                "has a global variable that must be computed before any launch: use constexpr, or compute in the kernel"
            )
        if kind == "U" and not re.fullmatch(permitted, name):
            raise Rejected(f"uses {name}, which a kernel cannot call", "call")
        if kind not in "UtTrRdDbBnwWvVu":  # such as i, a function that is chosen before main
            raise Rejected(f"defines {name[:60]} in a way (nm: {kind}) that no kernel needs")
        if kind not in "Utrbdnw" and not re.fullmatch(_OWN_NAMES, name):
            raise Rejected(f"defines {name}: names for the outside begin with rope")
        if not gpu and re.match(r"\.(bss|data(?!\.rel\.ro)|tbss|tdata)", section) and name not in _THREAD:
            raise Rejected(
                f"has a variable that all threads share ({name}): they run in any order, and at the same time", "shared"
            )


def main() -> None:
    """A line of JSON on standard input; on standard output ``ok`` and the program, or ``no``, its kind and the reason."""
    request: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    with tempfile.TemporaryDirectory() as folder:
        try:
            answer = b"ok " + compiled(Path(folder), **request).read_bytes()
        except Rejected as error:
            answer = f"no {error.code} {FILE} {error}".encode()
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main()
