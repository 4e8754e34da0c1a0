"""No measured figure without its record: what a page says was measured on a named GPU has to stand in the file that it names.

    python benchmarks/claims.py

Looked at are the Markdown cells of the lectures, and the paragraphs of README.md, docs/status.md and docs/benchmarks.md that are not
written by `readme.py`. Where one of
them names a data-center GPU and holds figures of speed or error (``1.87 ms``, ``2.4x``, ``3.9 TB/s``, ``2e-3``, a number alone in a
table's cell), it has to name at least one ``course_lib/records/NAME.json``, and each figure has to be in one of those, rounded as
it is written. A sentence that says "data sheet" or "NVIDIA's data" is somebody else's claim.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.readme import PAGES, ROOT, without_blocks
from course_lib.benchmark.records import RESULTS

LECTURES = ROOT / "lectures"
GPU = re.compile(r"\b[AH]\d00\b")
RECORD = re.compile(r"course_lib/records/(\w+)\.json")
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
UNITS = {**SECONDS, "x": 1.0, "times": 1.0, "%": 0.01, "TB/s": 1e12, "GB/s": 1e9, "TFLOP/s": 1e12}
NUMBER = r"\d+(?:\.\d+)?(?:e-?\d+)?"
FIGURES = re.compile(
    rf"(?<![\w.])((?:{NUMBER}(?: to |, | and |-))*{NUMBER}) ?({'|'.join(UNITS)})(?![\w/]|\s+(?:confidence )?interval)"
)
ERROR = re.compile(r"(?<![\w.])\d+(?:\.\d+)?e-\d+\b")
NO_CLAIM = re.compile(
    r"```.*?```|`[^`]*`|<https?:[^>]*>|\([^()]*(?:data sheet|NVIDIA's data)[^()]*\)|[^.!?]*(?:data sheet|NVIDIA's data)(?:[^.]|\.\d)*",
    re.S,
)


@dataclass(frozen=True)
class Figure:
    """A number as it is written, such as ``0.55``, and its unit; empty for one that stands alone."""

    number: str
    unit: str = ""

    def is_in(self, leaf: tuple[str, float]) -> bool:
        """Whether a value of a record, with the path of its keys, is this number once it is rounded."""
        path, value = leaf
        words = re.split(r"[^a-z]+", path.lower())
        scale = UNITS.get(self.unit, 1.0)
        if self.unit in SECONDS:
            value *= next((seconds for unit, seconds in SECONDS.items() if unit in words), float("nan"))
        elif self.unit.endswith("B/s"):
            value *= 1e12 if "terabytes" in words else float("nan")
        elif self.unit in ("x", "times") and not {"speedup", "speed", "gain", "over"} & set(words):
            return False
        digits, _, exponent = self.number.partition("e")
        last_place = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
        return abs(value - float(self.number) * scale) <= 0.5000001 * last_place * scale

    def __str__(self) -> str:
        return f"{self.number} {self.unit}".strip()


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    found = [problem for where, text in pages() for problem in problems(where, text)]
    sys.exit("\n".join(found) or 0)


def pages() -> Iterator[tuple[str, str]]:
    """What is looked at: a name for messages, and Markdown."""
    for page in (*PAGES, ROOT / "docs" / "status.md"):
        for number, paragraph in enumerate(without_blocks(page.read_text(encoding="utf-8")).split("\n\n")):
            yield f"{page.name}, paragraph {number}", paragraph
    for path in sorted(LECTURES.glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                yield f"{path.name}, cell {cell['id']}", "".join(cell["source"])


def problems(where: str, text: str) -> list[str]:
    """One line for each figure that has no record; empty where all is well."""
    stated = figures(text) if GPU.search(text) else []
    if not stated:
        return []
    names = RECORD.findall(text)
    if not names:
        return [f"{where}: says {stated[0]} of a GPU and names no course_lib/records/NAME.json"]
    if missing := [name for name in names if not (RESULTS / f"{name}.json").is_file()]:
        return [f"{where}: there is no course_lib/records/{missing[0]}.json"]
    known = [leaf for name in names for leaf in leaves(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")))]
    return [f"{where}: {figure} is not in {', '.join(names)}" for figure in stated if not any(map(figure.is_in, known))]


def figures(text: str) -> list[Figure]:
    """The figures of speed and error in Markdown, in the order of lines."""
    found = []
    for line in NO_CLAIM.sub(" ", text).splitlines():
        found += [Figure(number, unit) for chain, unit in FIGURES.findall(line) for number in re.findall(NUMBER, chain)]
        found += [Figure(number) for number in ERROR.findall(line)]
        if line.startswith("|"):  # the first column says what the row is about
            found += [Figure(cell) for cell in map(str.strip, line.strip("|").split("|")[1:]) if re.fullmatch(NUMBER, cell)]
    return found


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a JSON value with the keys that lead to it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{path} {key}")
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, float(value)


if __name__ == "__main__":
    main()
