"""Lecture 6: figures that compare calibrations, and one Q/DQ pair at any place in a graph."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from course_lib import style
from course_lib.errors import CourseError
from course_lib.precision.calibration.calibrators import LEVELS, UNSEEN, divergence, without_zeros
from course_lib.precision.quantization.qdq import scale_of

if TYPE_CHECKING:
    from course_lib.precision.calibration.histogram import Histogram


def candidate_figure(histogram: Histogram, kept: Sequence[int]) -> style.Figure:
    """Draw P, the observed distribution, and Q, its version with 128 levels, for some candidate thresholds of the entropy calibrator.

    Args:
        histogram: histogram of one tensor.
        kept: for each picture, the number of bins below the threshold: 128 to ``histogram.used``.
    """
    counts = without_zeros(histogram)
    drawn, panels = style.subplots(0.9 + 1.3 * len(kept), len(kept), sharex=True, squeeze=False)
    scores = {bins: divergence(counts, bins) for bins in kept}
    for axes, bins in zip(panels[:, 0], kept, strict=True):
        inside = counts[:bins]
        seen = inside.copy()
        seen[-1] += counts[bins:].sum()
        level = np.arange(bins) * LEVELS // bins
        filled = np.maximum(np.bincount(level, weights=inside > 0, minlength=LEVELS), 1)
        spread = np.where(inside > 0, (np.bincount(level, weights=inside, minlength=LEVELS) / filled)[level], 0)
        spread[(seen > 0) & (spread == 0)] = UNSEEN
        edges = histogram.bin_width * np.arange(bins + 1)
        axes.stairs(seen / seen.sum(), edges, fill=True, color="#BBBBBB", label="P: seen, clipped")
        axes.stairs(spread / spread.sum(), edges, color=style.color(0), lw=0.8, label="Q: 128 levels")
        axes.plot(edges[-1], seen[-1] / seen.sum(), "o", ms=5, color=style.color(1), label="P's last bin")
        axes.set_yscale("log")
        axes.text(1, 1, f"threshold {edges[-1]:.3g}: KL {scores[bins]:.3g}", ha="right", va="top", transform=axes.transAxes)
        axes.set_ylabel("share (log)")
    axes.set_xlabel("absolute value")
    style.name_colors(drawn.axes[0])
    best = min(scores, key=lambda bins: scores[bins])
    drawn.suptitle(f"Of these, {histogram.bin_width * best:.3g} has the smallest divergence")
    return drawn


def channel_figure(weight: np.ndarray, name: str) -> style.Figure:
    """Draw the largest magnitude in each output channel of a weight, and the largest one of the whole weight.

    Args:
        weight: array of any shape; axis 0 counts output channels.
        name: name of the layer.
    """
    ranges = np.sort(np.abs(weight).reshape(len(weight), -1).max(1))[::-1]
    steps = 127 * ranges / ranges[0]
    drawn, axes = style.subplots(3.0)
    axes.bar(np.arange(len(steps)), steps, color=style.color(0))
    axes.axhline(127, color=style.color(1), lw=1.6)
    axes.set(
        xlabel=f"output channel of {name}, largest range first",
        ylabel="steps of INT8 used (of 127)",
        xlim=(-0.7, len(steps) - 0.3),
    )
    axes.set_title(f"With one scale, the channel of smallest range uses {steps[-1]:.0f} of 127 steps")
    return drawn


def quality_map(results: Mapping[str, Mapping[str, float]]) -> style.Figure:
    """Draw one row per method and one column per data set, with the SQNR as color and number. Higher is better.

    Args:
        results: SQNR in dB by data set and then by method; all rows have the same methods.
    """
    methods = list(next(iter(results.values())))
    values = np.array([[row[method] for row in results.values()] for method in methods])
    drawn, axes = style.subplots(1.3 + 0.36 * len(methods))
    shown = axes.imshow(values, aspect="auto", cmap="viridis")
    middle = (values.min() + values.max()) / 2
    for (row, column), value in np.ndenumerate(values):
        ink = "white" if value < middle else style.BLACK_ON_COLOR
        axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=ink)
    axes.set_xticks(range(len(results)), [textwrap.fill(name, 8) for name in results])
    axes.set_yticks(range(len(methods)), methods)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    drawn.colorbar(shown, label="SQNR (dB)")
    worst = values.min(1)
    best = int(worst.argmax())
    axes.set_title(f"In its worst case {methods[best]} is the best of these: {worst[best]:.1f}", loc="left")
    return drawn


def sample_figure(results: Mapping[str, Mapping[int, Sequence[float]]], unit: str) -> style.Figure:
    """A quantity over the number of calibration samples: the median of several random choices, and a band from the lowest to the highest.

    Args:
        results: method, then number of samples, to one value for each random choice.
        unit: unit of the values.
    """
    drawn, axes = style.subplots(3.2)
    widths = {}
    for index, (method, by_count) in enumerate(results.items()):
        counts = sorted(by_count)
        values = np.array([by_count[count] for count in counts])
        axes.plot(counts, np.median(values, 1), "o-", ms=3, color=style.color(index), label=method)
        axes.fill_between(counts, values.min(1), values.max(1), color=style.color(index), alpha=0.2, lw=0)
        widths[method] = {count: float(np.ptp(row)) for count, row in zip(counts, values, strict=True)}
    axes.set_xscale("log")
    axes.set(xlabel="calibration samples (log); band: from the lowest to the highest random choice", ylabel=unit)
    style.name_lines(axes)
    few, many = min(counts), max(counts)
    spread = {count: max(width[count] for width in widths.values()) for count in (few, many)}
    axes.set_title(
        f"Random choices of {few} differ by up to {spread[few]:.3g}, of {many} by up to {spread[many]:.3g}", loc="left"
    )
    return drawn


def agreement_figure(rows: Sequence[Mapping[str, Any]]) -> style.Figure:
    """Draw the ratio of the course's calibrated ranges to TensorRT's ranges: median and extremes over all tensors.

    Args:
        rows: rows of the record ``calibrators_h200``: ``size``, ``kind`` and ``ours_over_tensorrt`` with median, min and max.
    """
    drawn, axes = style.subplots(0.9 + 0.4 * len(rows))
    for place, row in enumerate(rows):
        ratio = row["ours_over_tensorrt"]
        axes.plot([ratio["min"], ratio["max"]], [place, place], color=style.color(0), lw=2)
        axes.plot([ratio["median"]], [place], "o", color=style.color(1), ms=7)
    axes.axvline(1, color="#777777", lw=1, ls="--")
    style.name_rows(axes, [f"{row['kind']}, {row['size']} ({row['tensors']} tensors)" for row in rows])
    axes.set(xlabel="our range / TensorRT's; dot: median, line: extremes over the tensors")
    off = max(abs(row["ours_over_tensorrt"]["median"] - 1) for row in rows)
    axes.set_title(f"The medians agree within {100 * off:.1f} %", loc="left")
    return drawn


def quantize_tensor(model: onnx.ModelProto, tensor: str, amax: float) -> onnx.ModelProto:
    """A copy of a model in which all readers of one tensor get its INT8 copy, and so does the caller if it is an output.

    Args:
        model: a float32 model, possibly with pairs. It is not changed.
        tensor: written by a node.
        amax: the largest magnitude that INT8 must represent.

    Raises:
        CourseError: no node writes the tensor, a pair rounds it already, or the range is not positive and finite.
    """
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    graph = copied.graph
    place = next((index for index, node in enumerate(graph.node) if tensor in node.output), None)
    if place is None:
        raise CourseError(f"no node of the model writes the tensor {tensor!r}")
    if any(node.op_type == "QuantizeLinear" and node.input[0] == tensor for node in graph.node):
        raise CourseError(f"the tensor {tensor!r} has a pair already")
    exact, rounded = tensor, f"{tensor}/dequantize"
    if any(output.name == tensor for output in graph.output):  # the caller knows it by this name, so the pair's result gets it
        exact, rounded = f"{tensor}/exact", tensor
        outputs = graph.node[place].output
        outputs[list(outputs).index(tensor)] = exact
    for node in graph.node:
        node.input[:] = [rounded if name == tensor else name for name in node.input]
    parameters = [f"{tensor}/scale", f"{tensor}/zero_point"]
    for name, value in zip(parameters, (scale_of(amax), np.zeros((), np.int8)), strict=True):
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    integers = f"{tensor}/quantize"
    graph.node.insert(place + 1, helper.make_node("QuantizeLinear", [exact, *parameters], [integers], name=integers))
    dequantize = helper.make_node("DequantizeLinear", [integers, *parameters], [rounded], name=f"{tensor}/dequantize")
    graph.node.insert(place + 2, dequantize)
    onnx.checker.check_model(copied)
    return copied
