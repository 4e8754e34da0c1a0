"""Figures of RoPE: the angles of a head, their effect on attention, and the error and speed of a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from course_lib import style
from course_lib.plugins.reference import rope, rope_tables

# half the distance from 1 to the next number: what one rounding can cost, relative to the number
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def rotation_figure(pairs: Sequence[int]) -> style.Figure:
    """Draw a dial for each pair of a head, with the direction of the pair (1, 0) at the first positions.

    Args:
        pairs: their numbers in a head of 64 values, below 32.
    """
    positions = 12
    cos, sin = rope_tables(positions, 64)
    figure, panels = style.subplots(2.0, 1, len(pairs), squeeze=False, subplot_kw={"aspect": "equal"})
    for axes, pair in zip(panels[0], pairs, strict=True):
        axes.plot(*(f(np.linspace(0, 2 * np.pi, 100)) for f in (np.cos, np.sin)), color="#cccccc", lw=0.8)
        for position in range(positions):
            tip, alpha = (cos[position, pair], sin[position, pair]), 0.25 + 0.75 * position / (positions - 1)
            axes.plot([0, tip[0]], [0, tip[1]], color=style.color(0), alpha=alpha, lw=1.4)
        last = positions - 1
        axes.text(1.14 * cos[last, pair], 1.14 * sin[last, pair], str(last), ha="center", va="center", fontsize=8)
        axes.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), xticks=[], yticks=[], xlabel=f"pair {pair}")
        axes.spines[:].set_visible(False)
    figure.suptitle(f"The first pairs of a head turn fast, the last ones hardly (positions 0 to {positions - 1})")
    return figure


def relative_figure(query: np.ndarray, key: np.ndarray) -> style.Figure:
    """The product of one query and one key for all pairs of positions, without and with RoPE.

    Args:
        query, key: shape ``(head_size,)``.
    """
    positions = 48
    tables = rope_tables(positions, len(query))
    repeated = [np.broadcast_to(vector, (1, positions, 1, len(query))) for vector in (query, key)]
    turned = [rope(array, *tables) for array in repeated]
    plain, rotated = (q[0, :, 0] @ k[0, :, 0].T for q, k in (repeated, turned))
    scores = {"as they are": plain, "with RoPE": rotated}
    limit = max(np.abs(score).max() for score in scores.values())
    figure, panels = style.subplots(3.2, 1, 2)
    for axes, (name, score) in zip(panels, scores.items(), strict=True):
        picture = axes.imshow(score, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axes.set(xlabel="position of the key", ylabel="position of the query")
        axes.set_title(name, weight="normal", fontsize=9)
    figure.colorbar(picture, ax=figure.axes, label="score")
    figure.suptitle("After RoPE a score depends on the distance of two tokens: constant along diagonals")
    return figure


def rounding_errors(y: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Error of each number of `y`, in roundings of its dtype, relative to the length of its pair.

    Args:
        y: the output of a kernel for pairs in halves; float32, float16 or bfloat16.
        exact: the same in float64.
    """
    a, b = np.split(exact, 2, axis=-1)
    length = np.tile(np.hypot(a, b), 2)
    return np.abs(y.astype(np.float64) - exact) / (length * ROUNDING[y.dtype.name])


def rounding_figure(errors: Mapping[str, np.ndarray]) -> style.Figure:
    """Draw the distribution of the errors, in roundings of each dtype.

    Args:
        errors: dtype, as named by NumPy, and what `rounding_errors` gave for it.
    """
    figure, axes = style.subplots(2.8)
    worst = max(float(error.max()) for error in errors.values())
    for place, (name, error) in enumerate(errors.items()):
        counts, edges = np.histogram(error, bins=60, range=(0, max(1.1, worst)))
        axes.stairs(100 * counts / error.size, edges, color=style.color(place), label=f"{name}, at most {error.max():.2f}")
    axes.axvline(1, color="gray", ls="--", lw=0.8)
    axes.set(xlabel="error of a number, in roundings of its type for its pair's length", ylabel="share of numbers (%)")
    axes.set_title(f"No number is further off than {worst:.2f} roundings")
    style.name_colors(axes)
    return figure


def speed_figure(rows: Sequence[Mapping[str, Any]]) -> style.Figure:
    """Draw recorded speeds of the kernel, of a copy and of ``torch.compile``.

    Args:
        rows: rows of the record ``rope_h200``: shape, dtype, and ratios of speeds within one run in ``speed_over``, the one over a copy
            under the name of the faster way to copy.
    """
    names = [f"{' x '.join(map(str, row['shape']))}, {row['dtype']}" for row in rows]
    over = [row["speed_over"] for row in rows]
    copy = [(one.get("copy") or one["negation"])["median"] for one in over]
    compiled = [one["compiled"]["median"] for one in over]
    figure, panels = style.subplots(0.9 + 0.3 * len(rows), 1, 2, sharey=True)
    for axes, (label, values) in zip(panels, (("the faster copy", copy), ("torch.compile", compiled)), strict=True):
        axes.barh(range(len(rows)), values, color=style.color(0), height=0.65)
        for row, value in enumerate(values):
            axes.text(0.03, row, f"{value:.2f}", va="center", color="white", fontsize=8)
        axes.axvline(1, color="gray", ls="--", lw=0.8)
        axes.set(xlabel=f"speed over\n{label}", xlim=(0, 1.3))
    style.name_rows(panels[0], names)
    figure.suptitle(f"{min(copy):.2f} to {max(copy):.2f} of a copy's speed: it depends on the shape")
    return figure
