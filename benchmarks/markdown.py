"""Pieces of the measured tables of README.md: paragraphs, tables, ratios, and what a record says of itself."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from course_lib.benchmark.records import release

Data = Mapping[str, Any]  # a record or one of its rows, as the JSON file holds it


def page(*parts: str) -> str:
    """Paragraphs and tables, with an empty line between; paragraphs are wrapped."""
    wrapped = (
        part if part.startswith("|") else textwrap.fill(" ".join(part.split()), 130, break_on_hyphens=False) for part in parts
    )
    return "\n\n".join(filter(None, wrapped))


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A line for the names of the columns, and one for each row; an empty cell has one space."""
    lines = ["|" + "".join(f" {cell} |" if cell != "" else " |" for cell in line) for line in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def ratio(interval: Data, digits: int, unit: str = "x") -> str:
    return f"{interval['median']:.{digits}f}{unit} [{interval['low']:.{digits}f}-{interval['high']:.{digits}f}]"


def ratios(rows: Iterable[Data], key: str) -> str:
    return ", ".join(ratio(row[key], 2) for row in rows)


def those(rows: Iterable[Data], key: str) -> str:
    return ", ".join(str(row[key]) for row in rows)


def error(value: float) -> str:
    """A relative error with one digit: ``5e-4``."""
    digits, _, exponent = f"{value:.0e}".partition("e")
    return f"{digits}e{int(exponent)}" if value else "0"


def device(data: Data) -> str:
    return f"{data['device']} (driver {data['driver']})"


def torch(data: Data) -> str:
    """Torch's version without its last part."""
    return ".".join(data["versions"]["torch"].split(".")[:2])


def tensorrt(data: Data) -> str:
    """TensorRT with its version, and with what NVIDIA calls that version where it is not a general release."""
    return f"TensorRT {release('tensorrt', data['versions']['tensorrt'])}"


def versions(data: Data) -> str:
    return ", ".join(f"{name} {release(name, version)}" for name, version in data["versions"].items())


def source(name: str, data: Data) -> str:
    """The date and the file, in a parenthesis that the caller closes."""
    return f"{data['date']} (`course_lib/records/{name}.json`"
