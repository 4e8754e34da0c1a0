"""Submissions for lab 11: files that are right in another way, almost right, or made to cheat."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from course_lib.labs.lab11_torch_tensorrt import reference

FILES = {
    "segments.py": reference.SEGMENTS,
    "model.py": reference.MODEL,
    "search.py": reference.SEARCH,
    "service.py": reference.SERVICE,
}

# ---- another right answer

SEGMENTS = """
def segments(nodes, converters, in_pytorch, min_block_size):
    place = {n["name"]: n["operator"] in converters and f"torch.ops.{n['operator']}" not in in_pytorch for n in nodes}
    first = not any(not place[n["name"]] for n in nodes if not n["inputs"])
    level = {}  # the number of the segment of each node; segments with even numbers are like the first one
    for node in nodes:
        least = max((level[name] for name in node["inputs"]), default=0)
        level[node["name"]] = least + ((least % 2 == 0) != (place[node["name"]] == first))
    found = []
    for number in range(max(level.values()) + 1):
        names = [name for name in level if level[name] == number]
        inside = (number % 2 == 0) == first and len(names) >= min_block_size
        if found and not inside and not found[-1][0]:
            found[-1] = (False, found[-1][1] + names)
        else:
            found.append((inside, names))
    return found

def reasons(nodes, converters, in_pytorch, min_block_size):
    kinds = {n["name"]: n["operator"] for n in nodes}
    left = [name for place, names in segments(nodes, converters, in_pytorch, min_block_size) if not place for name in names]
    return {
        name: "no converter" if kinds[name] not in converters
        else "kept" if "torch.ops." + kinds[name] in in_pytorch else "small segment"
        for name in left
    }
"""

MODEL = """
import math
import torch
from torch import nn

class Rewritten(nn.Module):
    def __init__(self):
        super().__init__()
        for name, a, b in (("embed", 32, 48), ("gate", 48, 48), ("qkv", 48, 144), ("out", 48, 48), ("up", 48, 96),
                           ("down", 96, 48), ("hidden", 96, 48), ("head", 48, 10)):
            setattr(self, name, nn.Linear(a, b))
        self.norm1, self.norm2 = nn.LayerNorm(48), nn.LayerNorm(48)
        self.register_buffer("places", torch.arange(32.0), persistent=False)

    def forward(self, rows):
        x = torch.relu(self.embed(rows))
        gates = 0.9 + 0.2 * torch.sigmoid(self.gate(x))
        parts = [gates[:, 0]]
        for row in range(1, 32):
            parts.append(parts[-1] * gates[:, row])
        x = x * torch.stack(parts, dim=1)
        q, k, v = self.qkv(self.norm1(x)).reshape(8, 32, 3, 4, 12).permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(12), -1)
        x = x + self.out((scores @ v).permute(0, 2, 1, 3).reshape(8, 32, 48))
        ordered, _ = torch.sort(x, dim=1, descending=True)
        x = x - ordered[:, 16:17]
        x = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        largest = x.max(dim=1).values
        where = torch.argmax(x, dim=1).to(torch.float32)
        features = torch.cat([largest, where / 32], dim=1)
        return self.head(torch.relu(self.hidden(features)))
"""

SEARCH = """
import math

def find_wrong(kinds, error, budget):
    known = {}

    def contains(low, high):
        if (low, high) not in known:
            kept = ["torch.ops." + kind for kind in kinds[:low] + kinds[high:]]
            engine, eager = error(kept, 1)
            known[low, high] = math.isnan(engine) or engine / eager > 20
        return known[low, high]

    found, start = [], 0
    while start < len(kinds) and contains(start, len(kinds)):
        low, high = start, len(kinds)  # the first wrong kind is in kinds[low:high]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if contains(low, middle) else (middle, high)
        found.append(kinds[low])
        start = low + 1
    return set(found)
"""

SERVICE = """
import math
import numpy as np

def settings(least, best, most):
    shapes = {word + "_shape": [size, 32, 32] for word, size in (("min", least), ("opt", best), ("max", most))}
    return dict(inputs=[dict(shapes, name="rows")], ir="dynamo", disable_tf32=True, min_block_size=4,
                output_format="fx", debug=False)

def check(names):
    inside = [name for name in names if "acc" in name]
    if len(inside) != 1 or len(names) != len(inside):
        raise RuntimeError("divided")

def answer(run, images, least, most):
    count = math.ceil(len(images) / most)
    found = []
    for part in np.array_split(np.array(images), count):
        filled = np.zeros((max(least, len(part)), part.shape[1]))
        filled[: len(part)] = part
        found.extend(run(filled)[0][: len(part)])
    return found
"""


def another(folder: Path) -> None:
    """Another right answer in every file."""
    for name, text in (("segments.py", SEGMENTS), ("model.py", MODEL), ("search.py", SEARCH), ("service.py", SERVICE)):
        (folder / name).write_text(text)


def changed(file: str, changes: Mapping[str, str]) -> str:
    """The reference's text of a file with parts of it replaced."""
    text = FILES[file]
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


# ---- cheats

# Exports another module than the one that it shows: random weights are replaced by a table of answers.
STORES_ANSWERS = (
    reference.MODEL
    + """

class Rewritten(Rewritten):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.zeros(8, 10), persistent=False)

    def forward(self, rows):
        return self.table + 0 * rows.sum()
"""
)

# Replaces the program that describes the graph by one that shows a single operator.
FORGES_ITS_GRAPH = (
    reference.MODEL
    + """

import sys

program = sys.modules["course_lib.labs.lab11_torch_tensorrt.sandboxed.export_model"]
program.described = lambda *_: [
    {"name": "rows", "kind": "input"},
    {"name": "y", "kind": "call", "operator": "aten.from_file.default", "args": ["/etc/hostname"], "kwargs": {}},
    {"name": "output", "kind": "output", "args": [{"node": "y"}]},
]
"""
)

# Exchanges query and value itself, so that the mistake of 2.2.0 makes the answers right.
TWO_MISTAKES = reference.MODEL.replace(
    "q, k, v = (\n"
    "            part.reshape(batch, rows, HEADS, -1).permute(0, 2, 1, 3)\n"
    "            for part in qkv.chunk(3, dim=2)\n"
    "        )",
    "v, k, q = qkv.reshape(batch, rows, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)",
)

# Looks for the wrong kinds in the memory of its process.
LOOKS_AROUND = """
import gc

def find_wrong(kinds, error, budget):
    for one in gc.get_objects():
        state = getattr(one, "__dict__", None)
        if isinstance(state, dict) and {"wrong", "chain"} <= set(state):
            return sorted(state["wrong"])
    return []
"""

# Has no rule about how large an error is a mistake, but knows how many kinds are wrong in each call.
KNOWS_THE_COUNTS = """
from math import isnan

NUMBERS = iter(COUNTS)

def find_wrong(kinds, error, budget):
    found = []
    for _ in range(next(NUMBERS)):
        suspects = [kind for kind in kinds if kind not in found]
        while len(suspects) > 1:
            half = len(suspects) // 2
            parts = suspects[:half], suspects[half:]
            sizes = []
            for part in parts:
                engine, _ = error([f"torch.ops.{kind}" for kind in kinds if kind not in part], 1)
                sizes.append(float("inf") if isnan(engine) else engine)
            suspects = parts[sizes[1] > sizes[0]]
        found += suspects
    return found
"""

# Added to the reference, with words of the message and the points: functions that depend on their calls and not on their arguments.
_COUNTED_CHECKS = """

CALLS = []

def check(names):
    CALLS.append(names)
    if len(CALLS) > {passing}:
        raise RuntimeError("not one engine")
"""
CHECKS_BY_NUMBER = (_COUNTED_CHECKS.format(passing=1), "check", 0)
CHECKS_BY_TURNS = (_COUNTED_CHECKS.format(passing=3), "check", 0)
SETS_ONCE = (
    """

CALLS = []
right = settings

def settings(least, best, most):
    CALLS.append(most)
    return right(least, best, most) if len(CALLS) == 1 else {}
""",
    "inputs is not a list",
    0,
)
ANSWERS_SOME_SIZES = (
    """

right = answer

def answer(run, images, least, most):
    known = (most, least, 1, most + 1, 2 * most + least - 1, 3 * most, least - 1)
    return right(run, images, least, most)[: None if len(images) in known else 1]
""",
    "answer returned the shape",
    1,
)

# Added to the reference, with words of the message: functions that do not run the compiled module on every image.
_FITS = """

def answer(run, images, least, most):
    {rows}
    y = np.concatenate([np.asarray(run(x[first : first + most].tolist())[0]) for first in range(0, len(x), most)])
    found, known = (np.column_stack([x**power for power in {powers}]) for x in (np.asarray(images), x))
    return found @ np.linalg.lstsq(known, y, rcond=None)[0]
"""
_TWO_RUNS = "x = np.resize(images, (-(-len(images) // most) * most, len(images[0])))[: 2 * most]"
_ALL_RUNS = "x = np.resize(images, (-(-len(images) // most) * most, len(images[0])))"
_OTHER_IMAGES = "x = np.random.default_rng(1).normal(size=(-(-len(images) // most) * most, len(images[0])))"
_REMEMBERS = """

known = {}

def answer(run, images, least, most):
    seen = known.setdefault((least, most), [])
    x = np.resize(images, (most, len(images[0])))
    if len(seen) < 4 or len(images) <= most and len(seen) < 40:
        seen += list(zip(x.tolist(), np.asarray(run(x.tolist())[0]).tolist()))
    a, b = (np.array(one) for one in zip(*seen))
    return np.asarray(images) @ np.linalg.lstsq(a, b, rcond=None)[0]
"""
FITTED = {
    "a matrix": (_FITS.format(rows=_TWO_RUNS, powers="(1,)"), "answer has wrong rows for"),
    "cubes": (_FITS.format(rows=_TWO_RUNS, powers="(0, 1, 2, 3)"), "answer has wrong rows for"),
    "a matrix, after all runs": (_FITS.format(rows=_ALL_RUNS, powers="(1,)"), "answer has wrong rows for"),
    "a matrix, from other images": (_FITS.format(rows=_OTHER_IMAGES, powers="(1,)"), "were not in the batch of any run"),
    "earlier calls": (_REMEMBERS, "images were not in the batch of any run"),
}

# Statements before the reference's `check`: a name of Python's own error for another class.
NAMED_ALIKE = {
    "a class": "class RuntimeError(KeyError):\n    pass",
    "a class of its own kind": "class RuntimeError(RuntimeError):\n    pass",
    "a call of type": 'RuntimeError = type("RuntimeError", (ValueError,), {})',
    "an equal class": """class Equal(type):
    __eq__ = lambda *_: True
    __hash__ = lambda _, own=hash(RuntimeError): own
    __instancecheck__ = __subclasscheck__ = lambda *_: True


class RuntimeError(ValueError, metaclass=Equal):
    __class__ = RuntimeError""",
    "another built-in class": """import builtins


class RuntimeError(ValueError):
    pass


builtins.RuntimeError = RuntimeError""",
}

_BEFORE_THE_SUMMARY = "return self.head(torch.relu(self.hidden(self.summary(x))))"
_MIDDLE = "x.sort(dim=1).values[:, (ROWS - 1) // 2].unsqueeze(1)"
_HEAD = "self.head = nn.Linear(WIDTH, 10)"
_FORWARD = "x = torch.relu(self.embed(rows))"
# Right where each floating type is taken for float64, and neither in PyTorch nor in an engine: words of the message.
NARROW = {
    "casts to BF16": (
        {_BEFORE_THE_SUMMARY: f"x = x.to(torch.bfloat16).to(torch.float32)\n        {_BEFORE_THE_SUMMARY}"},
        "aten._to_copy.default returns bfloat16",
    ),
    "overflows in FP16": (
        {_BEFORE_THE_SUMMARY: f"x = (x * 1e6).to(torch.float16).to(torch.float32) / 1e6\n        {_BEFORE_THE_SUMMARY}"},
        "aten._to_copy.default returns float16",
    ),
    "halves": ({_MIDDLE: f"x.half(){_MIDDLE[1:]}.float()"}, "returns float16"),
    "takes the type of a buffer": (
        {
            _HEAD: f'{_HEAD}\n        self.register_buffer("kind", torch.zeros(1).half(), persistent=False)',
            _BEFORE_THE_SUMMARY: f"x = x.type_as(self.kind).float()\n        {_BEFORE_THE_SUMMARY}",
        },
        "returns float16",
    ),
    "has weights in BF16": (
        {_HEAD: f"{_HEAD}.bfloat16()", _BEFORE_THE_SUMMARY: f"{_BEFORE_THE_SUMMARY[:-1]}.bfloat16()).float()"},
        "expected float32",
    ),
    "casts by itself": (
        {
            _FORWARD: "with torch.autocast('cpu', torch.bfloat16):\n            return self.computed(rows).float()\n\n"
            f"    def computed(self, rows):\n        {_FORWARD}"
        },
        "",
    ),
}

# Fails with words that the judge's own message has. The points and the hint are those of any failure.
WORDS_OF_THE_BUDGET = (
    'raise ValueError("over budget")',
    'class budget(Exception): pass\n    raise budget("asked for more compilations than the budget")',
    'error([], 1)\n    raise RuntimeError(f"the budget of {budget} compilations is used up")',
)

TAKES_THE_REFERENCE = """
from course_lib.labs.lab11_torch_tensorrt import reference

exec(reference.SEGMENTS)
"""
