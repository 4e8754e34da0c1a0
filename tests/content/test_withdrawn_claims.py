"""Statements that were found wrong or too wide, each with the source that corrects it: none of them comes back, on any page."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

from course_lib._util.toml_text import loads

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/**/*.md", "lectures/*.ipynb", "solutions/*/*.ipynb", "course_lib/**/*.py")

WITHDRAWN, PRIVATE_WORDS = loads((ROOT / "tests/data/withdrawn_claims.toml").read_text(encoding="utf-8")).values()


@cache
def pages() -> dict[str, str]:
    found = [path for pattern in PAGES for path in ROOT.glob(pattern)]
    return {str(path.relative_to(ROOT)): " ".join(_text(path).split()) for path in found}


def _text(path: Path) -> str:
    raw = path.read_text(encoding="utf-8")
    return "\n".join("".join(cell["source"]) for cell in json.loads(raw)["cells"]) if path.suffix == ".ipynb" else raw


@pytest.mark.parametrize(("claim", "source"), WITHDRAWN.items(), ids=list(WITHDRAWN.values()))
def test_a_withdrawn_claim_stays_withdrawn(claim: str, source: str) -> None:
    assert [page for page, text in pages().items() if re.search(claim, text)] == [], source


@pytest.mark.parametrize(("word", "term"), PRIVATE_WORDS.items(), ids=list(PRIVATE_WORDS.values()))
def test_a_private_word_stays_replaced_by_the_fields_term(word: str, term: str) -> None:
    assert [page for page, text in pages().items() if re.search(word, text, re.IGNORECASE)] == [], f"write: {term}"
