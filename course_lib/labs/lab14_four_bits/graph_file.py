"""Task 3 of lab 14: the decoder's graph with weights in other forms, written to a file, and read back from a submission's file.

The reader takes only what is stored, and accepts nothing else that differs from the given graph. The judge then writes its own graph
from the codes and scales. So no node and no constant of a submission is ever run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import BuildError, CourseError
from course_lib.labs.framework import isolation, stored_numbers
from course_lib.labs.framework.isolation import transform
from course_lib.labs.framework.stored_numbers import Take, by_name, check_form, plain
from course_lib.labs.lab14_four_bits import network
from course_lib.labs.lab14_four_bits.network import PRODUCTS
from course_lib.labs.lab14_four_bits.stored import BLOCKS, Fp8, Half, Int4, Stored

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

MODEL, MAX_BYTES = "decoder.onnx", 8 << 20
_FLOAT16, _FP8, _INT4, _UINT4 = 10, 17, 22, 21  # TensorProto's numbers
_DEQUANTIZE = "DequantizeLinear"
_ADVICE = "write the file with write(...) of this lab"


def write(stored: Mapping[str, Stored], path: str | Path = MODEL) -> None:
    """Write the given decoder with weights in other forms.

    Args:
        stored: by the product's name. A product that is not in it keeps its FP16 weight.

    Raises:
        CourseError: an unknown product, or codes and scales that do not fit its shape.
    """
    Path(path).write_bytes(serialized(stored))


def serialized(stored: Mapping[str, Stored]) -> bytes:
    """The same as bytes."""
    import onnx
    from onnx import helper

    for name, weight in stored.items():
        _check_shape(name, weight)
    model = onnx.load_model_from_string(network.graph())
    nodes, constants = [], []
    for node in model.graph.node:
        name = node.input[1].removesuffix(".weight") if node.op_type == "MatMul" else ""
        if isinstance(one := stored.get(name), Int4 | Fp8):
            codes, scale = _tensors(name, one)
            constants += [codes, scale]
            node.input[1] = f"{name}/dequantized"
            block: dict[str, Any] = (
                {"axis": 0, "block_size": PRODUCTS[name][0] // len(one.scales)} if isinstance(one, Int4) else {}
            )
            nodes.append(
                helper.make_node(
                    _DEQUANTIZE, [codes.name, scale.name], [node.input[1]], name=f"{_node_of(name)}/dequantize", **block
                )
            )
        nodes.append(node)
    changed = {f"{name}.weight" for name, one in stored.items() if not isinstance(one, Half)}
    constants = [*(tensor for tensor in model.graph.initializer if tensor.name not in changed), *constants]
    copies = [[type(one).FromString(one.SerializeToString()) for one in rows] for rows in (nodes, constants)]
    for field, rows in zip(("node", "initializer"), copies, strict=True):
        model.graph.ClearField(field)
        getattr(model.graph, field).extend(rows)
    return bytes(model.SerializeToString())


def product_of(node: str) -> str:
    """The product that a node of the graph computes or dequantizes, "" for another node."""
    path = node.removesuffix("/MatMul").removesuffix("/dequantize")
    name = path.strip("/").replace("/", ".")
    return name if path != node and name in PRODUCTS else ""


def _node_of(name: str) -> str:
    return f"/{name.replace('.', '/')}"


def _check_shape(name: str, one: Stored) -> None:
    if name not in PRODUCTS:
        raise CourseError(f"no product {str(name)[:60]!r}: the decoder has {', '.join(PRODUCTS)}")
    rows, columns = PRODUCTS[name]
    if isinstance(one, Int4):
        if problem := one.problem([PRODUCTS[name]], name):
            raise CourseError(problem)
    else:
        found = np.shape(one.codes if isinstance(one, Fp8) else one.numbers)
        if found != (rows, columns):
            raise CourseError(f"{name} has the shape {found}, expected (in, out) = ({rows}, {columns})")


def _blocks(rows: int) -> list[int]:
    return [block for block in BLOCKS if rows % block == 0]


def _tensors(name: str, one: Int4 | Fp8) -> tuple[TensorProto, TensorProto]:
    from onnx import TensorProto, numpy_helper

    kind, data = (_INT4, one.packed) if isinstance(one, Int4) else (_FP8, one.codes)
    codes = TensorProto(
        name=f"{name}.codes", dims=PRODUCTS[name], data_type=kind, raw_data=np.ascontiguousarray(data).tobytes()
    )
    scales = one.scales if isinstance(one, Int4) else one.scale
    return codes, numpy_helper.from_array(np.asarray(scales, np.float16, order="C"), f"{name}.scales")


# ---- reading a submission


def examined(model: bytes, *, launcher: Launcher | None = None, time_limit_s: float = 60.0) -> dict[str, Stored]:
    """What a submission's graph stores for each product, read in a process of its own.

    Raises:
        BuildError: anything else than the weights of the sixteen products differs from the given graph, or a weight is stored in a
            form that the lab does not have.
    """
    given = network.graph()
    question = len(given).to_bytes(8, "little") + given + model
    return isolation.examined(__name__, question, parsed, MODEL, _ADVICE, launcher=launcher, time_limit_s=time_limit_s)


def parsed(answer: bytes) -> dict[str, Stored]:
    """The weights in the answer of that process, which could have been taken over by a file.

    Raises:
        EngineError: the answer does not have this form.
    """
    return stored_numbers.read(answer, _weights)


def _weights(forms: Any, take: Take) -> dict[str, Stored]:
    found: dict[str, Stored] = {}
    for name, (rows, columns) in PRODUCTS.items():
        form, block = forms[name]
        if form == "INT4" and block in _blocks(rows):
            found[name] = Int4(take(np.uint8, (rows * columns // 2,)), take(np.float16, (rows // block, columns)))
        elif form == "FP8":
            found[name] = Fp8(take(np.uint8, (rows, columns)), float(take(np.float16, ())))
        elif form == "FP16":
            found[name] = Half(take(np.float16, (rows, columns)))
        else:
            raise ValueError(form)
    if not all(np.isfinite(one.values()).all() for one in found.values()):
        raise ValueError("not finite")
    return found


def main() -> None:
    """Entry point of the child process."""
    transform(_stored)


def _stored(question: bytes) -> bytes:
    import onnx

    length = int.from_bytes(question[:8], "little")
    given, model = (onnx.load_model_from_string(part) for part in (question[8 : 8 + length], question[8 + length :]))
    check_form(model, given, MODEL, _ADVICE)
    reader = _Reader(model.graph, given.graph)
    forms, parts = {}, []
    for name in PRODUCTS:
        form, block, arrays = reader.weight(name)
        forms[name] = (form, block)
        parts += [array.tobytes() for array in arrays]
    reader.check_rest()
    return json.dumps(forms).encode() + b"\n" + b"".join(parts)


class _Reader:
    """Compares a graph with the given one, and takes the sixteen weights out of it."""

    def __init__(self, graph: GraphProto, given: GraphProto) -> None:
        self.constants = by_name(graph.initializer, "constant")
        self.given_constants = {tensor.name: tensor for tensor in given.initializer}
        self.dequantize: dict[str, NodeProto] = {}
        self.products: dict[str, NodeProto] = {}
        self.used: set[str] = set()
        expected = {node.name: node for node in given.node}
        for name, node in by_name(graph.node, "node").items():
            if node.op_type == _DEQUANTIZE and node.domain == "" and len(node.output) == 1:
                self.dequantize[node.output[0]] = node
                continue
            other = expected.pop(name, None)
            if other is None:
                _reject(
                    f"the node {name[:60]!r} ({node.op_type[:40]}) is not in the given graph. Only {_DEQUANTIZE} may be added"
                )
            product = product_of(name)
            if product:
                self.products[product] = node
            free = (1,) if product else ()  # the name of its weight
            if plain(node, free) != plain(other, free):
                _reject(
                    f"the node {name[:60]!r} ({node.op_type[:40]}) is not as in the given graph: change nothing but weights"
                )
        if expected:
            _reject(f"the node {next(iter(expected))!r} of the given graph is missing")

    def weight(self, name: str) -> tuple[str, int, list[np.ndarray]]:
        """Form, block and arrays of a product's weight."""
        source = self.products[name].input[1]
        if source not in self.dequantize:
            tensor = self._constant(source, name)
            if tensor.data_type != _FLOAT16 or tuple(tensor.dims) != PRODUCTS[name]:
                _reject(f"the weight of {name} is neither its FP16 constant nor the result of a {_DEQUANTIZE} with codes")
            return "FP16", 0, [self._array(tensor)]
        node = self.dequantize.pop(source)
        if len(node.input) != 2:
            _reject(f"the {_DEQUANTIZE} of {name} has a zero point: TensorRT's INT4 and FP8 are symmetric, so leave it out")
        codes, scales = (self._constant(one, name) for one in node.input)
        attributes = {one.name: one.i for one in node.attribute}
        if tuple(codes.dims) != PRODUCTS[name]:
            _reject(f"the codes of {name} have the shape {_spell(codes.dims)}, expected (in, out) = {_spell(PRODUCTS[name])}")
        if scales.data_type != _FLOAT16:
            _reject(f"the scales of {name} are not FP16, the type of the other input of the product")
        if codes.data_type == _INT4:
            return self._int4(name, codes, scales, attributes)
        if codes.data_type != _FP8:
            kind = "unsigned (UINT4), and TensorRT's INT4 is signed" if codes.data_type == _UINT4 else "in another type"
            _reject(f"the codes of {name} are {kind}: use INT4 or FP8 (E4M3)")
        if scales.dims or set(attributes) - {"axis"}:
            _reject(f"{name} is FP8 with several scales: this lab has one scale for the tensor, of shape ()")
        bits = self._array(codes).view(np.uint8)
        if ((bits & 127) == 127).any():
            _reject(f"a code of {name} is NaN, which a value beyond 448 becomes in E4M3: clip before the cast")
        return "FP8", 0, [bits, self._scales(name, scales)]

    def _int4(
        self, name: str, codes: TensorProto, scales: TensorProto, attributes: Mapping[str, int]
    ) -> tuple[str, int, list[np.ndarray]]:
        rows, columns = PRODUCTS[name]
        block = attributes.get("block_size", 0)
        if block not in _blocks(rows):
            _reject(f"the block of {name} is {block}, expected one of {', '.join(map(str, _blocks(rows)))}")
        if attributes.get("axis") != 0 or set(attributes) - {"axis", "block_size"}:
            _reject(f"the blocks of {name} must lie along the input of the product, which is axis 0 of (in, out)")
        if tuple(scales.dims) != (rows // block, columns):
            _reject(
                f"the scales of {name} have the shape {_spell(scales.dims)}, expected {rows // block} x {columns} for blocks of {block}"
            )
        halves = self._array(codes).astype(np.int8).ravel().view(np.uint8) & 15
        return "INT4", block, [halves[0::2] | halves[1::2] << 4, self._scales(name, scales)]

    def check_rest(self) -> None:
        """Whether everything else is the given graph's: its constants, and no others."""
        if self.dequantize:
            _reject(f"a {_DEQUANTIZE} feeds no product, or several: store each weight once, and read it once")
        for name, tensor in self.given_constants.items():
            if name.removesuffix(".weight") in PRODUCTS:
                continue
            self.used.add(name)
            if name not in self.constants or plain(self.constants[name]) != plain(tensor):
                _reject(f"the constant {name!r} is not as in the given graph: change nothing but the weights of the products")
        for name in self.constants:
            if name not in self.used:
                _reject(
                    f"the constant {name[:60]!r} is stored and not used: a weight that you store in few bits must not remain in FP16"
                )

    def _constant(self, name: str, product: str) -> TensorProto:
        if name not in self.constants:
            _reject(f"the weight of {product} is computed in the graph: store codes and scales as constants")
        if name in self.used:
            _reject(f"the constant {name[:60]!r} is read twice: each weight is stored once and read once")
        self.used.add(name)
        return self.constants[name]

    def _array(self, tensor: TensorProto) -> np.ndarray:
        from onnx import numpy_helper

        return numpy_helper.to_array(tensor)

    def _scales(self, name: str, tensor: TensorProto) -> np.ndarray:
        scales = self._array(tensor)
        if not (np.isfinite(scales) & (scales > 0)).all():
            _reject(f"a scale of {name} is zero, negative or not finite in FP16: TensorRT needs positive scales")
        return scales


def _reject(said: str) -> NoReturn:
    raise BuildError(f"{said}; {_ADVICE}" if not said.endswith(".") else said)


def _spell(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape)) or "a single number"
