"""The tensors of a graph that a quantizer needs, and a session that returns them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from course_lib._util.cpu_int8 import session_options
from course_lib._util.plain_text import reason
from course_lib.errors import CourseError
from course_lib.precision.calibration.histogram import StreamingHistogram

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import onnxruntime

QUANTIZED = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Add")  # operators that INT8 kernels exist for
_FLOATS = ("tensor(float)", "tensor(float16)", "tensor(double)")


def quantizable(model: onnx.ModelProto) -> tuple[str, ...]:
    """Names of what the `QUANTIZED` operators read and write, in graph order, without weights and other constants.

    Tensors that are not of a float type may be among them. Subgraphs (If, Loop, Scan) are not entered.
    """
    # Whatever no input reaches is a constant; initializers that are listed as inputs too are weights.
    live = {value.name for value in model.graph.input} - {value.name for value in model.graph.initializer}
    wanted: dict[str, None] = {}
    for node in model.graph.node:
        if live.intersection(node.input):
            live.update(name for name in node.output if name)
            if node.op_type in QUANTIZED:
                wanted.update(dict.fromkeys(name for name in (*node.input, *node.output) if name in live))
    return tuple(wanted)


@dataclass(frozen=True)
class Probe:
    """A model that returns its activations. Each call uses one thread; several threads may call at the same time.

    Attributes:
        tensors: the counted tensors, in graph order.
    """

    tensors: tuple[str, ...]
    _session: Any = field(repr=False)
    _inputs: frozenset[str] = field(repr=False)

    @classmethod
    def of(cls, model: onnx.ModelProto, tensors: Iterable[str] | None) -> Probe:
        """Prepare ``model``, which is not changed, to show ``tensors``, by default the float ones of `quantizable`.

        Raises:
            CourseError: a tensor that the model does not have or that is not of a float type, no tensors, or a model that
                ONNX Runtime rejects.
        """
        wanted = quantizable(model) if tensors is None else tuple(dict.fromkeys(tensors))
        _reject_unknown(model, wanted)
        session = _session(_showing(model, wanted))
        inputs = frozenset(value.name for value in session.get_inputs())
        types = {value.name: value.type for value in (*session.get_inputs(), *session.get_outputs())}
        if tensors is not None and (odd := [name for name in wanted if types[name] not in _FLOATS]):
            raise CourseError(f"tensor {odd[0]!r} is a {types[odd[0]]}: only float tensors have a range to calibrate")
        chosen = tuple(name for name in wanted if types[name] in _FLOATS)
        if not chosen:
            raise CourseError(f"nothing to calibrate: the model has no float activation around {', '.join(QUANTIZED)}")
        return cls(chosen, session, inputs)

    def __call__(self, feeds: Mapping[str, np.ndarray]) -> dict[str, StreamingHistogram]:
        """Run one batch and count the values of every tensor.

        Raises:
            CourseError: the model rejects the batch, or a tensor holds NaN or infinity.
        """
        if feeds.keys() != self._inputs:
            found, needed = (", ".join(sorted(names)) or "none" for names in (feeds.keys(), self._inputs))
            raise CourseError(f"a calibration batch must hold the model's inputs ({needed}), found {found}")
        computed = [name for name in self.tensors if name not in self._inputs]
        try:
            values = dict(zip(computed, self._session.run(computed, dict(feeds)), strict=True)) if computed else {}
        except Exception as error:  # onnxruntime raises classes of its own binding, without a common public base
            raise CourseError(f"onnxruntime rejected a calibration batch: {reason(error)}") from None
        histograms = {name: StreamingHistogram(name) for name in self.tensors}
        for name, histogram in histograms.items():
            histogram.add(values.pop(name) if name in values else feeds[name])  # pop: the largest arrays go first
        return histograms


def _reject_unknown(model: onnx.ModelProto, wanted: Iterable[str]) -> None:
    constants = {value.name for value in model.graph.initializer}
    known = {value.name for value in model.graph.input} - constants | {n for node in model.graph.node for n in node.output}
    for name in wanted:
        if name in constants:
            raise CourseError(f"tensor {name!r} is a weight: its range is known without calibration")
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            raise CourseError(f"the model has no tensor {name!r}" + (f"; is {close[0]!r} meant?" if close else ""))


def _showing(model: onnx.ModelProto, wanted: Iterable[str]) -> bytes:
    """The serialized model with the wanted tensors added to its outputs; ONNX Runtime finds out their types."""
    import onnx

    inner = onnx.ModelProto()
    inner.CopyFrom(model)
    there = {value.name for value in (*model.graph.input, *model.graph.output)}
    inner.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in there)
    try:
        return inner.SerializeToString()
    except Exception as error:  # protobuf's implementations raise different classes
        raise CourseError(f"the model cannot be serialized ({error}): calibration takes models below 2 GiB") from None


def _session(data: bytes) -> onnxruntime.InferenceSession:
    import onnxruntime

    options = session_options()  # one thread: batches run side by side instead
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # as above
        raise CourseError(f"onnxruntime rejects the model: {reason(error)}") from None
