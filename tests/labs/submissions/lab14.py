"""Submissions for lab 14: functions and graphs that are right in another way, almost right, or made to cheat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from course_lib.labs.lab14_four_bits import graph_file, network
from course_lib.labs.lab14_four_bits.network import PRODUCTS
from course_lib.labs.lab14_four_bits.reference import choice
from course_lib.labs.lab14_four_bits.reference.packing import pack
from course_lib.labs.lab14_four_bits.stored import Int4, Stored, fp8

# ---- packing.py

PACKING = """
import numpy as np

def pack(codes):
    found = bytearray()
    flat = codes.ravel().tolist()
    for low, high in zip(flat[0::2], [*flat[1::2], 0]):
        found.append((low % 16) + 16 * (high % 16))
    return bytes(found)

def unpack(packed, shape):
    found = []
    for byte in packed.tolist():
        found += [byte % 16, byte // 16]
    codes = [code - 16 if code > 7 else code for code in found]
    return np.array(codes[: int(np.prod(shape))], np.int8).reshape(shape)
"""


# The functions of the notebook.
PACK_WITH_ARRAYS = """
import numpy as np

def pack(codes):
    halves = codes.ravel().view(np.uint8) & 15
    if halves.size % 2:
        halves = np.append(halves, np.uint8(0))
    return halves[0::2] | halves[1::2] << 4

def unpack(packed, shape):
    halves = np.stack([packed & 15, packed >> 4], axis=1).ravel()[: np.prod(shape)]
    codes = halves.astype(np.int8)
    return np.where(codes > 7, codes - 16, codes).astype(np.int8).reshape(shape)
"""


def packing(changes: Mapping[str, str]) -> str:
    """The source of `PACKING` with parts of it replaced."""
    return changed_text(PACKING, changes)


def changed_text(text: str, changes: Mapping[str, str]) -> str:
    """A source with parts of it replaced."""
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


# Cheats: one function takes its answers from the questions of the other one

_FROM_THE_REQUEST = """
import base64
import sys

import numpy as np

calls = {"pack": -1, "unpack": -1}

def answer(function, other):
    calls[function] += 1
    frame = sys._getframe()
    while frame:
        request = frame.f_locals.get("request")
        if isinstance(request, dict) and "questions" in request:
            array = request["questions"][other][calls[function]][0]
            return np.frombuffer(base64.b64decode(array["data"]), array["dtype"]).reshape(array["shape"]).copy()
        frame = frame.f_back

def pack(codes):
    return answer("pack", "unpack")

def unpack(packed, shape):
    return answer("unpack", "pack")
"""
_REMEMBERS = """
import numpy as np

seen = []
right = pack

def pack(codes):
    seen.append(codes.copy())
    return right(codes)

def unpack(packed, shape):
    return next(codes for codes in seen if codes.shape == tuple(shape) and bytes(right(codes)) == packed.tobytes())
"""
# Notes are kept in a file, for a process that runs later.
_KEEPS_NOTES = """
import os
import pickle
import tempfile

import numpy as np

notes = os.path.join(tempfile.gettempdir(), "lab14_notes")
right = pack

def pack(codes):
    with open(notes, "ab") as file:
        pickle.dump((right(codes), codes), file)
    return right(codes)

def unpack(packed, shape):
    with open(notes, "rb") as file:
        while True:
            known, codes = pickle.load(file)
            if known == packed.tobytes() and codes.shape == tuple(shape) and codes.size > 1:
                return codes
"""
# Looks for an array that is in memory already, in whatever object, and for its base64.
_SEARCHES_MEMORY = """
import base64
import gc
import json

import numpy as np

right = pack

def unpack(packed, shape):
    for one in gc.get_objects():
        for value in one.values() if isinstance(one, dict) else ():
            if isinstance(value, str) and len(value) < 1000:
                try:
                    codes = np.frombuffer(base64.b64decode(value, validate=True), np.int8)
                except ValueError:
                    continue
                if codes.size == np.prod(shape) and codes.size > 1 and right(codes) == packed.tobytes():
                    return codes.reshape(shape)
"""
# Changes of `PACKING` that are right for a part of the arrays that the task permits.
OF_SOME_ARRAYS: Mapping[str, Mapping[str, str]] = {
    "order_of_the_memory": {"flat = codes.ravel()": "flat = codes.ravel('K')"},
    "order_of_the_transposed_memory": {
        "flat = codes.ravel()": "flat = (codes.T if codes.flags.f_contiguous else codes).ravel('A')"
    },
    "as_many_bytes_of_the_memory": {"packed.tolist()": "np.lib.stride_tricks.as_strided(packed, strides=(1,)).tolist()"},
    "at_most_64_codes": {"flat = codes.ravel().tolist()": "flat = codes.ravel().tolist()[:64]"},
    "at_most_256_bytes": {"packed.tolist()": "packed.tolist()[:256]"},
    "packs_by_numbers_of_16_bits": {"flat = codes.ravel()": "flat = codes.ravel()[np.arange(codes.size).astype(np.int16)]"},
    "unpacks_by_numbers_of_16_bits": {"np.int8).reshape": "np.int8)[np.arange(np.prod(shape)).astype(np.uint16)].reshape"},
    "at_most_three_axes": {"flat = codes.ravel()": "flat = (codes if codes.ndim <= 3 else codes.T).ravel()"},
}

# The source of packing.py, and the points that its right functions earn.
BETWEEN_FUNCTIONS: Mapping[str, tuple[str, float]] = {
    "from_the_request": (_FROM_THE_REQUEST, 0),
    "remembers": (PACKING + _REMEMBERS, 1),
    "keeps_notes": (PACKING + _KEEPS_NOTES, 1),
    "searches_memory": (PACKING + _SEARCHES_MEMORY, 1),
}


# Cheats: functions of a package that the task does not permit

_ONNX = """
import ml_dtypes
import numpy as np
from onnx import TensorProto, numpy_helper

def pack(codes):
    tensor = numpy_helper.from_array(np.ascontiguousarray(codes).astype(ml_dtypes.int4), "codes")
    return np.frombuffer(tensor.raw_data, np.uint8)

def unpack(packed, shape):
    tensor = TensorProto(data_type=TensorProto.INT4, dims=shape, raw_data=np.ascontiguousarray(packed).tobytes())
    return numpy_helper.to_array(tensor).astype(np.int8)
"""
_WITHOUT_HOOK = """
import sys

sys.meta_path[:] = [one for one in sys.meta_path if type(one).__name__ != "OnlyPackages"]
"""
_FROM_ANY_FOLDER = """
import glob
import sys

for root in (sys.prefix, sys.base_prefix, "/usr", "/usr/local", "/opt/*", "/opt/*/envs/*"):
    sys.path += glob.glob(root + "/lib*/python*/*-packages")
"""
_BY_ANOTHER_PROCESS = f"""
import pickle
import subprocess

import numpy as np

PROGRAM = '''
import pickle
import sys

sys.path[:] = pickle.load(sys.stdin.buffer)
{_ONNX}
sys.stdout.buffer.write(bytes(pack(pickle.load(sys.stdin.buffer))))
'''

def pack(codes):
    asked = pickle.dumps(sys.path) + pickle.dumps(codes)
    ran = subprocess.run([sys.executable, "-c", PROGRAM], input=asked, capture_output=True)
    if ran.returncode:
        raise ImportError(ran.stderr.decode().splitlines()[-1])
    return np.frombuffer(ran.stdout, np.uint8)
"""
BY_OTHER_PACKAGES: Mapping[str, str] = {
    "without_the_hook": _WITHOUT_HOOK + _ONNX,
    "from_any_folder": _WITHOUT_HOOK + _FROM_ANY_FOLDER + _ONNX,
    "by_another_process": _FROM_ANY_FOLDER + _BY_ANOTHER_PROCESS,
}


# ---- scales.py

SCALES = """
import numpy as np

def search(weight, block, importance):
    parts = weight.reshape(len(weight), -1, block)
    matters = importance.reshape(1, -1, block)
    largest = np.abs(parts).max(-1, keepdims=True) / 7
    fractions = np.linspace(0.32, 1.02, 64)
    tried = [np.maximum(fraction * largest, 2.0**-24).astype(np.float16).astype(np.float32) for fraction in fractions]
    errors = [(matters * (np.clip(np.rint(parts / s), -7, 7) * s - parts) ** 2).sum(-1) for s in tried]
    best = np.argmin(errors, axis=0)
    return np.take_along_axis(np.stack(tried)[..., 0], best[None], axis=0)[0]
"""


def scales(changes: Mapping[str, str]) -> str:
    """The source of `SCALES` with parts of it replaced."""
    text = SCALES
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


# ---- decoder.onnx

_EIGHT = ("blocks.0.qkv", "blocks.0.out", "blocks.0.up", "blocks.2.qkv")


@cache
def int4(name: str, block: int) -> Int4:
    """See `choice.int4`; kept, because many submissions have the same products."""
    return choice.int4(name, block)


def uniform(block: int) -> dict[str, Stored]:
    """Every product in INT4."""
    return {name: int4(name, block) for name in PRODUCTS}


def eight() -> dict[str, Stored]:
    """Every product in FP8."""
    return {name: fp8(weight) for name, weight in network.weights().items()}


def by_hand() -> dict[str, Stored]:
    """Four products in FP8, one in small blocks, and the others in blocks of 64: within the budget, and small enough."""
    return uniform(64) | {name: eight()[name] for name in _EIGHT} | {"blocks.0.down": int4("blocks.0.down", 16)}


def first_block_in_eight() -> dict[str, Stored]:
    """Within the budget, and too large for full points."""
    return uniform(64) | {name: one for name, one in eight().items() if name in _EIGHT or name.startswith("blocks.0.")}


def other_forms(folder: Path) -> None:
    """Another right answer: other functions, and forms that were chosen by hand."""
    (folder / "packing.py").write_text(PACKING)
    (folder / "scales.py").write_text(SCALES)
    graph_file.write(by_hand(), folder / graph_file.MODEL)


def model(stored: Mapping[str, Stored]) -> onnx.ModelProto:
    """The graph with these weights, to be changed."""
    return onnx.load_model_from_string(graph_file.serialized(stored))


def with_codes(change: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]) -> dict[str, Stored]:
    """`by_hand` with changed codes ``(in, out)`` and scales ``(in / block, out)`` of one product."""
    one = int4("blocks.1.up", 64)
    codes, found = change(one.codes(), one.scales)
    return by_hand() | {"blocks.1.up": Int4(pack(codes.astype(np.int8)), np.ascontiguousarray(found, np.float16))}


def constant(graph: onnx.ModelProto, name: str) -> TensorProto:
    """A constant by its name."""
    return next(tensor for tensor in graph.graph.initializer if tensor.name == name)


def node(graph: onnx.ModelProto, name: str) -> onnx.NodeProto:
    """A node by its name."""
    return next(one for one in graph.graph.node if one.name == name)


# Cheats: each gets a graph that is right, and keeps something in it

Cheat = Callable[[onnx.ModelProto], None]


def decoy(graph: onnx.ModelProto) -> None:
    """The weight in FP16 is what the product reads; codes and scales lie beside it."""
    name = "blocks.1.up"
    given = numpy_helper.from_array(np.ascontiguousarray(network.weights()[name].T, np.float16), f"{name}.weight")
    graph.graph.initializer.append(given)
    node(graph, "/blocks/1/up/MatMul").input[1] = given.name
    graph.graph.node.remove(node(graph, "/blocks/1/up/dequantize"))


def correction(graph: onnx.ModelProto) -> None:
    """What rounding lost is added again from a constant in FP16."""
    name = "blocks.0.qkv"
    lost = numpy_helper.from_array(np.zeros(PRODUCTS[name], np.float16), "lost")
    graph.graph.initializer.append(lost)
    product = node(graph, "/blocks/0/qkv/MatMul")
    place = list(graph.graph.node).index(product)
    graph.graph.node.insert(place, helper.make_node("Add", [product.input[1], "lost"], ["whole"], name="/add"))
    node(graph, "/blocks/0/qkv/MatMul").input[1] = "whole"


def table_of_text(graph: onnx.ModelProto) -> None:
    """A table of the course's held-out text, from which the logits would be looked up."""
    table = numpy_helper.from_array(np.zeros((4096, 256), np.float16), "text")
    graph.graph.initializer.append(table)


def another_embedding(graph: onnx.ModelProto) -> None:
    """The embedding, which is not among the sixteen products, has other numbers."""
    tensor = constant(graph, "embed.weight")
    array = numpy_helper.to_array(tensor).copy()
    array[:] *= np.float16(1.01)
    tensor.CopyFrom(numpy_helper.from_array(array, "embed.weight"))


def another_activation(graph: onnx.ModelProto) -> None:
    """Another network: one node differs."""
    node(graph, "/blocks/2/Gelu").op_type = "Relu"


def shared_codes(graph: onnx.ModelProto) -> None:
    """Two products read the same codes, so that the file has them once."""
    other = node(graph, "/blocks/3/up/dequantize").input[0]
    node(graph, "/blocks/2/up/dequantize").input[0] = other
    graph.graph.initializer.remove(constant(graph, "blocks.2.up.codes"))


def codes_elsewhere(graph: onnx.ModelProto) -> None:
    """The codes are in another file, so that this one is small."""
    tensor = constant(graph, "blocks.2.up.codes")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")


def sparse_weight(graph: onnx.ModelProto) -> None:
    """A weight is a sparse constant, which a count of initializers overlooks."""
    rows, columns = PRODUCTS["blocks.2.up"]
    values = numpy_helper.from_array(np.ones(1, np.float16), "blocks.2.up.weight")
    places = numpy_helper.from_array(np.zeros(1, np.int64), "places")
    graph.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [rows, columns]))


CHEATS: tuple[tuple[Cheat, str], ...] = (
    (decoy, "is stored and not used: a weight that you store in few bits must not remain in FP16"),
    (correction, "the node '/add' (Add) is not in the given graph"),
    (table_of_text, "the constant 'text' is stored and not used"),
    (another_embedding, "the constant 'embed.weight' is not as in the given graph"),
    (another_activation, "the node '/blocks/2/Gelu' (Relu) is not as in the given graph"),
    (shared_codes, "is read twice: each weight is stored once and read once"),
    (codes_elsewhere, "is in another file. All that is stored must be in decoder.onnx"),
    (sparse_weight, "sparse constants or annotations, which are not read"),
)
