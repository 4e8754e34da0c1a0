"""A control as an ipywidget: its value lives here, and `control.js` draws it with the browser's own elements.

The sliders and lists of ipywidgets round what is typed, have no accessible name, and let JupyterLab take their keys for its
commands (https://github.com/jupyter-widgets/ipywidgets/issues/3912).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import anywidget
import traitlets

_HERE = Path(__file__).parent


class Control(anywidget.AnyWidget):
    """What all controls have.

    Attributes:
        description: the visible label, which is also the accessible name.
        disabled: shown in grey; neither mouse nor keyboard can change it.
    """

    _esm = _HERE / "control.js"
    _css = _HERE / "control.css"
    kind = traitlets.Unicode().tag(sync=True)
    description = traitlets.Unicode().tag(sync=True)
    disabled = traitlets.Bool(False).tag(sync=True)


class Number(Control):
    """A slider and a text box for one number. The box holds it exactly; the slider follows.

    Attributes:
        value: int if ``limits["whole"]``, else float; always within least and most.
        limits: ``low`` and ``high`` of the slider, ``least`` and ``most`` that may be typed, ``step`` of the slider in the value, or
            in its decimal logarithm if ``log``, and ``whole``.
    """

    kind = traitlets.Unicode("number").tag(sync=True)
    limits = traitlets.Dict().tag(sync=True)
    value = traitlets.Union([traitlets.Int(), traitlets.Float()]).tag(sync=True)

    @traitlets.validate("value")
    def _within(self, proposal: Any) -> float:
        return _within(proposal["value"], self.limits)


class Span(Control):
    """Two numbers, each with a slider and a text box; ``value`` is a tuple of the lower and the upper one.

    Attributes:
        limits: as those of `Number`.
    """

    kind = traitlets.Unicode("span").tag(sync=True)
    limits = traitlets.Dict().tag(sync=True)
    value = traitlets.Tuple(traitlets.Float(), traitlets.Float()).tag(sync=True)

    @traitlets.validate("value")
    def _within(self, proposal: Any) -> tuple[float, ...]:
        low, high = (_within(end, self.limits) for end in proposal["value"])
        if low > high:
            raise traitlets.TraitError(f"{self.description} must start before it ends, found {low} to {high}")
        return low, high


class Choice(Control):
    """A list to choose from.

    Attributes:
        labels: what the list shows.
        options: the value of each label.
        at: the chosen place.
        value: the chosen option.
    """

    kind = traitlets.Unicode("choice").tag(sync=True)
    labels = traitlets.List().tag(sync=True)
    at = traitlets.Int(0).tag(sync=True)
    options = traitlets.List()
    value = traitlets.Any()

    @traitlets.validate("at")
    def _known_place(self, proposal: Any) -> int:
        if not 0 <= proposal["value"] < len(self.options):
            raise traitlets.TraitError(f"{self.description} has {len(self.options)} options, found place {proposal['value']}")
        return int(proposal["value"])

    @traitlets.validate("value")
    def _known_option(self, proposal: Any) -> Any:
        if proposal["value"] not in self.options:
            raise traitlets.TraitError(f"{self.description} must be one of {self.options}, found {proposal['value']!r}")
        return proposal["value"]

    @traitlets.observe("at")
    def _to_value(self, change: Any) -> None:
        self.value = self.options[self.at]

    @traitlets.observe("value")
    def _to_place(self, change: Any) -> None:
        self.at = self.options.index(self.value)


class Switch(Control):
    """A box to tick; ``value`` is a bool."""

    kind = traitlets.Unicode("switch").tag(sync=True)
    value = traitlets.Bool(False).tag(sync=True)


class TextField(Control):
    """A line to type in; ``value`` changes when Enter is pressed or the field is left."""

    kind = traitlets.Unicode("text").tag(sync=True)
    placeholder = traitlets.Unicode().tag(sync=True)
    value = traitlets.Unicode("").tag(sync=True)


def _within(value: float, limits: dict[str, Any]) -> float:
    if isinstance(value, bool) or math.isnan(value):
        raise traitlets.TraitError(f"expected a number from {limits['least']:g} to {limits['most']:g}, found {value!r}")
    inside = min(max(value, limits["least"]), limits["most"])
    return round(inside) if limits["whole"] else float(inside)
