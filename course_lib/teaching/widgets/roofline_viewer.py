"""The roofline, one kernel at a time."""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.profiling import KernelMetrics
from course_lib.profiling.timelines.timeline import label
from course_lib.teaching.widgets.view import View


class RooflineViewer(View):
    """Choose a kernel to see its place under the roof, its limit, and its distance to that limit.

    Args:
        kernels: result of `course_lib.profiling.read_ncu`.
        peak_flops: operations per second of the units that the kernels use, for their datatype.
        peak_bandwidth: peak bandwidth of device memory in bytes per second.

    Raises:
        ValueError: no kernels, or a peak that is not positive.
    """

    def __init__(self, kernels: Sequence[KernelMetrics], peak_flops: float, peak_bandwidth: float) -> None:
        if not kernels:
            raise ValueError("no kernels to draw: did the profiler's filters match any?")
        if min(peak_flops, peak_bandwidth) <= 0:
            raise ValueError(f"peaks are positive, not {peak_flops} operations/s and {peak_bandwidth} bytes/s")
        rows = [
            {
                "name": label(kernel.name, "kernel"),
                "us": kernel.duration_us,
                "intensity": kernel.intensity,
                "speed": kernel.flops_per_second,
                "bandwidth": kernel.bytes_per_second,
                "bound": kernel.bound,
            }
            for kernel in kernels
        ]
        first = next((at for at, kernel in enumerate(kernels) if kernel.intensity), 0)
        super().__init__(
            "roofline", {"kernels": rows, "peak_flops": peak_flops, "peak_bandwidth": peak_bandwidth}, {"index": first}
        )
