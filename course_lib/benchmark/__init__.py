"""Sound measurement: interleaved, paired, with an interval, and with the reason why it stopped."""

from course_lib.benchmark.accuracy import Deviation, argmax_agreement, deviation, relative_error, sqnr_db
from course_lib.benchmark.comparison import Comparison, Subject, compare
from course_lib.benchmark.node_sensitivity import KeepList, NodeError, Sensitivity, sensitivity
from course_lib.benchmark.records import Record, recorded
from course_lib.benchmark.statistics import Interval, Measurement, measure, speedup
from course_lib.engines.cuda.two_clocks import DeviceClock

__all__ = [
    "Comparison",
    "Deviation",
    "DeviceClock",
    "Interval",
    "KeepList",
    "Measurement",
    "NodeError",
    "Record",
    "Sensitivity",
    "Subject",
    "argmax_agreement",
    "compare",
    "deviation",
    "measure",
    "recorded",
    "relative_error",
    "sensitivity",
    "speedup",
    "sqnr_db",
]
