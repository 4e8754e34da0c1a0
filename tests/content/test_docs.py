"""The code of the API reference and of the page about your model runs: every Python block of a page, in order, in one namespace."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [*sorted((DOCS / "api").glob("*.md")), DOCS / "your_model.md"]
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


def test_tensorrts_usual_lines_are_explained_word_for_word() -> None:
    """One row a line, with the cause, one action and a lecture. The parts that differ in each log are in italics."""
    text = (DOCS / "messages.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `[")]
    assert len(rows) >= 20
    for message, cause, action, lecture in rows:
        assert cause and action.endswith(".") and 1 <= int(lecture) <= 17, message
    for line in (
        "Your ONNX model has been generated with INT64 weights, while TensorRT does not natively support INT64. Attempting to cast down",
        "One or more weights outside the range of INT32 was clamped",
        "due to insufficient memory on requested size of",
        "Network has dynamic or shape inputs, but no optimization profile has been defined.",
    ):
        assert line in text
