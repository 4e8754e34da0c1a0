"""Submissions for lab 08: right in another way, with the mistakes that learners make, and copied from the course."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from course_lib.labs.lab08_plugin import reference
from course_lib.plugins.compilers import SOURCE

KERNEL, PLUGIN = reference.KERNEL, reference.PLUGIN
Edits = tuple[tuple[str, str], ...]


def changed(text: str, *edits: tuple[str, str]) -> str:
    """The text with each old part replaced, which must be there."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


class Mistake(NamedTuple):
    """An edit of the reference, and what it gets: by task the tier, words of the first message, and words of its hint."""

    edits: Edits
    tiers: dict[str, str]
    words: str
    hint: str


_THREAD = """  const int64_t pack = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (pack >= n.sequence * packs) return;
"""
_END = "    store(y + at, numbers);\n  }\n"
_GRID = "dim3((packs + 255) / 256,"
_NARROW = ("  if (aligned &&", "  if (false && aligned &&")
_LAUNCH = "  return cudaLaunchKernelEx(&config, rotate<T, kWidth>, x, cos, sin, positions, y, n);\n"
A_TOKEN_EACH: Edits = (  # a thread for each head of a token, as the colleague's kernel
    (
        _THREAD,
        """  const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= n.sequence) return;
  for (int64_t pack = row * packs; pack < (row + 1) * packs; ++pack) {
""",
    ),
    (_END, _END + "  }\n"),
    (_GRID, "dim3((n.sequence + 255) / 256,"),
)
FOUR_LAUNCHES: Edits = (  # one for each quarter of the heads, which is right and permitted
    (
        _LAUNCH,
        """  const int64_t quarter = (heads + 3) / 4;
  for (int64_t first = 0; first < heads; first += quarter) {
    const auto error = cudaLaunchKernelEx(&config, rotate<T, kWidth>, x, cos, sin, positions, y, n, first,
                                          min(heads, first + quarter));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
""",
    ),
    ("T* y, Sizes n) {\n  const int packs", "T* y, Sizes n, int64_t from, int64_t to) {\n  const int packs"),
    ("head = blockIdx.y; head < n.batch * n.heads;", "head = from + blockIdx.y; head < to;"),
)  # fmt: skip
KERNELS = {
    "no bounds guard": Mistake(
        (("  if (pack >= n.sequence * packs) return;\n", ""),),
        {"kernel": "none", "memory": "none"}, "has 1344 numbers", "more threads than there is work",
    ),
    "packs at any address": Mistake(
        (("  if (aligned && n.head_size", "  if (n.head_size"),),
        {"kernel": "partial", "memory": "full"}, "not a multiple of 16", "Which pointers and sizes",
    ),
    "no stream": Mistake(
        (("  config.stream = stream;\n", ""),),
        {"kernel": "partial", "memory": "full"}, "on the given stream", "the default stream",
    ),
    "a thread for each token": Mistake(
        (*A_TOKEN_EACH, _NARROW),
        {"kernel": "full", "memory": "none"}, "32-byte sectors", "neighboring addresses",
    ),
}  # fmt: skip
OTHER_KERNELS: dict[str, tuple[Edits, str, str]] = {  # full in the kernel's task: edits, tier of memory, words of its hint
    "four launches": (FOUR_LAUNCHES, "full", ""),
    "a thread for each pair": ((_NARROW,), "partial", "16 bytes at a time"),
}
_KEPT = 'trt.PluginField("rotary", self.kept, trt.PluginFieldType.INT32)]\n        )\n\n    def get_output'
PLUGINS = {
    "a clone without state": Mistake(
        (("return RotaryPlugin(self.rotary)", "return RotaryPlugin()"),),
        {"plugin": "partial"}, "copies lost the value", "What does a clone need to know",
    ),
    "an array that dies": Mistake(
        (("self.kept = np.array([self.rotary]", "kept = np.array([self.rotary]"), (_KEPT, _KEPT.replace("self.kept", "kept"))),
        {"plugin": "partial"}, "fields is 1 of 4", "Which array does a field point to",
    ),
    "the default stream": Mistake(
        (("shape, rotary, stream)\n\n\nclass", "shape, rotary, 0)\n\n\nclass"),),
        {"plugin": "partial"}, "launch got another stream", "Which of its values does TensorRT pass",
    ),
    "three mistakes": Mistake(
        (("return [input_types[0]]", "return []"), ("self.rotary or shape[3]", "self.rotary"), ("type in DTYPES", "type is not None")),
        {"plugin": "none"}, "parts of the contract that are kept is 3", "Type and dimensions of x",
    ),
}  # fmt: skip
_SIZES = "struct Sizes {"
REJECTED: dict[str, tuple[Edits, str]] = {  # kernels that are not run: edits, and words of the message
    "a variable of all threads": (((_SIZES, f"int calls;\n{_SIZES}"),), "all threads share (calls)"),
    "a system call": (
        ((_SIZES, f'extern "C" int system(const char*);\n{_SIZES}'), ("  config.stream", '  system("id");\n  config.stream')),
        "uses system, which a kernel cannot call",
    ),
    "code before any launch": (((_SIZES, f"float root(float);\nfloat first = root(2);\n{_SIZES}"),), "a kernel"),
    "accesses without the watch": (
        (("__global__ void", "__attribute__((no_sanitize_address)) void"),),
        "contains '__attribute__'",
    ),
    "another file": ((('#include "rotary.h"', '#include "rotary.h"\n#include "/etc/passwd"'),), "includes"),
    "a launch in chevrons": (
        ((_LAUNCH, "  rotate<T, kWidth><<<1, 256>>>(x, cos, sin, positions, y, n);\n"),),
        "with <<<...>>>",
    ),
    "a forgotten semicolon": ((("config.blockDim = dim3(256);", "config.blockDim = dim3(256)"),), "does not compile. Line"),
}


def copied_kernel() -> str:
    """The course's RoPE kernel, called by the name that the lab asks for, with each head of a sequence as a sequence of its own."""
    text = changed(
        SOURCE.read_text(),
        ("ROPE_ON_HOST", "ON_HOST"),
        ('#include "rope.h"', '#include "rotary.h"'),
        ("kRopeFloat32", "kRotaryFloat32"),
        ("kRopeBFloat16", "kRotaryBFloat16"),
        ('extern "C" int rope_launch', "static int rope_launch"),
    )
    return f"""{text}
extern "C" int rotary_launch(int type, const void* x, const float* cos, const float* sin, const int32_t*, void* y, int64_t batch,
                             int64_t heads, int64_t sequence, int64_t head_size, int64_t, void* stream) {{
  return rope_launch(type, 1, x, cos, sin, y, batch * heads, sequence, 1, head_size, stream);
}}
"""


def copied_plugin() -> str:
    """The method bodies of the course's RoPE plugin, with the name of the lab's field."""
    others = "        others = [trt.DataType.FLOAT, trt.DataType.FLOAT, trt.DataType.INT32]\n"
    return changed(
        PLUGIN,
        (others, ""),
        ("[*others, in_out[0].desc.type][pos - 1]", "(trt.DataType.FLOAT if pos < num_inputs else in_out[0].desc.type)"),
        ("        x = input_desc[0]\n", "        (x, cos, sin), (y,) = inputs, outputs\n"),
    )


def write_files(folder: Path, kernel: str = KERNEL, plugin: str = PLUGIN) -> None:
    """Write both files."""
    (folder / "rotary.cu").write_text(kernel)
    (folder / "rotary_plugin.py").write_text(plugin)
