"""Whether each fused attention of a submission is an attention of the given network.

An attention that is split can have another one beside it, which the compiler fuses. The layer table alone cannot tell the two apart.
The submission therefore runs twice in one graph, on two sets of digits. A fused attention of one run is replaced by that of the other
run, and the logits must change as the given network's do. What it reads must not have been mixed across rows by anything else.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import BuildError, EngineError
from course_lib.labs.framework.answers import decibels
from course_lib.labs.framework.examination import TimedWorker
from course_lib.labs.framework.isolation import transform, transformed
from course_lib.labs.lab04_mixed_precision.given_graph import given

# SQNR of the logits with one attention of other digits, against the given network's with the same one. Measured on 16 digits: 61 to 67
# dB in right answers, at most 11 dB for another block's attention and for one whose known output is taken away again.
SAME_DB = 20.0
_SWITCH, _OTHER, _MIXED = "attention_switch", "other_tokens", "mixed"


def paired(
    model: bytes,
    attentions: Sequence[Collection[str]],
    split: Sequence[Collection[str]] = (),
    *,
    launcher: Launcher | None = None,
    time_limit_s: float = 60.0,
) -> bytes:
    """The model twice in one graph, where attentions of the first can be replaced by those of the second.

    It has two more inputs: ``other_tokens``, which the second one reads, and ``attention_switch`` ``(n,)`` float32. An attention whose
    entry is 0 has the second one's output. Its output ``mixed`` is the share of the numbers that differ between the two, for each fused
    attention the largest of the tensors that it reads.

    Args:
        model: a serialized model with unique node names.
        attentions: for each fused attention, of which there is at least one, the names of its nodes.
        split: for each kernel of an attention that counts as split, the names of its nodes.

    Raises:
        BuildError: the graph cannot be read.
    """
    groups = [sorted(names) for names in (*attentions, *split)]
    question = json.dumps([len(attentions), groups]).encode() + b"\n" + model
    try:
        return transformed(__name__, question, launcher=launcher, time_limit_s=time_limit_s)
    except EngineError as error:
        raise BuildError(f"the attentions of model.onnx cannot be replaced: {error}") from None


def foreign(engine: TimedWorker, tokens: np.ndarray, rng: np.random.Generator, attentions: int, split: int = 0) -> int:
    """How many fused attentions of a `paired` model are not attentions of the given network, or read rows that are already mixed.

    Args:
        tokens: digits, ``(batch, rows, 32)``. Half of them take the attentions of the other half.

    Raises:
        EngineError: the engine rejects them.
    """
    one, other = np.array_split(tokens[: len(tokens) // 2 * 2], 2)

    def answer(digits: np.ndarray, switch: np.ndarray) -> dict[str, np.ndarray]:
        return engine.infer({"tokens": digits, _OTHER: other, _SWITCH: switch.astype(np.float32)})

    changed, rows = other.copy(), other.shape[1]
    row = int(rng.integers(rows))
    changed[:, row] = one[:, row]
    changed[:, row, 0] += 0.5  # the row differs in any case
    mixed = answer(changed, np.zeros(attentions + split))[_MIXED] > 1.5 / rows
    left, found = _replaced(one, other), 0
    for number in np.flatnonzero(~mixed):
        logits = answer(one, np.arange(attentions + split) != number)["logits"].astype(np.float64)
        similar = {block: decibels(right, logits) for block, right in left.items()}
        best = max(similar, key=lambda block: similar[block], default=None)
        if best is not None and similar[best] >= SAME_DB:
            del left[best]  # no attention stands in for two
            found += 1
    return attentions - found


def _replaced(one: np.ndarray, other: np.ndarray) -> dict[int, np.ndarray]:
    """For each block, the given network's logits for `one` with that block's attention of `other`."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    data, blocks = _given_twice()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])

    def logits(block: int) -> np.ndarray:
        switch = (np.arange(blocks) != block).astype(np.float32)
        found: np.ndarray = session.run(["logits"], {"tokens": one, _OTHER: other, _SWITCH: switch})[0]
        return found.astype(np.float64)

    return {block: logits(block) for block in range(blocks)}


@cache
def _given_twice() -> tuple[bytes, int]:
    """The given network as `paired` makes it, and the number of its attentions. No sandbox: it is the course's own network."""
    answers = [[node.name] for node in given().graph.node if node.name.endswith("/attention/MatMul_1")]
    question = json.dumps([len(answers), answers]).encode() + b"\n" + given().SerializeToString()
    return _paired(question), len(answers)


def main() -> None:
    """The child's end of `paired`."""
    transform(_paired)


def _paired(question: bytes) -> bytes:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    said, _, data = question.partition(b"\n")
    fused, groups = json.loads(said)
    model = onnx.load_model_from_string(data)
    graph, nodes = model.graph, list[Any]()
    constants = {tensor.name for tensor in graph.initializer}

    def second(name: str) -> str:
        return name if not name or name in constants else _OTHER if name == "tokens" else f"second/{name}"

    for node in graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name = f"second/{node.name}"
        copy.input[:], copy.output[:] = map(second, node.input), map(second, node.output)
        nodes.append(copy)
    read_by: dict[str, set[str]] = {output.name: {""} for output in graph.output}
    for node in graph.node:
        for tensor in node.input:
            read_by.setdefault(tensor, set()).add(node.name)
    group_of = {name: number for number, names in enumerate(groups) for name in names}
    raw = {
        tensor: f"{tensor}/as_computed"
        for node in graph.node
        for tensor in node.output
        if node.name in group_of and any(group_of.get(reader) != group_of[node.name] for reader in read_by.get(tensor, ()))
    }
    makers = {tensor: group_of.get(node.name) for node in graph.node for tensor in node.output}
    reads: dict[int, set[str]] = {number: set() for number in range(fused)}
    for node in graph.node:
        own = group_of.get(node.name)
        if own is not None and own < fused:
            reads[own] |= {name for name in node.input if name and name not in constants and makers.get(name) != own}
        node.input[:] = [raw[name] if name in raw and own is not None and makers[name] == own else name for name in node.input]
        outputs = list(node.output)
        node.output[:] = [raw.get(name, name) for name in outputs]
        nodes.append(node)
        for tensor in filter(raw.__contains__, outputs):
            place, factor, chosen, typed, other = (
                f"{tensor}/{word}" for word in ("place", "factor", "chosen", "typed", "other")
            )
            nodes += [
                helper.make_node("Constant", [], [place], value_int=own),
                helper.make_node("Gather", [_SWITCH, place], [factor]),
                helper.make_node("Cast", [factor], [chosen], to=TensorProto.BOOL),
                helper.make_node("Cast", [raw[tensor]], [typed], to=TensorProto.FLOAT),
                helper.make_node("Cast", [second(tensor)], [other], to=TensorProto.FLOAT),
                helper.make_node("Where", [chosen, typed, other], [f"{tensor}/replaced"]),
                helper.make_node("CastLike", [f"{tensor}/replaced", raw[tensor]], [tensor]),
            ]
    shares = []
    for number, tensors in reads.items():
        found = [
            _share(nodes, tensor, second(tensor), f"reads/{number}/{place}") for place, tensor in enumerate(sorted(tensors))
        ]
        # An attention that reads nothing that is computed does not depend on the digits. Its share is 1, so it never counts.
        whole = helper.make_node("Constant", [], [f"reads/{number}"], value_floats=[1.0])
        nodes.append(helper.make_node("Max", found, [f"reads/{number}"]) if found else whole)
        shares.append(f"reads/{number}")
    nodes.append(helper.make_node("Concat", shares, [_MIXED], axis=0))
    graph.initializer.append(numpy_helper.from_array(np.array([1]), "reads/shape"))
    del graph.node[:]
    graph.node.extend(nodes)
    (tokens,) = (info for info in graph.input if info.name == "tokens")
    copied = onnx.ValueInfoProto()
    copied.CopyFrom(tokens)
    copied.name = _OTHER
    graph.input.extend([copied, helper.make_tensor_value_info(_SWITCH, TensorProto.FLOAT, [len(groups)])])
    graph.output.append(helper.make_tensor_value_info(_MIXED, TensorProto.FLOAT, [fused]))
    del graph.value_info[:]
    return model.SerializeToString()


def _share(nodes: list[Any], tensor: str, other: str, name: str) -> str:
    """Adds nodes that compute the share of numbers that differ between two tensors, ``(1,)``."""
    from onnx import TensorProto, helper

    wide = [f"{name}/first", f"{name}/second"]
    nodes += [
        helper.make_node("Cast", [value], [cast], to=TensorProto.FLOAT)
        for value, cast in zip((tensor, other), wide, strict=True)
    ]
    nodes += [
        helper.make_node("Equal", wide, [f"{name}/equal"]),
        helper.make_node("Not", [f"{name}/equal"], [f"{name}/differ"]),
        helper.make_node("Cast", [f"{name}/differ"], [f"{name}/ones"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", [f"{name}/ones"], [f"{name}/mean"], keepdims=0),
        helper.make_node("Reshape", [f"{name}/mean", "reads/shape"], [f"{name}/share"]),
    ]
    return f"{name}/share"
