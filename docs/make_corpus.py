"""Write the text that the course's language model learns and is measured on: course_lib/models/text/*.txt.gz.

    python docs/make_corpus.py

The text is the course's own, at the time of the last run: lectures, labs, documentation and docstrings. The files are frozen,
because the shipped checkpoint and every recorded figure refer to them. After a run, train the checkpoint again.
"""

from __future__ import annotations

import ast
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from course_lib.models.text_corpus import FOLDER

ROOT = Path(__file__).resolve().parent.parent
EVERY, FIRST = 14, 6  # of the documents in order, these are held out


def main() -> None:
    """Collect the documents, hold some of them out, and write both parts."""
    parts: dict[str, list[str]] = {"train": [], "test": []}
    for index, text in enumerate(_documents()):
        parts["test" if index % EVERY == FIRST else "train"].append(text)
    FOLDER.mkdir(exist_ok=True)
    for split, texts in parts.items():
        data = "\n\n".join(texts).encode()
        # without a date and a name, so that the same text gives the same file
        (FOLDER / f"{split}.txt.gz").write_bytes(gzip.compress(data, 9, mtime=0))
        print(f"{split}: {len(texts)} documents, {len(data)} bytes")


def _documents() -> Iterator[str]:
    """Notebooks' text, pages, and the docstrings of each module; the longest lines are tables of data, and are left out."""
    for pattern in ("lectures/*.ipynb", "labs/*/*.ipynb"):
        for path in sorted(ROOT.glob(pattern)):
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            yield _readable("\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"))
    for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        yield _readable(path.read_text(encoding="utf-8"))
    for path in sorted([*ROOT.glob("course_lib/**/*.py"), *ROOT.glob("benchmarks/**/*.py")]):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
        found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
        if text := "\n\n".join(filter(None, found)):
            yield _readable(text)


def _readable(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines() if len(line) < 1000)


if __name__ == "__main__":
    main()
