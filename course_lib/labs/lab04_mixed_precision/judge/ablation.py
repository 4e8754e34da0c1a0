"""Whether each fused attention of a submission matters: the logits must change if its output is zero.

An attention that is split can have a meaningless one beside it, which the compiler fuses. The layer table alone cannot tell the two apart.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import BuildError, EngineError
from course_lib.labs.framework.answers import decibels
from course_lib.labs.framework.examination import TimedWorker
from course_lib.labs.framework.isolation import transform, transformed

# SQNR of the logits without one attention, against the logits with all. Measured on 32 digits: 6 to 12 dB in the reference, 73 dB where
# an attention for show is added with a factor of 2^-12.
MATTERS_DB = 30.0
_SWITCH = "attention_switch"


def switchable(
    model: bytes, attentions: Sequence[Collection[str]], *, launcher: Launcher | None = None, time_limit_s: float = 60.0
) -> bytes:
    """The model with one more input, ``attention_switch`` ``(n,)`` float32, by which the outputs of the n attentions are multiplied.

    Args:
        model: a serialized model with unique node names.
        attentions: for each fused attention, the names of its nodes.

    Raises:
        BuildError: the graph cannot be read.
    """
    question = json.dumps([sorted(names) for names in attentions]).encode() + b"\n" + model
    try:
        return transformed(__name__, question, launcher=launcher, time_limit_s=time_limit_s)
    except EngineError as error:
        raise BuildError(f"the attentions of model.onnx cannot be switched off: {error}") from None


def idle(engine: TimedWorker, tokens: np.ndarray, attentions: int) -> int:
    """How many attentions of a `switchable` model leave the logits as they are when they are switched off.

    Args:
        tokens: digits, ``(batch, rows, 32)``.

    Raises:
        EngineError: the engine rejects them.
    """

    def answer(switch: np.ndarray) -> np.ndarray:
        return engine.infer({"tokens": tokens, _SWITCH: switch.astype(np.float32)})["logits"].astype(np.float64)

    every = answer(np.ones(attentions))
    return sum(decibels(every, answer(1 - one)) > MATTERS_DB for one in np.eye(attentions))


def main() -> None:
    """The child's end of `switchable`."""
    transform(_switchable)


def _switchable(question: bytes) -> bytes:
    import onnx
    from onnx import helper

    names, _, data = question.partition(b"\n")
    model = onnx.load_model_from_string(data)
    groups = [set(group) for group in json.loads(names)]
    read_by: dict[str, list[str]] = {output.name: [""] for output in model.graph.output}
    for node in model.graph.node:
        for tensor in node.input:
            read_by.setdefault(tensor, []).append(node.name)
    nodes = []
    for node in model.graph.node:
        nodes.append(node)
        for number, group in enumerate(groups):
            for index, tensor in enumerate(node.output if node.name in group else ()):
                if set(read_by.get(tensor, ())) <= group:
                    continue
                node.output[index] = raw = f"{tensor}/as_computed"
                for inner in model.graph.node:
                    if inner.name in group:
                        inner.input[:] = [raw if name == tensor else name for name in inner.input]
                place, factor, typed = (f"{tensor}/{word}" for word in ("place", "factor", "typed"))
                nodes.append(helper.make_node("Constant", [], [place], value_int=number))
                nodes.append(helper.make_node("Gather", [_SWITCH, place], [factor]))
                nodes.append(helper.make_node("CastLike", [factor, raw], [typed]))
                nodes.append(helper.make_node("Mul", [raw, typed], [tensor]))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.input.append(helper.make_tensor_value_info(_SWITCH, onnx.TensorProto.FLOAT, [len(groups)]))
    return model.SerializeToString()
