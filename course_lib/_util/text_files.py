"""Reading text files as editors, spreadsheets and PowerShell write them: UTF-8, with a byte order mark or without, and UTF-16."""

from __future__ import annotations

import json
import os
from pathlib import Path


def read_text(path: str | os.PathLike[str], *, errors: str = "strict") -> str:
    """The text of a file. Line ends become ``\\n``, and a byte order mark is left out.

    Args:
        errors: ``"replace"`` to read on over damaged characters.

    Raises:
        OSError: the file cannot be read.
        UnicodeDecodeError: it is not text in UTF-8, UTF-16 or UTF-32.
    """
    return decode(Path(path).read_bytes(), errors=errors)


def decode(content: bytes, *, errors: str = "strict") -> str:
    """The text in the bytes of a file; see `read_text`."""
    # A byte order mark names the encoding. Without one, the zero bytes of the first character show UTF-16 and UTF-32.
    text = content.decode(json.detect_encoding(content), errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")
