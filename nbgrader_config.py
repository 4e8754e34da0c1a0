"""nbgrader's configuration. Everything it says is in course_lib.grading, so that commands and formgrader agree."""

from pathlib import Path

from course_lib.grading.nbgrader.bridge import configure

configure(get_config(), root=Path(__file__).resolve().parent)  # noqa: F821  (nbgrader defines get_config)
