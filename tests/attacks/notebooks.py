"""Makers of submissions whose notebook attacks, or what lies beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell

from tests.attacks.scene import Scene
from tests.grading.conftest import LAB

SCRIPT = '<script>fetch("/formgrader")</script>'


@contextmanager
def _edited(folder: Path) -> Iterator[nbformat.NotebookNode]:
    path = folder / f"{LAB.name}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    yield notebook
    path.write_text(nbformat.writes(notebook, version=nbformat.NO_CONVERT), encoding="utf-8")


def edited_grade_cells(folder: Path, scene: Scene) -> None:
    """Those of the tasks, which are locked; not the one of the written question."""
    with _edited(folder) as notebook:
        for cell in notebook.cells:
            if cell.metadata.get("nbgrader", {}).get("locked"):
                cell.source = "4"


def slow_cells(folder: Path, scene: Scene) -> None:
    with _edited(folder) as notebook:
        notebook.cells[:0] = [new_code_cell("import time; time.sleep(4)") for _ in range(8)]


def active_markdown(folder: Path, scene: Scene) -> None:
    texts = (
        SCRIPT + "<img src=x onerror=alert(1)><iframe src=//stranger.example></iframe>",
        "[a hint](javascript:alert(1)) [another](data:text/html;base64,PHNjcmlwdD4=) <javascript:alert(1)>",
        f"![tells who reads it](http://127.0.0.1:{scene.port}/read.png)",
        '![" onerror="alert(1)](x.png "a\\" onerror=\\"alert(1)")',
        "$\\href{javascript:alert(1)}{x}$ $$</script>" + SCRIPT + "$$",
        "[x]: javascript:alert(1)\n\n[x]",
    )
    with _edited(folder) as notebook:
        answer = next(cell for cell in notebook.cells if cell.cell_type == "markdown")
        answer.source = "\n\n".join(texts)
        notebook.cells += [new_markdown_cell(text) for text in texts]
        notebook.cells[-1].attachments = {"x.svg": {"image/svg+xml": f"<svg>{SCRIPT}</svg>"}}


def own_modules(folder: Path, scene: Scene) -> None:
    """Each would leave a trace in the course's folder if a process outside of the sandbox imported it."""
    text = f"open({str(scene.root / 'labs/planted')!r}, 'w').write(__name__)\n"
    (folder / "course_lib").mkdir()
    for name in ("sitecustomize", "numpy", "json", "nbgrader_config", "course_lib/__init__", "conftest"):
        (folder / f"{name}.py").write_text(text)
