"""Sensitivity to reduced precision: the error of each node when it alone is reduced, and the nodes that must stay float32.

The reductions are those of `cast` and `insert_qdq`. FP16 and BF16 are *emulated* for every operator: tensors are rounded to the
type, and the arithmetic between two roundings is float32. A GPU's Tensor Cores also sum in float32. The emulation gives the same
figures on every machine, while ONNX Runtime's own kernels exist only for some operators and CPUs. It shows the overflow of a
tensor, but not an overflow inside an operator (the squares in a LayerNormalization).

Source: Wu et al., Integer Quantization for Deep Learning Inference: Principles and Empirical Evaluation (2020), section 5, on
sensitivity one layer at a time and on leaving the worst ones in float.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from course_lib import style
from course_lib._util.html import LEFT, notebook_table
from course_lib._util.model_file import open_model
from course_lib._util.progress_bar import track
from course_lib.benchmark.accuracy import Deviation, decibels, deviation
from course_lib.benchmark.one_node import Feeds, OneNode, Outputs, reduction, runner, weights_overflow
from course_lib.errors import CourseError

if TYPE_CHECKING:
    import onnx

DType = Literal["fp16", "bf16", "int8"]
_SHOWN = 20  # rows in a notebook's table
_LONGEST = 26  # characters of a node's name in a figure; the end tells nodes apart


@dataclass(frozen=True)
class NodeError:
    """The error in the model's outputs when one node alone is reduced."""

    node: str
    operator: str
    deviation: Deviation


@dataclass(frozen=True)
class KeepList:
    """The nodes that stay float32, and the error of the whole reduced model.

    Attributes:
        nodes: for ``cast(..., keep=nodes)``, or ``insert_qdq(..., exclude=nodes)``.
        deviation: deviation of the whole model with all other nodes reduced.
        tolerance: the requested relative error.
        met: whether the tolerance was reached.
        tried: number of kept nodes to the relative error of the whole model, in the order of the search.
    """

    nodes: tuple[str, ...]
    deviation: Deviation
    tolerance: float
    met: bool
    tried: Mapping[int, float]


@dataclass(frozen=True)
class Sensitivity:
    """The nodes of a model, the most sensitive one first.

    Attributes:
        dtype: the reduced type.
        rows: first the nodes that make outputs overflow, then by relative error; equal ones in graph order.
    """

    dtype: str
    rows: tuple[NodeError, ...]
    _whole: Callable[[Collection[str]], Deviation] = field(repr=False, compare=False)

    def worst(self, n: int = 5) -> tuple[NodeError, ...]:
        """The `n` most sensitive nodes."""
        return self.rows[:n]

    def keep_list(self, tolerance: float) -> KeepList:
        """The part of the ranking that must stay float32 for the whole model's relative error to be at most `tolerance`.

        Each trial reduces the whole model and runs it on all batches. The search doubles the number of kept nodes until
        the model passes, then halves the gap. The returned list passes, and a list with one node less fails. Errors of several
        nodes can cancel, so a much shorter list may pass by chance; the search does not look for it.

        Args:
            tolerance: relative error of the outputs, such as 0.01.

        Returns:
            The list; all ranked nodes and ``met=False`` if even that is not enough, as when only some nodes were ranked.

        Raises:
            ValueError: `tolerance` is not positive.
        """
        if not tolerance > 0:
            raise ValueError(f"tolerance must be positive, got {tolerance}")
        tried: dict[int, Deviation] = {}

        def passes(count: int) -> bool:
            tried[count] = self._whole([row.node for row in self.rows[:count]])
            return tried[count].relative_error <= tolerance

        failing, passing = -1, 0
        while not passes(passing) and passing < len(self.rows):
            failing, passing = passing, min(max(1, 2 * passing), len(self.rows))
        while passing - failing > 1:
            middle = (failing + passing) // 2
            failing, passing = (failing, middle) if passes(middle) else (middle, passing)
        reached = tried[passing]
        return KeepList(
            tuple(row.node for row in self.rows[:passing]),
            reached,
            tolerance,
            reached.relative_error <= tolerance,
            {count: found.relative_error for count, found in tried.items()},
        )

    def plot(self, n: int = 20) -> style.Figure:
        """The worst `n` nodes as horizontal bars, relative error on a logarithmic axis, each labeled in percent and dB.

        A node that makes outputs overflow has a bar over the full width, in another color. The title names the worst one.
        """
        rows = self.worst(n)
        errors = np.array([row.deviation.relative_error for row in rows])
        drawable = errors[np.isfinite(errors) & (errors > 0)]
        decades = np.log10(drawable) if len(drawable) else np.array([-6.0, -1.0])
        low, high = 10 ** np.floor(decades.min() - 0.1), 10 ** np.ceil(decades.max() + 0.5)
        figure, axes = style.subplots(1.1 + 0.22 * max(len(rows), 2))
        for place, row in enumerate(rows):
            overflows = row.deviation.nonfinite > 0
            axes.barh(
                place, high if overflows else max(errors[place], low), color=style.color(1 if overflows else 0), height=0.7
            )
            at, inside = (low * 1.05, True) if overflows else (max(errors[place], low), False)
            color = "white" if inside else "black"
            axes.annotate(
                _label(row), (at, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8, color=color
            )
        axes.set_yticks(range(len(rows)), [_shortened(row) for row in rows], fontsize=8)
        axes.invert_yaxis()
        axes.set_xscale("log")
        axes.set_xlim(low, high)
        axes.set_xlabel("relative error of the outputs, L2 (log)")
        figure.suptitle(_takeaway(self), fontsize=10, fontweight="bold")  # over the names too: it is longer than the axes
        return figure

    def _repr_html_(self) -> str:
        columns = ("", "node", "operator", "relative error", "SQNR (dB)", "largest error", "answers changed", "not finite")
        rows: list[tuple[dict[str, str], tuple[str, ...]]] = []
        for rank, row in enumerate(self.worst(_SHOWN), 1):
            d = row.deviation
            figures = (f"{d.relative_error:.3g}", f"{d.sqnr_db:.1f}", f"{d.max_abs_error:.3g}", f"{d.argmax_changes:.1%}")
            rows.append(({}, (str(rank), row.node, row.operator, *figures, str(d.nonfinite or ""))))
        caption = f"{self.dtype}: each node reduced alone, the worst {len(rows)} of {len(self.rows)}"
        return notebook_table(caption, dict.fromkeys(columns, LEFT), rows)


def _label(row: NodeError) -> str:
    if row.deviation.nonfinite:
        return f"{row.deviation.nonfinite} output values NaN or infinite"
    if row.deviation.relative_error == 0:
        return "no error"
    return f"{in_percent(row.deviation.relative_error)}, {row.deviation.sqnr_db:.0f} dB"


def _shortened(row: NodeError) -> str:
    return row.node if len(row.node) <= _LONGEST else "..." + row.node[-_LONGEST:]


def _takeaway(found: Sensitivity) -> str:
    lost = sum(row.deviation.nonfinite > 0 for row in found.rows)
    if lost:
        return f"{found.dtype}: {lost} of {len(found.rows)} nodes alone make the outputs overflow, first {_shortened(found.rows[0])}"
    if not found.rows or found.rows[0].deviation.relative_error == 0:
        return f"{found.dtype}: no node changes the outputs"
    errors = [row.deviation.relative_error for row in found.rows]
    first, others = _shortened(found.rows[0]), errors[0] / max(float(np.median(errors)), 1e-30)
    return f"{found.dtype}: {first} alone leaves {decibels(errors[0]):.0f} dB, {others:.0f} times the median node's error"


def in_percent(share: float) -> str:
    """Two significant digits, and never an exponent for a large one: ``0.21 %``, ``4.5 %``, ``210 %``."""
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 99.5 else f"{value:.2g} %"


def sensitivity(
    model: onnx.ModelProto | str | os.PathLike[str],
    feeds: Feeds | Iterable[Feeds],
    *,
    dtype: DType = "fp16",
    ranges: Mapping[str, float] | None = None,
    nodes: Collection[str] | None = None,
    progress: bool = True,
) -> Sensitivity:
    """Reduce each node alone, run the model, and rank the nodes by the error in the final outputs.

    ONNX Runtime runs everything, with one thread: equal calls give equal figures. Nodes that the reduction does not change
    are not ranked: for FP16, nodes on integers; for INT8, all except Conv, Gemm and MatMul with a constant weight.

    Args:
        model: a file or a model in memory, in float32, with a unique name for each node. It is not changed.
        feeds: one batch of inputs by name, or several. Use real data, because random inputs activate other channels.
        dtype: "fp16" and "bf16" as `cast` reduces, "int8" as `insert_qdq` does.
        ranges: for "int8", the largest magnitude of each activation, as from `calibrate`.
        nodes: rank only these.
        progress: show a bar on stderr.

    Raises:
        CourseError: an unknown dtype; no ranges for INT8; nodes that are unknown, unnamed or of the same name; no batch; outputs
            that are not finite in float32 already, or none of a float type; what `cast` or `insert_qdq` reject.
        EngineError: ONNX Runtime rejects the model or a batch.
    """
    from course_lib.precision import cast

    batches = [feeds] if isinstance(feeds, Mapping) else list(feeds)
    if not batches:
        raise CourseError("there is no batch to measure on: give one or more real ones")
    reduce = reduction(dtype, ranges)
    model = open_model(model)
    names = _unique_names(model)
    if nodes is not None and (unknown := set(nodes) - set(names)):
        raise CourseError(f"nodes names {min(unknown)!r}, which the model does not have")
    # With every node kept a cast changes nothing, but settles the types, the opset, and which models are rejected.
    model = cast(model, "bf16" if dtype == "bf16" else "fp16", keep=names)
    reference = _reference(model, batches)

    def measured(run: Callable[[Feeds], Outputs]) -> Deviation:
        return deviation(reference, [_floats(run(batch)) for batch in batches])

    def whole(keep: Collection[str]) -> Deviation:
        kept = too_large <= set(keep)
        return measured(runner(reduce(model, keep))) if kept else _all_lost(reference)

    one = OneNode(model)
    rows: list[NodeError] = []
    too_large: set[str] = set()  # nodes with a weight beyond the type's largest number, which `cast` rejects
    chosen = [node for node in model.graph.node if nodes is None or node.name in nodes]
    for node in track(chosen, f"sensitivity to {dtype}", shown=progress):
        alone = one.cut(node.name)
        if weights_overflow(alone, dtype):
            too_large.add(node.name)
            rows.append(NodeError(node.name, node.op_type, _all_lost(reference)))
            continue
        reduced = reduce(alone, ())
        if len(reduced.graph.node) > 1:  # rounding adds nodes of its own
            rows.append(NodeError(node.name, node.op_type, measured(one.session(node.name, reduced))))
    rows.sort(key=lambda row: (-row.deviation.nonfinite, -row.deviation.relative_error))
    return Sensitivity(dtype, tuple(rows), whole)


def _unique_names(model: onnx.ModelProto) -> list[str]:
    names = [node.name for node in model.graph.node]
    if "" in names:
        kind = model.graph.node[names.index("")].op_type
        raise CourseError(f"a {kind} node has no name, so it cannot be kept or ranked: give every node its own name")
    if repeated := next((name for place, name in enumerate(names) if name in names[:place]), None):
        raise CourseError(f"two nodes are called {repeated!r}: give every node its own name")
    return names


def _reference(model: onnx.ModelProto, batches: list[Feeds]) -> list[Outputs]:
    run = runner(model)
    reference = [_floats(run(batch)) for batch in batches]
    if not reference[0]:
        raise CourseError("the model has no output of a float type: there is no error to measure")
    if not all(np.isfinite(output).all() and output.size for outputs in reference for output in outputs):
        raise CourseError("the float32 model's own outputs are empty or not finite on these batches: choose other batches")
    return reference


def _floats(outputs: Outputs) -> Outputs:
    return tuple(output for output in outputs if np.issubdtype(output.dtype, np.floating))


def _all_lost(reference: list[Outputs]) -> Deviation:
    return deviation(reference, [tuple(np.full_like(output, np.nan) for output in outputs) for outputs in reference])
