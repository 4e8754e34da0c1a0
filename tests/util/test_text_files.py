"""Text files as editors, spreadsheets and PowerShell write them."""

import codecs
from pathlib import Path

import pytest

from course_lib._util.text_files import decode, read_text
from course_lib.labs.framework.submission import read_json, read_toml
from course_lib.labs.framework.submission import read_text as submitted_text
from course_lib.recipe import Recipe

WRITTEN_BY = {
    "an editor on Linux": ("utf-8", b"", "\n"),
    "Notepad, UTF-8 with BOM": ("utf-8", codecs.BOM_UTF8, "\r\n"),
    "PowerShell 5.1, > and Out-File": ("utf-16-le", codecs.BOM_UTF16_LE, "\r\n"),
    "Excel, Unicode text": ("utf-16-le", codecs.BOM_UTF16_LE, "\n"),
    "PowerShell, -Encoding BigEndianUnicode": ("utf-16-be", codecs.BOM_UTF16_BE, "\r\n"),
    "PowerShell, -Encoding UTF32": ("utf-32-le", codecs.BOM_UTF32_LE, "\r\n"),
    "a program that leaves the mark out": ("utf-16-le", b"", "\r\n"),
    "an editor of an old Macintosh": ("utf-8", b"", "\r"),
}


def _content(text: str, writer: str) -> bytes:
    encoding, mark, line_end = WRITTEN_BY[writer]
    return mark + text.replace("\n", line_end).encode(encoding)


@pytest.mark.parametrize("writer", WRITTEN_BY)
def test_every_usual_writer_is_read(tmp_path: Path, writer: str) -> None:
    text = 'precision = "fp16"  # größer\nworkspace_mib = 64\n'
    file = tmp_path / "recipe.toml"
    file.write_bytes(_content(text, writer))
    assert read_text(file) == text
    assert submitted_text(file, 1000) == text
    assert read_toml(file, 1000) == {"precision": "fp16", "workspace_mib": 64}
    assert Recipe.load(file) == Recipe(precision="fp16", workspace_mib=64)
    file.write_bytes(_content('{"größe": [1]}\n', writer))
    assert read_json(file, 1000) == {"größe": [1]}


@pytest.mark.parametrize("content", [b"gr\xf6\xdfer", codecs.BOM_UTF16_LE + b"a", b"\xff\x00\xff"])
def test_bytes_that_are_not_text_are_an_error_or_are_replaced(content: bytes) -> None:
    with pytest.raises(UnicodeDecodeError):
        decode(content)
    assert "\N{REPLACEMENT CHARACTER}" in decode(content, errors="replace")
