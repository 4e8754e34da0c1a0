"""The measured tables of README.md and docs/benchmarks.md, written from the recorded files.

    python benchmarks/readme.py [--check]

It also draws docs/results.svg, the dot plot of README's results.

A block begins with ``<!-- from course_lib/records/NAME.json -->`` (or ``NAME.json: PART``) and ends with ``<!-- end -->``. What is
between is replaced by what `readme_tables` makes of that record. A block whose record was not made yet stays empty. ``--check``
writes nothing: it exits with 1 and one line where a page says something else than the records.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.readme_tables import TABLES
from benchmarks.results_figure import results_figure
from course_lib._util.files import write_atomically
from course_lib.benchmark.records import RESULTS, recorded
from course_lib.errors import CourseError

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md")
FIGURE = ROOT / "docs" / "results.svg"
BLOCK = re.compile(
    r"(?P<begin>^<!-- from course_lib/records/(?P<name>\w+)\.json(?P<part>(?:: \w+)?) -->\n)(?P<text>.*?)(?P<end>^<!-- end -->$)",
    re.M | re.S,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, say whether the pages are up to date")
    options = parser.parse_args()
    for path in PAGES:
        before = path.read_text(encoding="utf-8")
        try:
            after = written(before)
        except CourseError as error:
            sys.exit(f"error: {path.name}: {error}")
        if before != after and options.check:
            sys.exit(
                f"error: {path.name} says something else than {', '.join(outdated(before))}: run python benchmarks/readme.py"
            )
        if before != after:
            write_atomically(path, after.encode())
    drawn, source = results_figure()
    if not FIGURE.exists() or not FIGURE.read_text(encoding="utf-8").endswith(source):
        if options.check:
            sys.exit(f"error: {FIGURE.name} shows something else than the records: run python benchmarks/readme.py")
        write_atomically(FIGURE, drawn.encode())


def written(page: str) -> str:
    """The page with every block as its record has it.

    Raises:
        CourseError: a block names a record that no table is known for, or one that does not say where it was measured.
    """
    return BLOCK.sub(lambda block: block["begin"] + _text(block["name"], block["part"]) + block["end"], page)


def outdated(page: str) -> list[str]:
    """Names of the records whose blocks say something else."""
    return [block["name"] for block in BLOCK.finditer(page) if block["text"] != _text(block["name"], block["part"])]


def without_blocks(page: str) -> str:
    """What a person wrote."""
    return BLOCK.sub("", page)


def _text(name: str, part: str) -> str:
    if name + part not in TABLES:
        raise CourseError(f"a block for {name + part!r}: there are tables for {', '.join(sorted(TABLES))}")
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return ""
    recorded(name)  # raises where the record does not name its machine
    return TABLES[name + part](json.loads(path.read_text(encoding="utf-8"))).strip("\n") + "\n"


if __name__ == "__main__":
    main()
