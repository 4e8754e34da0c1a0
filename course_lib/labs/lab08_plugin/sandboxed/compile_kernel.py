"""The process that compiles a learner's rope.cu, together with the program that runs it.

It is started as a file, with ``python -I``, and does not import the course. The kernel is untrusted machine code. The depth of includes
decides which lines are the learner's, never the names in markers, which a learner can also write. The checks apply to the compiler's
output. Its assembler listing must not hold assembler from the learner. Its object file may hold only the sections, symbols and
instructions of a kernel, so that it calls nothing outside and runs nothing before `main`. The rest can only compute, and each of its
loads and stores is watched (on the host) or timed (on a GPU). On the host, the functions of the library that it may call write nothing,
and a call by address reaches only the functions of the object itself: the examiner looks each address up before it goes there.
"""

from __future__ import annotations

import json
import platform
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
    r"\b(_*asm_*|_*attribute_*|_*builtin\w*|_Pragma|gnu|no_sanitize\w*|__asan\w*|__wrap\w*|__real\w*|\w*watched_launch\w*)\b"
)
_CUDA_ATTRIBUTES = re.compile(  # what nvcc makes of __global__ and its like
    r"__attribute__\s*\(\((?:global|device|host|constant|shared|launch_bounds|always_inline|aligned)(?:\s*\([^()]*\))?\)\)"
)
_HOST = ["-x", "c++", "-std=c++17", "-DROPE_ON_HOST"]
_WATCHED = ["-O0", "-fno-builtin", "-fno-stack-protector", "-fno-exceptions", "-fno-rtti", "-w", "-fsanitize=kernel-address"]
for _parameter in ("asan-instrumentation-with-call-threshold", "asan-stack", "asan-globals"):
    _WATCHED += ["--param", f"{_parameter}=0"]
# The examiner walks over the frames to protect return addresses. A switch makes no jump by address.
_WATCHED += ["-fno-omit-frame-pointer", "-fno-jump-tables"]
if platform.machine() == "x86_64":  # each call and jump by address goes through functions of examine_on_host.cpp
    _WATCHED += ["-mindirect-branch=thunk-extern", "-fcf-protection=none"]
_FUNCTIONS = "__asan_functions"  # the table of the functions that may be called by address
# What the object file may ask of others: the watch, the launch, the thread's number, and mathematics. None of these functions may
# write through a pointer, because the library is not watched: cuda_on_host.h has sincosf, modff and frexpf as code of the kernel.
_MATH = r"(?:sin|cos|tan|fma|fabs|sqrt|pow|exp2?|log2?|floor|ceil|trunc|round|fmin|fmax|rint|copysign|ldexp|ilogb|fmod)f?"
_HOST_CALLS = rf"__asan_\w+|__x86_indirect_thunk_r\w+|_Z14watched_launch\w+|memcpy|_GLOBAL_OFFSET_TABLE_|{_MATH}"
_GPU_CALLS = (
    r"__cuda\w+|__cxa_guard_\w+|cudaLaunchKernel\w*|cudaGetLastError|cudaPeekAtLastError|cudaFunc(?:Set|Get)Attributes?|atexit|__dso_handle|mem(cpy|set)"
    r"|_GLOBAL_OFFSET_TABLE_|__fatbin\w*|__stack_chk_fail|_ZTV\w+|__gxx_personality_v0|_Unwind_Resume"
)
# Tokens of C++, so that a comment, an include or a directive cannot seem to begin inside a number, a string or a character. What is not
# in this list could be read in two ways, such as a letter beyond ASCII, which may be part of a name or of a number.
_TOKENS = re.compile(
    r"""(?P<raw>(?:u8|[uUL])?R")|(?P<name>[A-Za-z_]\w*)|(?P<number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*)"""
    r"""|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<character>'(?:[^'\\\n]|\\.)*')|(?P<comment>//[^\n]*|/\*.*?\*/)"""
    r"""|(?P<mark>[][ \t\n{}#()<>%:;.?*+/^&|~!=,-]+?)|(?P<unknown>.)""",
    re.DOTALL | re.ASCII,
)
_DIRECTIVE = re.compile(r"^[ \t\v\f]*(?:#|%:)[ \t\v\f]*(\w+)(.*)", re.MULTILINE)
_SECTIONS = re.compile(
    r"|\.(?:rela?)?\.?(?:text|rodata|data\.rel\.ro|eh_frame|gcc_except_table)(?:\..*)?|\.t?(?:data|bss)(?:\..*)?"
    r"|\.rela\.t?(?:data|bss)(?:\..*)?|\.comment|\.note\.[\w.-]+|\.group|\.symtab(?:_shndx)?|\.strtab|\.shstrtab"
)
_FORBIDDEN_INSTRUCTIONS = re.compile(
    r"^(?:syscall|sysenter|sysret|sysexit|int|int1|int3|into|iretq?|in|out|ins\w|outs\w|hlt|cli|sti|svc|hvc|smc|brk|msr"
    r"|(?:rd|wr)(?:fs|gs)base|(?:rd|wr)msr|wrpkru|xbegin|vmcall|vmmcall|clts|lgdt|lidt|lldt|ltr)$"
)
_THREAD = ("gridDim", "blockDim", "blockIdx", "threadIdx")
_OWN_NAMES = rf"_Z\w+|rope\w*|{_FUNCTIONS}|{'|'.join(_THREAD)}|DW\.ref\.\w+"


_UNKNOWN = {
    "\\": "contains a backslash outside of comments and strings: write names in ASCII letters, without \\u",
    "$": "contains '$' outside of comments and strings: write names in letters, digits and underscores",
    **{quote: f"contains a quote ({quote}) that is not closed on its line: close it" for quote in "\"'"},
}


class Rejected(Exception):
    """A reason that a learner can act on, and its kind.

    The kind is ``compile``, ``line``, ``empty``, ``launch``, ``shared``, ``call``, ``missing`` or ``other``.
    """

    def __init__(self, text: str, code: str = "other") -> None:
        super().__init__(text)
        self.code = code


def compiled(folder: Path, *, source: str, include: list[str], driver: str = "", gpu: bool = True) -> Path:
    """A program compiled from `source` and `driver`; without a driver, the PTX that nvcc makes from `source`.

    Raises:
        Rejected: the source does not compile, or it holds more than a kernel.
    """
    source = source.removeprefix("\ufeff")  # the byte order mark of some editors, which compilers skip
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
        listing = (folder / "rope.s").read_text(errors="replace")
        _check_listing(listing)
        (folder / "rope.s").write_text(listing + _function_table(listing))
        _run([compiler[0], "-c", "rope.s", "-o", "rope.o"], folder)
        _check_sections(_run(["readelf", "-SW", "rope.o"], folder))
        _check_instructions(_run(["objdump", "-d", "-w", "--no-show-raw-insn", "rope.o"], folder))
    _check_symbols(_run(["nm", "-f", "sysv", "rope.o"], folder), _GPU_CALLS if gpu else _HOST_CALLS, gpu=gpu)
    program = folder / "program"
    _run([*compiler, *paths, "-O2", *([] if gpu else ["-fno-omit-frame-pointer"]), "-c", driver, "-o", "driver.o"], folder)
    link = [compiler[0], "-arch=native"] if gpu else [compiler[0], "-Wl,--wrap=memcpy"]
    _run([*link, "driver.o", "rope.o", "-o", str(program), "-lm"], folder)
    return program


def _find(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if found is None:
        raise Rejected(f"cannot be compiled: {name} is not installed on this machine", "missing")
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


def _without_comments(source: str, *, strings: bool = True) -> str:
    """The text as the compiler reads it: lines that end with a backslash joined, and a space for each comment.

    Args:
        strings: keep the text of strings and characters; otherwise they become empty.

    Raises:
        Rejected: the text contains something that two compilers, or a compiler and this function, could split in different ways.
    """
    text = re.sub(r"\\[ \t]*\n", "", source.replace("\r\n", "\n"))
    if found := re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text):
        raise Rejected(f"contains the control character {found[0]!r}: remove it")
    if re.search(r"\?\?/[ \t]*\n", text):
        raise Rejected("contains the trigraph ??/ at the end of a line: remove it")
    parts = []
    for token in _TOKENS.finditer(text):
        kind = token.lastgroup
        if kind == "raw":
            raise Rejected("contains a raw string: write an ordinary string, or none")
        if kind == "name" and token[0] in ("__has_include", "__has_include_next", "__has_embed"):
            raise Rejected(
                f"contains {token[0]}, after which a name may look like a comment: include the header, or leave it out"
            )
        if kind == "unknown":
            raise Rejected(
                _UNKNOWN.get(token[0], f"contains {token[0]!r} outside of comments and strings: use ASCII letters there")
            )
        if kind == "number" and text[token.end() : token.end() + 1] == "'":
            raise Rejected(f"contains a quote right after the number {token[0][:40]}: separate them by a space")
        if kind == "character" and not token[0].isascii():
            raise Rejected(f"contains the character {token[0][:40]}: use an ASCII character, or its number")
        if kind == "comment":
            parts.append(" ")
        elif kind in ("string", "character") and not strings:
            parts.append('""' if kind == "string" else "' '")
        else:
            parts.append(token[0])
    code = "".join(parts)
    if found := re.search(r"\?\?[=/'()!<>-]", code):
        raise Rejected(f"contains the trigraph {found[0]}: separate its characters by spaces")
    return code


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


def _own_lines(preprocessed: str) -> str:
    """The lines of the learner's file itself, outside all includes.

    Raises:
        Rejected: the file itself includes another file than a permitted header.
    """
    depth, own = 0, []
    for line in preprocessed.split("\n"):
        if marker := re.match(r'#(?:line)? \d+ "((?:[^"\\]|\\.)*)"([ \d]*)', line):
            flags = marker[2].split()
            if "1" in flags and depth <= 0 and (name := marker[1].rpartition("/")[2]) not in HEADERS | {"stdc-predef.h"}:
                raise Rejected(f"includes {name[:60]}: a kernel needs none but {', '.join(sorted(HEADERS))}")
            depth += ("1" in flags) - ("2" in flags)
        elif depth <= 0:
            own.append(line)
    return "\n".join(own)


def _check_words(preprocessed: str, source: str) -> None:
    """Check the learner's lines before and after macro expansion, including macros that are never used."""
    for given in (_own_lines(preprocessed), source):
        text = _CUDA_ATTRIBUTES.sub("", _without_comments(given, strings=False))
        if found := _WORDS.search(text) or re.search(r"#\s*pragma(?! unroll)", text):
            raise Rejected(f"contains {found[0]!r}: a kernel is plain C++, without assembler, attributes, builtins and pragmas")


def _function_table(listing: str) -> str:
    """Assembler that lists the addresses of all functions of a listing, and a zero: only these can be called by address."""
    names = re.findall(r"^\t\.type\t(\S+), [@%]function$", listing, flags=re.MULTILINE)
    lines = [f'\t.section\t.data.rel.ro.{_FUNCTIONS},"aw"', "\t.balign\t8", f"\t.globl\t{_FUNCTIONS}", f"{_FUNCTIONS}:"]
    return "\n".join([*lines, *(f"\t.quad\t{name}" for name in dict.fromkeys(names)), "\t.quad\t0", ""])


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
        if len(words) > 1 and words[1].startswith("*"):  # as objdump writes an address in a register or in memory
            raise Rejected(f"contains the instruction {words[0]} {words[1]}: call functions by their names", "call")


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
