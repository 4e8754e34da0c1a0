"""The API reference's code runs: every Python block of a page, in order, in one namespace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "api").glob("*.md"))
BLOCK = re.compile(r"^```python( gpu)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_there_is_a_page_for_every_part() -> None:
    assert {page.stem for page in PAGES} >= {"benchmark", "engines", "precision", "profiling"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib

    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, object] = {}
    for block in BLOCK.finditer(text):
        line = text[: block.start()].count("\n") + 2
        code = compile("\n" * (line - 1) + block[2], str(page), "exec")
        if not block[1]:  # one that needs a GPU is only compiled
            exec(code, namespace)
