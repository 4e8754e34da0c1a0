"""How every figure of the course looks: one size, one set of colors that color-blind readers can tell apart.

Also how long names look in its tables.
"""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.text import Text

# Okabe and Ito (2008), Color Universal Design
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
BLACK_ON_COLOR = "#000001"  # of text on a light area, which stays black where the page is dark


WIDTH = 4.1  # inches; on a phone, text of 9 points is still 11 pixels high
_PAD = 0.06  # inches of paper around what is drawn; a title begins there, too


def figure(height: float = 3.0, *, width: float = WIDTH) -> Figure:
    """An empty figure in inches that a notebook shows when it is a cell's value.

    It does not belong to pyplot's global list: nothing leaks, and any thread may draw.

    Raises:
        ValueError: it is too wide for a phone.
    """
    import matplotlib
    from matplotlib.figure import Figure

    if width > WIDTH:
        raise ValueError(f"a figure may be {WIDTH:g} inches wide, got {width:g}: stack its panels and make it taller")

    class Shown(Figure):
        def suptitle(self, t: str, **settings: Any) -> Text:  # the takeaway begins where the figure begins, and wraps
            title = super().suptitle(t, **{"x": 0.01, "ha": "left", "wrap": True, **settings})
            title._get_wrap_line_width = lambda: 0.97 * self.bbox.width  # type: ignore[attr-defined]  # its own ends at the edge
            return title

        def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict[str, str], dict[str, object]]:
            form, picture = picture_for_output(self)
            return {form: picture, "text/plain": f"<figure: {alt_text(self)}>"}, {form: {"alt": alt_text(self)}}

    matplotlib.rcParams.update(
        {
            "axes.facecolor": "none",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 10,
            "axes.titleweight": "bold",
            "figure.constrained_layout.h_pad": _PAD,
            "figure.constrained_layout.w_pad": _PAD,
            "font.size": 9,
            "figure.titlesize": 10,
            "figure.titleweight": "bold",
        }
    )
    return Shown(figsize=(width, height), dpi=110, layout="constrained")


def subplots(
    height: float = 3.0, rows: int = 1, columns: int = 1, *, width: float = WIDTH, **settings: Any
) -> tuple[Figure, Any]:
    """An empty figure and its axes, as from the function of this name in pyplot."""
    drawn = figure(height, width=width)
    return drawn, drawn.subplots(rows, columns, **settings)


def name_rows(axes: Axes, names: Sequence[str], size: float = 9) -> None:
    """Name the rows of bars or dots, from the top to the bottom."""
    axes.set_yticks(range(len(names)), names, fontsize=size)
    axes.set_ylim(len(names) - 0.4, -0.6)
    for panel in axes.get_shared_y_axes().get_siblings(axes):
        panel.tick_params(axis="y", length=0)


def figure_width(axes: Axes) -> float:
    """Inches from edge to edge of the figure that has these axes."""
    return float(axes.figure.bbox.width / axes.figure.dpi)


def color(index: int) -> str:
    """The color of the series with this index."""
    return COLORS[index % len(COLORS)]


def name_lines(axes: Axes) -> None:
    """Write the label of each line at its right end, in place of a legend. Call it last: it reads the limits of the axes.

    Args:
        axes: with at most a few lines; those without a label stay unnamed.
    """
    import textwrap

    import numpy as np

    axes.autoscale_view()  # its limits may be those before the lines
    letters, size = 14, 9  # of a line of a label, and of the text in points
    places: list[tuple[float, str, Any]] = []
    for line in axes.get_lines():
        points = np.column_stack([line.get_xdata(), line.get_ydata()]).astype(float)
        points = line.get_transform().transform(points[np.isfinite(points).all(1)])
        if len(points) and not str(line.get_label()).startswith("_"):
            tip = axes.transAxes.inverted().transform(points[points[:, 0].argmax()])
            places.append((float(min(max(tip[1], 0), 1)), textwrap.fill(str(line.get_label()), letters), line.get_color()))
    row = 1.4 * size / 72 * axes.figure.dpi / axes.bbox.height  # of the height of the axes
    places.sort(key=lambda place: place[0])
    heights = [row * (text.count("\n") + 1) for _, text, _ in places]
    below = -math.inf
    lows: list[float] = []  # each label as low as its line and the label below allow
    for (end, _, _), height in zip(places, heights, strict=True):
        lows.append(max(end - height / 2, below))
        below = lows[-1] + height
    excess = max(0.0, below - 1 - row)
    for (_, text, hue), low, height in zip(places, lows, heights, strict=True):
        axes.annotate(text, (1, low + height / 2 - excess), (5, 0), xycoords="axes fraction", textcoords="offset points",
                      va="center", fontsize=size, color=_against(hue, white=True))  # fmt: skip


_LETTERS = 13.5  # of 9 points in an inch of a figure's width


def name_colors(axes: Axes, handles: Sequence[Artist] | None = None) -> None:
    """Write the label of each color above the axes, in that color: for bars and dots, which have no end where a name could be.

    Args:
        axes: its labeled artists are named.
        handles: other artists to name.
    """
    import numpy as np
    from matplotlib.transforms import blended_transform_factory

    handles = axes.get_legend_handles_labels()[0] if handles is None else handles
    letters = [len(str(handle.get_label())) + 4 for handle in handles]
    room = int(_LETTERS * figure_width(axes))
    rows = {columns: sum(map(max, np.array_split(letters, columns))) for columns in range(1, len(letters) + 1)}
    columns = max(columns for columns, row in rows.items() if columns == 1 or row <= room)
    row = rows[columns]
    long = axes.axison and row > 0.6 * room  # it begins at the edge, below the names of rows
    sides = axes.figure.transFigure if long else axes.transAxes
    legend = axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, frameon=False, fontsize=9,
                         bbox_transform=blended_transform_factory(sides, axes.transAxes),
                         handlelength=0.9, handletextpad=0.4, columnspacing=1.2, borderaxespad=0.2)  # fmt: skip
    for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True):
        text.set_color(_against(_hue(handle), white=True))


def _hue(handle: Any) -> Any:
    """The color of a line, of a filled area, or of the edge of an empty one."""
    from matplotlib.colors import to_rgba_array

    hues = [
        to_rgba_array(getattr(handle, name)())
        for name in ("get_color", "get_facecolor", "get_edgecolor")
        if hasattr(handle, name)
    ]
    return next(hue[0] for hue in hues if len(hue) and hue[0][3])


def mark_values(axes: Axes, values: Mapping[str, float], colors: Sequence[str]) -> None:
    """A vertical line at each value with its name to the right, above the lines that the name would cross. Call it last.

    Args:
        axes: they grow to the right where a name needs it.
        values: by name, which may have several lines of text.
        colors: one for each value, in the order of the values.
    """
    places = {
        name: axes.transAxes.inverted().transform(axes.transData.transform((value, 1)))[0] for name, value in values.items()
    }
    inch = axes.figure.dpi / axes.bbox.width  # as a share of the axes
    room = {name: 1 - 5.4 / 72 * max(map(len, name.split("\n"))) * inch for name in values}
    end = axes.transAxes.transform((max([1.0, *(place / room[name] for name, place in places.items())]), 0))
    axes.set_xlim(right=axes.transData.inverted().transform(end)[0])
    row = 1.3 * 9 / 72 * axes.figure.dpi / axes.bbox.height
    top = 0.99
    for (name, value), hue in sorted(zip(values.items(), colors, strict=True), key=lambda mark: mark[0][1]):
        axes.axvline(value, ymax=top, color=hue, lw=1.8)
        axes.annotate(name, (value, top), (4, 0), xycoords=axes.get_xaxis_transform(), textcoords="offset points",
                      va="top", fontsize=9, color=_against(hue, white=True))  # fmt: skip
        top -= row * (name.count("\n") + 1)


def _against(hue: Any, *, white: bool) -> str:
    """The color, darker until it can be read as text on white, or lighter until it can be read on a dark page."""
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = to_rgb(hue)
    while True:
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (red, green, blue)]
        luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        if (luminance <= 0.18) if white else (luminance >= 0.22):  # 4.5 to 1 against white, and against _DARK
            return to_hex((red, green, blue))
        red, green, blue = (0.95 * c if white else 1 - 0.95 * (1 - c) for c in (red, green, blue))


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
    """The MIME type and the content of the figure in a notebook.

    It is PNG in base64, or SVG where COURSE_FIGURES is "svg". Where it is "book", the page writes the title, which has more room there.
    """
    from base64 import b64encode

    if form := os.environ.get("COURSE_FIGURES"):
        return "image/svg+xml", svg(drawn, titled=form == "svg")
    return "image/png", b64encode(png(drawn)).decode()


def png(drawn: Figure) -> bytes:
    """The figure as a PNG file: a white card with round corners, which can be read on a dark page, too."""
    from matplotlib.patches import FancyBboxPatch

    width, height = drawn.get_size_inches()
    card = FancyBboxPatch((0, 0), width, height, "round,pad=0,rounding_size=0.08", facecolor="white", edgecolor="none")
    card.set(transform=drawn.dpi_scale_trans, zorder=-1, in_layout=False)
    drawn.add_artist(card)
    try:
        return _saved(drawn, "png", facecolor="none")
    finally:
        card.remove()


def svg(drawn: Figure, *, titled: bool = True) -> str:
    """The figure as an SVG file that has dark colors where the page around it is dark. Without its title it has that as description."""
    _lift_title(drawn)
    title = drawn.get_suptitle()
    metadata = {"Date": None, "Title": alt_text(drawn), "Description": None if titled else title}
    headings = [text for text in drawn.texts if title and text.get_text() == title]
    for heading in headings:
        heading.set_text(title * titled)
    text = _saved(drawn, "svg", metadata=metadata).decode()
    for heading in headings:
        heading.set_text(title)  # suptitle would set the size again
    # Verdana is as wide, others are narrower.
    text = re.sub(r"(font-family: 'DejaVu Sans')[^;\"]*", r"\1, Verdana, sans-serif", text)
    return text.replace("</style>", _dark_rules(text) + "</style>", 1)


_DARK, _INK = 0x17, 0xE8  # gray levels of a dark page and of its text


def _dark_rules(text: str) -> str:
    """CSS for a dark page: grays change sides; colored text, lines and dots become lighter; areas and what is written on them stay."""
    # matplotlib leaves black text without a color; its first patch is the paper
    rules = [f"svg {{fill: #{_INK:02x}{_INK:02x}{_INK:02x}}}", "#patch_1 path {fill: none !important}"]
    for color in sorted(set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", text)) - {BLACK_ON_COLOR}):
        levels = [int(color[at : at + 2], 16) for at in (1, 3, 5)]
        if max(levels) - min(levels) < 24:  # a gray, or nearly one
            dark = "#" + "".join(f"{round(_INK - level / 255 * (_INK - _DARK)):02x}" for level in levels)
            rules += [f'[style*="{kind}: {color}"] {{{kind}: {dark} !important}}' for kind in ("fill", "stroke")]
        else:
            light = _against(color, white=False)
            rules.append(f':is(text, use)[style*="fill: {color}"] {{fill: {light} !important}}')
            lines = 'use, defs path, path[style*="fill: none"]'  # a marker's own path has its rim
            rules.append(f':is({lines})[style*="stroke: {color}"] {{stroke: {light} !important}}')
    rules.append(
        'use[style*="-opacity"] {fill-opacity: 0.7 !important; stroke-opacity: 0.7 !important}'
    )  # pale dots would drown
    rules.append('text[style*="fill: #ffffff"] {fill: #ffffff !important}')  # on a colored area
    return "@media (prefers-color-scheme: dark) {" + " ".join(rules) + "}"


def _saved(drawn: Figure, form: str, **options: Any) -> bytes:
    from io import BytesIO

    import matplotlib

    _lift_title(drawn)
    for axes in drawn.axes:
        axes.xaxis.label.set_wrap(True)
        for axis in (axes.xaxis, axes.yaxis):
            _number_powers(axis)
    buffer = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "course", "svg.fonttype": "none"}):  # equal figures are equal files
        drawn.savefig(buffer, format=form, **options)
    return buffer.getvalue()


def power(value: float, form: str = ".0e") -> str:
    """A number in the notation of an axis over many powers of ten: ``1e-4``."""
    return re.sub(r"e\+?(-?)0*(?=\d)", r"e\1", f"{value:{form}}")


def _number_powers(axis: Axis) -> None:
    """A logarithmic axis has one notation, 0.5 and 1,000 or 1e-6 and 1e0: raised exponents are too small on a phone."""
    from matplotlib.ticker import LogFormatter, LogLocator, NullFormatter

    if axis.get_scale() != "log":
        return
    axis.set_minor_formatter(NullFormatter())
    if not isinstance(axis.get_major_formatter(), LogFormatter):
        return
    low, high = sorted(axis.get_view_interval())  # an inverted axis begins with the larger one
    if high < 100 * low and type(axis.get_major_locator()) is LogLocator and getattr(axis.get_transform(), "base", 10) == 10:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:,.9g}" if low > 1e-4 and high < 1e8 else lambda value, _: power(value))


def _lift_title(drawn: Figure) -> None:
    """The title of the only axes becomes the figure's: it begins at the left edge, however long the names beside the axes are."""
    panels = [axes for axes in drawn.axes if axes.get_label() != "<colorbar>"]
    if len(panels) != 1 or drawn.get_suptitle():
        return
    for loc in ("left", "center"):
        if title := panels[0].get_title(loc=loc):
            drawn.suptitle(title)
            panels[0].set_title("", loc=loc)
            return
