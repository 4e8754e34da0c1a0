"""Pictures of RoPE: the angles of a head, what attention sees of them, and how far a kernel is from exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from course_lib import style
from course_lib.plugins.reference import rope, rope_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# half the distance from 1 to the next number: what one rounding can cost, relative to the number
ROUNDING = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def rotation_figure(pairs: Sequence[int], *, positions: int = 12, head_size: int = 64) -> Figure:
    """A dial for each pair of a head: where the pair (1, 0) points at each position.

    Args:
        pairs: their numbers, below ``head_size / 2``.
        positions: of tokens, from 0 on.
    """
    cos, sin = rope_tables(positions, head_size)
    figure = style.figure(2.0 * len(pairs), 2.6)
    for place, pair in enumerate(pairs):
        axes = figure.add_subplot(1, len(pairs), place + 1, aspect="equal")
        axes.plot(*(f(np.linspace(0, 2 * np.pi, 100)) for f in (np.cos, np.sin)), color="#cccccc", lw=0.8)
        for position in range(positions):
            shade = style.colour(0), 0.25 + 0.75 * position / max(positions - 1, 1)
            axes.plot([0, cos[position, pair]], [0, sin[position, pair]], color=shade[0], alpha=shade[1], lw=1.4)
        last = positions - 1
        axes.text(1.14 * cos[last, pair], 1.14 * sin[last, pair], str(last), ha="center", va="center", fontsize=8)
        axes.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35), xticks=[], yticks=[], xlabel=f"pair {pair}")
        for spine in axes.spines.values():
            spine.set_visible(False)
    title = f"The first pairs of a head turn fast, the last ones hardly (positions 0 to {positions - 1})"
    figure.suptitle(title, fontsize=10, weight="bold")
    return figure


def relative_figure(query: np.ndarray, key: np.ndarray, *, positions: int = 48) -> Figure:
    """The product of one query and one key for all pairs of positions, without and with RoPE.

    Args:
        query, key: shape ``(head_size,)``.
    """
    tables = rope_tables(positions, len(query))
    repeated = [np.broadcast_to(vector, (1, positions, 1, len(query))) for vector in (query, key)]
    plain, turned = (
        [array[0, :, 0].astype(np.float64) for array in arrays]
        for arrays in (repeated, [rope(array, *tables) for array in repeated])
    )
    scores = {"as they are": plain[0] @ plain[1].T, "with RoPE": turned[0] @ turned[1].T}
    limit = max(np.abs(score).max() for score in scores.values())
    figure = style.figure(7.0, 3.2)
    for place, (name, score) in enumerate(scores.items()):
        axes = figure.add_subplot(1, 2, place + 1)
        picture = axes.imshow(score, cmap="RdBu_r", vmin=-limit, vmax=limit)
        axes.set(xlabel="position of the key", ylabel="position of the query")
        axes.set_title(name, weight="normal", fontsize=9)
    figure.colorbar(picture, ax=figure.axes, label="score")
    figure.suptitle(
        "After RoPE a score depends on the distance of two tokens: constant along diagonals", fontsize=10, weight="bold"
    )
    return figure


def rounding_errors(y: np.ndarray, exact: np.ndarray, *, interleaved: bool = False) -> np.ndarray:
    """Error of each number of `y` in roundings of its dtype, relative to the length of the pair that it belongs to.

    Args:
        y: what a kernel made; float32, float16 or bfloat16.
        exact: the same in float64.
    """
    half = exact.shape[-1] // 2
    a, b = (exact[..., ::2], exact[..., 1::2]) if interleaved else (exact[..., :half], exact[..., half:])
    length = np.hypot(a, b)
    whole = np.repeat(length, 2, axis=-1) if interleaved else np.concatenate([length, length], axis=-1)
    return np.abs(y.astype(np.float64) - exact) / (whole * ROUNDING[y.dtype.name])


def rounding_figure(errors: Mapping[str, np.ndarray]) -> Figure:
    """How the errors of numbers are spread, in roundings of each dtype.

    Args:
        errors: dtype, as named by NumPy, and what `rounding_errors` gave for it.
    """
    figure = style.figure(7.0, 2.8)
    axes = figure.add_subplot()
    top = max(1.1, *(float(error.max()) for error in errors.values()))
    for place, (name, error) in enumerate(errors.items()):
        counts, edges = np.histogram(error, bins=60, range=(0, top))
        axes.stairs(100 * counts / error.size, edges, color=style.colour(place), label=f"{name}, at most {error.max():.2f}")
    axes.axvline(1, color="grey", ls="--", lw=0.8)
    axes.set(xlabel="error of a number, in roundings of its type for its pair's length", ylabel="share of numbers (%)")
    axes.set_title(f"No number is further off than {max(error.max() for error in errors.values()):.2f} roundings")
    axes.legend(fontsize=8, frameon=False)
    return figure
