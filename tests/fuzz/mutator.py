"""Valid inputs changed at random: bytes, words that parsers stumble over, and pieces of other inputs. The seed decides everything."""

from __future__ import annotations

import random
from collections.abc import Sequence

_WORDS = (
    *(
        b"[",
        b"]",
        b"{",
        b"}",
        b"(",
        b")",
        b'"',
        b"'",
        b",",
        b":",
        b"=",
        b".",
        b"#",
        b"\\",
        b"\n",
        b"\r\n",
        b"\x00",
        b"\xff",
        b"\xef\xbb\xbf",
    ),
    *(
        b"null",
        b"true",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        b"1e999",
        b"-0",
        b"-1",
        b"0",
        b"1.5",
        b"1e300",
        b"9" * 30,
        b"9" * 400,
    ),
    *(
        b"9" * 5000,
        b"18446744073709551616",
        b"-9223372036854775809",
        b"4294967296",
        b'"\\ud800"',
        b'"\\u0000"',
        b"\xed\xa0\x80",
    ),
    *(
        b'""',
        b"[]",
        b"{}",
        b"[[]]",
        b'{"":{}}',
        b'{"a":[{}]}',
        b"nan",
        b"inf",
        b"0x7f",
        b"1979-05-27T07:32:00Z",
        b"[[profile]]",
    ),
    *(b'"location"', b'"arrays"', b'"shape"', b'"error"', b"a." * 300, b"__proto__", b"%s%n", b"../../../etc/passwd"),
)
_NESTED = (b"[", b'{"a":', b"[{", b"((", b"{ a = ", b"[[a.")
_LISTED = (b"[],", b"{},", b"0,", b'{"a":1},')  # many small objects take far more memory than their text
_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF)


def mutated(draw: random.Random, seeds: Sequence[bytes], most_bytes: int) -> bytes:
    """One of the seeds after zero to eight changes, at most so many bytes."""
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.choice((0, 1, 1, 2, 3, 8))):
        _change(draw, data, seeds, most_bytes)
        del data[most_bytes:]
    return bytes(data)


def _change(draw: random.Random, data: bytearray, seeds: Sequence[bytes], most_bytes: int) -> None:
    at = draw.randrange(len(data) + 1)
    end = min(len(data), at + draw.choice((1, 2, 4, 8, 64, 1000)))
    kind = draw.randrange(10)
    if kind == 0 and data:
        data[at % len(data)] ^= 1 << draw.randrange(8)
    elif kind == 1 and data:
        data[at % len(data)] = draw.choice(_INTERESTING)
    elif kind == 2:
        data[at:end] = draw.choice(_WORDS)
    elif kind == 3:
        data[at:at] = draw.choice(_WORDS)
    elif kind == 4:
        del data[at:end]
    elif kind == 5:
        piece = bytes(data[at:end])
        data[at:at] = piece * min(draw.choice((1, 2, 50, 2000, most_bytes)), most_bytes // max(len(piece), 1))
    elif kind == 6:
        other = draw.choice(seeds)
        start = draw.randrange(len(other) + 1)
        data[at:end] = other[start : start + draw.choice((4, 64, 1000))]
    elif kind == 7:
        data[at:at] = draw.choice(_NESTED) * draw.choice((10, 500, 990, 5000, 60_000))
    elif kind == 8:
        piece = draw.choice(_LISTED)
        at = max(data.rfind(b"[", 0, at), 0) + 1  # where a list begins, if there is one
        data[at:at] = piece * min(draw.choice((10, 5000, 200_000, most_bytes)), most_bytes // len(piece))
    else:
        data[at:end] = draw.randbytes(draw.choice((1, 4, 64)))
