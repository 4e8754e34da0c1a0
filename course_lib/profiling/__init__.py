"""Where time goes and what changed: layer tables compared and drawn, times of layers, timelines, Nsight, the usual faults."""

from course_lib.profiling.diff import Change, TableDiff, diff
from course_lib.profiling.drawing import draw
from course_lib.profiling.faults import Fault, find_faults
from course_lib.profiling.layer_times import LayerTime, LayerTimings
from course_lib.profiling.ncu_reader import KernelMetrics, read_ncu
from course_lib.profiling.nsight import ncu_profile, nsys_export, nsys_profile, nsys_stats
from course_lib.profiling.nsys_reader import read_nsys
from course_lib.profiling.ort_profile import profile_onnxruntime
from course_lib.profiling.pictures import bars, gallery, promise, variants, workflow
from course_lib.profiling.ranges import nvtx_range
from course_lib.profiling.roofline_figure import roofline
from course_lib.profiling.timeline import Event, Timeline
from course_lib.profiling.timeline_figure import draw_timeline
from course_lib.profiling.torch_trace import read_torch_trace

__all__ = [
    "Change",
    "Event",
    "Fault",
    "KernelMetrics",
    "LayerTime",
    "LayerTimings",
    "TableDiff",
    "Timeline",
    "bars",
    "diff",
    "draw",
    "draw_timeline",
    "find_faults",
    "gallery",
    "ncu_profile",
    "nsys_export",
    "nsys_profile",
    "nsys_stats",
    "nvtx_range",
    "profile_onnxruntime",
    "promise",
    "read_ncu",
    "read_nsys",
    "read_torch_trace",
    "roofline",
    "variants",
    "workflow",
]
