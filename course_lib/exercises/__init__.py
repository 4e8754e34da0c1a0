"""The exercises in lectures: one file for each lecture, and `check`, which a lecture calls on what the reader wrote.

No file here holds a solution. A check knows what the right function returns for some arguments, and what the usual mistakes
return for them. The solutions are in the instructor's folder, next to those of the labs.
"""

from course_lib.exercises.checking import check
from course_lib.exercises.exercise import Case, Exercise, NotYet, find, lecture_numbers, of_lecture

__all__ = ["Case", "Exercise", "NotYet", "check", "find", "lecture_numbers", "of_lecture"]
