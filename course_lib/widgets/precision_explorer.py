"""What a number format does to one number, or to all numbers of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from course_lib.precision.formats import FORMATS
from course_lib.widgets.controls import choice, log_slider, slider, switch
from course_lib.widgets.number_figure import number_figure, number_text
from course_lib.widgets.shown import Shown
from course_lib.widgets.tensor_figure import SCALED, TensorView, tensor_figure, tensor_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class PrecisionExplorer(Shown):
    """Without a tensor: one value's bits, its nearest number, its error and the range, in seven formats.

    With one: its histogram, what a threshold clips, and the signal-to-quantization-noise ratio over the threshold, in the
    eight-bit formats, which are the ones that need a scale.

    Args:
        values: 1 to 1 000 000 finite floats of any shape, or None.
        name: what to call the tensor.

    Raises:
        ValueError: values that are not floats, too many, none, or all zero.
        CourseError: values that are not finite.
    """

    def __init__(self, values: ArrayLike | None = None, name: str = "") -> None:
        self._view = None if values is None else TensorView.of(values, name or "the tensor")
        super().__init__(_number_controls() if self._view is None else _tensor_controls())

    def figure(self, **state: Any) -> Figure:
        """The picture; the arguments are those of `state`."""
        return number_figure(*_number(**state)) if self._view is None else tensor_figure(self._view, **state)

    def text(self, **state: Any) -> str:
        """The numbers; the arguments are those of `state`."""
        return number_text(*_number(**state)) if self._view is None else tensor_text(self._view, **state)

    def idle(self, **state: Any) -> set[str]:
        """The step of INT8 while another format is chosen."""
        return {"scale"} if self._view is None and state["name"] != "INT8" else set()


def _number(size: float, negative: bool, name: str, scale: float) -> tuple[float, str, float]:
    return -size if negative else size, name, scale


def _number_controls() -> dict[str, Any]:
    return {
        "size": log_slider("Size of the value", 0.1, -9, 6, least=0.0, most=1e39),
        "negative": switch("Negative", False),
        "name": choice("Format", list(FORMATS), "FP16"),
        "scale": log_slider("Step of INT8 (scale)", 0.01, -4, 2, least=1e-9, most=1e9),
    }


def _tensor_controls() -> dict[str, Any]:
    return {
        "percent": slider("Threshold (% of largest)", 100.0, 1.0, 100.0, 0.5),
        "name": choice("Format", SCALED, "INT8"),
    }
