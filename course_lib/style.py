"""How every figure of the course looks: one size, one set of colors that color-blind readers can tell apart.

Also how long names look in its tables.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

# Okabe and Ito (2008), Color Universal Design
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def figure(width: float = 7.0, height: float = 3.0) -> Figure:
    """An empty figure in inches that a notebook shows when it is a cell's value.

    It does not belong to pyplot's global list: nothing leaks, and any thread may draw.
    """
    import matplotlib
    from matplotlib.figure import Figure

    class Shown(Figure):
        def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict[str, str], dict[str, object]]:
            form, picture = picture_for_output(self)
            return {form: picture, "text/plain": f"<figure: {alt_text(self)}>"}, {form: {"alt": alt_text(self)}}

    matplotlib.rcParams.update(
        {"axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 10, "axes.titleweight": "bold", "font.size": 9}
    )
    return Shown(figsize=(width, height), dpi=110, layout="constrained")


def color(index: int) -> str:
    """The color of the series with this index."""
    return COLORS[index % len(COLORS)]


def alt_text(drawn: Figure) -> str:
    """What the figure shows, in words: its title, the titles of its axes, and what the axes count."""
    titles = [drawn.get_suptitle()]
    labels = []
    for axes in drawn.axes:
        titles += [axes.get_title(loc=loc) for loc in ("left", "center", "right")]
        labels += [" over ".join(label for label in (axes.get_ylabel(), axes.get_xlabel()) if label)]
    said = [" ".join(text.replace("$", "").split()) for text in dict.fromkeys(titles + labels) if text]
    return ". ".join(said) or "a figure without a title"


def breakable_html(name: str) -> Markup:
    """The name of a kernel or a node as HTML that may break between its parts.

    Compilers write names of 80 characters without a space. In a table such a name would leave one word per line to the other columns.
    """
    from markupsafe import Markup

    return Markup("<wbr>").join(re.split(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[/_.+:,])(?=[^/_.+:,])", name))


def picture_for_output(drawn: Figure) -> tuple[str, str]:
    """The MIME type and the content of the figure in a notebook: PNG in base64, or SVG where COURSE_FIGURES is "svg", as in the book."""
    from base64 import b64encode

    if os.environ.get("COURSE_FIGURES") == "svg":
        return "image/svg+xml", _saved(drawn, "svg").decode()
    return "image/png", b64encode(png(drawn)).decode()


def png(drawn: Figure) -> bytes:
    """The figure as a PNG file."""
    return _saved(drawn, "png")


def _saved(drawn: Figure, form: str) -> bytes:
    from io import BytesIO

    import matplotlib

    buffer = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "course"}):  # equal figures are equal files
        drawn.savefig(buffer, format=form, metadata={"Date": None, "Title": alt_text(drawn)} if form == "svg" else None)
    return buffer.getvalue()
