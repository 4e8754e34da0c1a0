"""The controls of a widget: each one has a description, and can be used with the keyboard alone.

Sliders move with the arrow keys, and a number can be typed into the readout beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_LAYOUT = {"width": "560px", "max_width": "100%"}
_STYLE = {"description_width": "170px"}


def toolkit() -> Any:
    """The module ipywidgets, imported when the first widget is made."""
    import ipywidgets  # type: ignore[import-untyped]

    return ipywidgets


def slider(description: str, value: float, low: float, high: float, step: float, *, form: str = ".4g") -> Any:
    """A slider for a float; its readout is written in the format ``form``."""
    return toolkit().FloatSlider(
        value=value, min=low, max=high, step=step, description=description, readout_format=form, layout=_LAYOUT, style=_STYLE
    )


def log_slider(description: str, value: float, low: int, high: int) -> Any:
    """A slider from ``10**low`` to ``10**high``; each step is a fiftieth of a power of ten."""
    return toolkit().FloatLogSlider(
        value=value, min=low, max=high, step=0.02, description=description, readout_format=".4g", layout=_LAYOUT, style=_STYLE
    )


def whole_slider(description: str, value: int, low: int, high: int) -> Any:
    """A slider for a whole number."""
    return toolkit().IntSlider(value=value, min=low, max=high, description=description, layout=_LAYOUT, style=_STYLE)


def range_slider(description: str, low: float, high: float) -> Any:
    """A slider with two handles, at both ends at first."""
    return toolkit().FloatRangeSlider(
        value=(low, high),
        min=low,
        max=high,
        step=(high - low) / 400,
        description=description,
        readout_format=".4g",
        layout=_LAYOUT,
        style=_STYLE,
    )


def choice(description: str, options: Sequence[str | tuple[str, Any]], value: Any) -> Any:
    """A list to choose from: values, or pairs of what to show and the value."""
    return toolkit().Dropdown(options=options, value=value, description=description, layout=_LAYOUT, style=_STYLE)


def switch(description: str, value: bool) -> Any:
    """A box to tick."""
    return toolkit().Checkbox(value=value, description=description, layout=_LAYOUT, style=_STYLE)


def text_field(description: str, placeholder: str) -> Any:
    """A line to type in; it counts when Enter is pressed or the field is left."""
    return toolkit().Text(
        description=description, placeholder=placeholder, continuous_update=False, layout=_LAYOUT, style=_STYLE
    )
