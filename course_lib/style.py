"""How every figure of the course looks: one size, one set of colours that colour-blind readers can tell apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito (2008), Color Universal Design
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def figure(width: float = 7.0, height: float = 3.0) -> Figure:
    """An empty figure in inches that a notebook shows when it is a cell's value.

    It does not belong to pyplot's global list: nothing leaks, and any thread may draw.
    """
    import matplotlib
    from matplotlib.figure import Figure

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            return png(self)

    matplotlib.rcParams.update(
        {"axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10, "axes.titleweight": "bold", "font.size": 9}
    )
    return Shown(figsize=(width, height), dpi=110, layout="constrained")


def colour(index: int) -> str:
    """The colour of the series with this index."""
    return COLOURS[index % len(COLOURS)]


def png(drawn: Figure) -> bytes:
    """The figure as a PNG file."""
    from io import BytesIO

    buffer = BytesIO()
    drawn.savefig(buffer, format="png")
    return buffer.getvalue()
