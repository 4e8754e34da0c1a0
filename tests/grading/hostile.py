"""Generators of hostile ids, names of files and times: honest ones, changed by what has broken something somewhere."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

_HONEST = ("ada", "ben.smith", "zoë", "o'brien", "x_1", "学生", "anna müller", "s12345", "a+b@example.org")
_CHARACTERS = (
    *"\u00a0\u200b\u200d\u202e\u2066\ufeff\u2028\u0085\u00ad\u0301\u034f\u115f\u3164\ufe0f\uff1d\uff0b\uff0d\uff20\uff0f\u2215",
    *"\x00\x01\x07\x08\t\n\r\x0b\x1b\x7f\x9b /\\[]*?{}()<>&|;,:%$#!~`^\"'=+-@._",
    *"\ud800\udcff\udc80\U000e0041\U0001f600\U000f0000\u0660\u0915\u05d0",
)
_WHOLE = (
    *(
        "",
        ".",
        "..",
        "...",
        "-",
        "--force",
        "--student=x",
        "*",
        "?",
        "[a-z]",
        "{}",
        "{student_id}",
        "%s",
        "%(x)s",
        "~",
        "~root",
    ),
    *("lab01_first_engine.html", "lab01_first_engine.leaderboard.html", "lab01_first_engine.json", "lock", "con", "nul"),
    *("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\ufeff=1", "<script>", "'; drop table student; --", "a\x00b", "\udcff\udcfe"),
    *(
        "n" * 100,
        "n" * 101,
        "n" * 240,
        "n" * 255,
        "ü" * 127,
        "学" * 66,
        "学" * 85,
        "a\u0301" * 50,
        "\u202eadA",
        "\uff41da",
        "\ufb01",
    ),
    *(".hidden", ".partial", ".ipynb_checkpoints", "a.", "a ", " a", "a  b", "..a", "a..b", "a/../b", "/a/b"),
)
_TIMES = (
    *("2026-05-02 18:00:00 UTC", "2026-05-02 18:00:00.123456 UTC", "2026-05-02T18:00:00Z", "2026-05-02 18:00:00 +0200"),
    *("2026-05-02 18:00:00", "2026-05-02 18:00 Europe/Zurich", "2099-12-31 23:59:59.999999 -14:00", "2000-01-01 00:00 +14:00"),
)
_WORDS = (
    "UTC",
    "CET",
    "PST",
    "Europe",
    "Z",
    "AM",
    "T",
    "+0200",
    "-99:99",
    "1e9",
    "inf",
    "nan",
    "99999999999",
    "٢",
    "\x00",
    "½",
    "²",
)


def below(folder: Path, name: str) -> Path | None:
    """The path of a hostile name that stays in its folder, whatever the name says; None where there is no such path.

    What writes these names runs as root at times, and `folder / "/etc/x"` is ``/etc/x``.
    """
    parts = name.split("/")
    if not name or "\x00" in name or any(part in ("", ".", "..") for part in parts):
        return None
    path = folder.joinpath(*parts)
    assert path.is_relative_to(folder)
    return path


def ids(draw: random.Random, count: int) -> Iterator[str]:
    """Names of folders. Only `below` makes paths of them."""
    yield from _WHOLE
    for _ in range(count - len(_WHOLE)):
        name = draw.choice(_HONEST)
        for _ in range(draw.choice((0, 0, 1, 1, 2, 5))):
            at = draw.randrange(len(name) + 1)
            name = (
                name[:at] + (draw.choice(_CHARACTERS) if draw.random() < 0.7 else chr(draw.randrange(1, 0x30000))) + name[at:]
            )
        yield name * draw.choice((1, 1, 1, 1, 30))


def names_of_files(draw: random.Random, count: int) -> Iterator[str]:
    """Paths inside a submission. Only `below` makes paths of them."""
    for name in ids(draw, count):
        yield "/".join([name] * draw.choice((1, 1, 1, 2, 12)))


def times(draw: random.Random, count: int) -> Iterator[bytes]:
    """Contents of ``timestamp.txt``."""
    for _ in range(count):
        text = draw.choice(_TIMES)
        for _ in range(draw.choice((0, 0, 1, 1, 2, 8))):
            at = draw.randrange(len(text) + 1)
            piece = draw.choice(
                (draw.choice(_WORDS), draw.choice(_CHARACTERS), str(draw.randrange(10 ** draw.choice((1, 4, 30)))))
            )
            text = text[:at] + piece + text[at + draw.choice((0, 0, 1, 3)) :]
        content = text.encode("utf-8", draw.choice(("surrogatepass", "replace")))
        yield (
            draw.choice((b"", b"", b"\xef\xbb\xbf", b" \n", b"\xff"))
            + content
            + draw.choice((b"", b"", b"\n", b" " * 200, b"x" * 200))
        )
