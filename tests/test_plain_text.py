"""Text from outside, on one line and without surprises."""

from __future__ import annotations

import pytest

from course_lib._util.plain_text import plain


@pytest.mark.parametrize("text", ["naïve", "e\u0301", "ก็ที่", "क्षि", "שָּׁ", "Việt"])
def test_text_of_any_language_stays(text: str) -> None:
    assert plain(text) == text


def test_marks_do_not_pile_up_on_the_lines_around() -> None:
    assert plain("a" + 100 * "\u0301" + "b" + 50 * "\u20dd\u0489") == "a" + 3 * "\u0301" + "b\u20dd\u0489\u20dd"


def test_what_a_terminal_would_obey_is_replaced() -> None:
    assert plain("one\n\ttwo \x1b[31m\u202e three") == "one two \N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER} three"
