"""Profiling: comparison and figures of layer tables, times of layers, timelines, Nsight, and the usual faults."""

from course_lib.profiling.faults import Fault, find_faults
from course_lib.profiling.layer_tables.drawing import draw
from course_lib.profiling.layer_tables.layer_times import LayerTime, LayerTimings
from course_lib.profiling.layer_tables.table_diff import Change, TableDiff, diff
from course_lib.profiling.readers.ncu import KernelMetrics, read_ncu
from course_lib.profiling.readers.nsight import ncu_profile, nsys_export, nsys_profile, nsys_stats
from course_lib.profiling.readers.nsys import read_nsys
from course_lib.profiling.readers.ort_profile import profile_onnxruntime
from course_lib.profiling.readers.torch_trace import read_torch_trace
from course_lib.profiling.readers.trtexec import InferenceTimes, read_inference_times, read_layer_times, read_layers
from course_lib.profiling.roofline_figure import roofline
from course_lib.profiling.timelines.ranges import nvtx_range
from course_lib.profiling.timelines.timeline import Event, Timeline
from course_lib.profiling.timelines.timeline_figure import draw_timeline

__all__ = [
    "Change",
    "Event",
    "Fault",
    "InferenceTimes",
    "KernelMetrics",
    "LayerTime",
    "LayerTimings",
    "TableDiff",
    "Timeline",
    "diff",
    "draw",
    "draw_timeline",
    "find_faults",
    "ncu_profile",
    "nsys_export",
    "nsys_profile",
    "nsys_stats",
    "nvtx_range",
    "profile_onnxruntime",
    "read_inference_times",
    "read_layer_times",
    "read_layers",
    "read_ncu",
    "read_nsys",
    "read_torch_trace",
    "roofline",
]
