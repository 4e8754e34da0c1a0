"""The controls of a widget: each one has a label, and can be used with the keyboard alone.

Sliders move with the arrow keys. The text box beside a slider holds the exact value, and any value within the limits can be typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_lib.widgets.control import Choice, Number, Span, Switch, TextField


def toolkit() -> Any:
    """The module ipywidgets, imported when the first widget is made."""
    import ipywidgets  # type: ignore[import-untyped]

    return ipywidgets


def slider(description: str, value: float, low: float, high: float, step: float) -> Number:
    """A number between ``low`` and ``high``; an arrow key moves the slider by ``step``."""
    from course_lib.widgets.control import Number

    return Number(description=description, limits=_limits(low, high, step=step), value=value)


def log_slider(description: str, value: float, low: int, high: int, *, least: float, most: float) -> Number:
    """A slider from ``10**low`` to ``10**high`` in fiftieths of a power of ten; ``least`` to ``most`` can be typed."""
    from course_lib.widgets.control import Number

    limits = _limits(10.0**low, 10.0**high, step=0.02, log=True) | {"least": least, "most": most}
    return Number(description=description, limits=limits, value=value)


def whole_slider(description: str, value: int, low: int, high: int) -> Number:
    """A whole number between ``low`` and ``high``."""
    from course_lib.widgets.control import Number

    return Number(description=description, limits=_limits(low, high, step=1, whole=True), value=value)


def range_slider(description: str, low: float, high: float) -> Span:
    """Two numbers between ``low`` and ``high``, at both ends at first."""
    from course_lib.widgets.control import Span

    return Span(description=description, limits=_limits(low, high, step=(high - low) / 400), value=(low, high))


def choice(description: str, options: Sequence[str | tuple[str, Any]], value: Any) -> Choice:
    """A list to choose from: values, or pairs of what to show and the value."""
    from course_lib.widgets.control import Choice

    pairs = [(option, option) if isinstance(option, str) else option for option in options]
    values = [one for _, one in pairs]
    return Choice(
        description=description, labels=[label for label, _ in pairs], options=values, at=values.index(value), value=value
    )


def switch(description: str, value: bool) -> Switch:
    """A box to tick."""
    from course_lib.widgets.control import Switch

    return Switch(description=description, value=value)


def text_field(description: str, placeholder: str) -> TextField:
    """A line to type in; it counts when Enter is pressed or the field is left."""
    from course_lib.widgets.control import TextField

    return TextField(description=description, placeholder=placeholder)


def _limits(low: float, high: float, *, step: float, log: bool = False, whole: bool = False) -> dict[str, Any]:
    return {"low": low, "high": high, "least": low, "most": high, "step": step, "log": log, "whole": whole}
