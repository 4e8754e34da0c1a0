"""What a result says where nbgrader failed."""

import pytest

from course_lib.grading.batch.submission import reason

TRACEBACK = """Traceback (most recent call last):
  File "/site-packages/nbconvert/exporters/templateexporter.py", line 633, in get_template_names
    raise ValueError(msg)
ValueError: No template sub-directory with name 'classic' found in the following paths:
\t/home/learner/.local/share/jupyter
\t/usr/share/jupyter
"""


@pytest.mark.parametrize(
    ("done", "said"),
    [
        (
            {"error": TRACEBACK, "log": None},
            "ValueError: No template sub-directory with name 'classic' found in the following paths:",
        ),
        ({"error": "", "log": "grading student\n" + TRACEBACK}, "ValueError: No template sub-directory"),
        ({"error": TRACEBACK, "log": "grading student\nError: no submissions\nnothing was graded\n\n"}, "nothing was graded"),
        ({"error": "Traceback (most recent call last):\n  File\nKeyboardInterrupt\n", "log": ""}, "KeyboardInterrupt"),
        ({"error": None, "log": None}, "no reason given"),
    ],
)
def test_the_reason_is_the_line_that_says_it(done, said):
    assert reason(done).startswith(said)
