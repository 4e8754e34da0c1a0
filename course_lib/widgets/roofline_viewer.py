"""The roofline, one kernel at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from course_lib.profiling import KernelMetrics, roofline
from course_lib.profiling.timeline import label, time_text
from course_lib.widgets.controls import choice
from course_lib.widgets.shown import Shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BOUNDS = {
    "memory": "It is bound by memory.",
    "compute": "It is bound by arithmetic.",
    "latency": "Neither memory nor arithmetic is full: it is bound by latency.",
    "": "Its bound was not measured.",
}


class RooflineViewer(Shown):
    """Choose a kernel: where it lies under the roof, what it is bound by, and how much is left.

    Args:
        kernels: of `course_lib.profiling.read_ncu`.
        peak_flops: operations per second of the units that the kernels use, for their datatype.
        peak_bandwidth: of device memory, bytes per second.

    Raises:
        ValueError: no kernels, or a peak that is not positive.
    """

    def __init__(self, kernels: Sequence[KernelMetrics], peak_flops: float, peak_bandwidth: float) -> None:
        self._kernels, self._peak_flops, self._peak_bandwidth = tuple(kernels), peak_flops, peak_bandwidth
        roofline(self._kernels, peak_flops, peak_bandwidth)  # refuses what cannot be drawn, before a widget exists
        names = [(f"{number}  {label(kernel.name, 'kernel')}", number - 1) for number, kernel in enumerate(self._kernels, 1)]
        first = next((at for at, kernel in enumerate(self._kernels) if kernel.intensity), 0)
        super().__init__({"index": choice("Kernel", names, first)})

    def figure(self, index: int) -> Figure:
        """The roofline with a ring around the chosen kernel and a line up to its roof."""
        figure = roofline(self._kernels, self._peak_flops, self._peak_bandwidth)
        kernel, axes = self._kernels[index], figure.axes[0]
        if kernel.intensity and kernel.flops_per_second:
            roof = self._roof(kernel.intensity)
            axes.plot([kernel.intensity] * 2, [kernel.flops_per_second, roof], color="black", lw=1, ls="--", zorder=1)
            axes.plot([kernel.intensity], [kernel.flops_per_second], "o", ms=17, mfc="none", mec="black", mew=1.6)
        return figure

    def text(self, index: int) -> str:
        """Time, intensity, the roof above it, and the bound."""
        kernel = self._kernels[index]
        said = f"{label(kernel.name, 'kernel')}: {time_text(kernel.duration_us)}"
        if kernel.intensity and kernel.flops_per_second:
            roof = self._roof(kernel.intensity)
            limit = "memory" if roof < self._peak_flops else "the arithmetic units"
            said += f", {kernel.intensity:.3g} FLOP per byte, {kernel.flops_per_second / 1e12:.3g} TFLOP/s, which is "
            said += f"{100 * kernel.flops_per_second / roof:.3g} % of the {roof / 1e12:.3g} TFLOP/s that {limit} would allow"
        elif kernel.bytes_per_second:
            share = 100 * kernel.bytes_per_second / self._peak_bandwidth
            said += f", no operations counted, {kernel.bytes_per_second / 1e12:.3g} TB/s, {share:.3g} % of the bandwidth"
        return f"{said}. {_BOUNDS[kernel.bound]}"

    def _roof(self, intensity: float) -> float:
        return min(self._peak_flops, intensity * self._peak_bandwidth)
