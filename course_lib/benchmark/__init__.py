"""Sound measurement: interleaved, paired, with an interval, and with a word on why it stopped."""

from course_lib.benchmark.compare import Comparison, Subject, compare
from course_lib.benchmark.statistics import Interval, Measurement, measure, speedup

__all__ = ["Comparison", "Interval", "Measurement", "Subject", "compare", "measure", "speedup"]
