"""Damaged inputs for every reader of the judge: each is read, or rejected in one line."""

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course_lib.errors import CourseError
from tests.fuzz.readers import Reader, readers

WORDS = rb"""[ ] { } " , : = null true NaN 1e999 -1 0 1.5 18446744073709551616 "\ud800" [] {} {"":{}} nan inf
1979-05-27T07:32:00Z [[profile]] ../../../etc/passwd""".split()
WORDS += [b"\n", b"\0", b"\xff", b"\xef\xbb\xbf", b"9" * 5000, b"[" * 5000, b'{"a":' * 5000]
EDIT = st.tuples(st.integers(0, 1 << 16), st.integers(0, 64), st.sampled_from(WORDS) | st.binary(max_size=8))


@cache
def reader(name: str) -> Reader:
    return readers()[name]()


@pytest.mark.parametrize("name", readers())
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), edits=st.lists(EDIT, max_size=4))
def test_a_reader_survives(name: str, data: st.DataObject, edits: list[tuple[int, int, bytes]]) -> None:
    tested = reader(name)
    text = data.draw(st.sampled_from(tested.seeds))
    for place, cut, piece in edits:
        start = place % (len(text) + 1)
        text = text[:start] + piece + text[start + cut :]
    try:
        tested.read(text[: tested.most_bytes])
    except tested.raises as error:
        if isinstance(error, CourseError):  # its message is shown
            assert len(str(error).splitlines()) <= 1 and len(str(error)) < 5000
