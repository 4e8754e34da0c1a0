"""What all widgets of the course have in common: controls on top, a line with the numbers, and a picture of fixed size.

With a kernel a notebook shows the widget. Where none runs (a rendered page, GitHub) it shows the picture alone, which is in the
same output as a PNG file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from course_lib import style
from course_lib.widgets.controls import toolkit

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Shown(ABC):
    """A picture and a line of text that follow some controls.

    Args:
        controls: ipywidgets by the name under which `figure` and `text` take their values.
    """

    def __init__(self, controls: Mapping[str, Any]) -> None:
        self.controls = dict(controls)

    @property
    def state(self) -> dict[str, Any]:
        """The present value of each control."""
        return {name: control.value for name, control in self.controls.items()}

    @abstractmethod
    def figure(self, *args: Any, **state: Any) -> Figure:
        """The picture for values of the controls, by name; it depends on nothing else."""

    @abstractmethod
    def text(self, *args: Any, **state: Any) -> str:
        """The numbers for values of the controls, in one or two sentences."""

    def idle(self, **state: Any) -> set[str]:
        """Names of the controls that have no effect at these values; they are disabled."""
        return set()

    def html(self, **state: Any) -> str:
        """What stands between the controls and the picture, always three lines high; a screen reader says it when it changes."""
        place = "line-height:1.4;height:4.2em;overflow-y:auto"
        return f'<div role="status" aria-live="polite" style="{place}">{escape(self.text(**state))}</div>'

    def static(self) -> Figure:
        """The picture for the present values, for places without a kernel."""
        return self.figure(**self.state)

    @cached_property
    def widget(self) -> Any:
        """The ipywidget: controls, text and picture in a column."""
        self._disable_idle()
        for control in self.controls.values():
            control.observe(self._refresh, names="value")
        return toolkit().VBox([*self.controls.values(), self.line, self.picture])

    @cached_property
    def line(self) -> Any:
        """The text, as an ipywidget."""
        return toolkit().HTML(value=self.html(**self.state))

    @cached_property
    def picture(self) -> Any:
        """The picture, as an ipywidget. Its size is settled here, so that nothing on the page moves when it is drawn again."""
        drawn = self.static()
        width, height = (int(side) for side in drawn.get_size_inches() * drawn.dpi)
        layout = {"max_width": "100%", "object_fit": "contain", "flex": "0 0 auto", "margin": "0"}
        return toolkit().Image(value=style.png(drawn), format="png", width=width, height=height, layout=layout)

    def _refresh(self, change: Any) -> None:
        state = self.state
        self._disable_idle()
        self.line.value = self.html(**state)
        self.picture.value = style.png(self.figure(**state))

    def _disable_idle(self) -> None:
        idle = self.idle(**self.state)
        for name, control in self.controls.items():
            control.disabled = name in idle

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        drawn = self.static()
        form, picture = style.picture_for_output(drawn)
        bundle = {**self.widget._repr_mimebundle_(), form: picture, "text/plain": repr(self)}
        return bundle, {form: {"alt": style.alt_text(drawn)}}

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.text(**self.state)}>"
