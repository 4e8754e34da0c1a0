"""Makers of submissions whose notebook attacks, or what lies beside it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell

from tests.attacks.scene import HONEST, Scene
from tests.grading.conftest import LAB

SCRIPT = '<script>fetch("/formgrader")</script>'
BREAKING = '"></title></script></style>' + SCRIPT


def path(folder: Path) -> Path:
    return folder / f"{LAB.name}.ipynb"


@contextmanager
def _edited(folder: Path) -> Iterator[nbformat.NotebookNode]:
    notebook = nbformat.read(path(folder), as_version=4)
    yield notebook
    path(folder).write_text(nbformat.writes(notebook, version=nbformat.NO_CONVERT), encoding="utf-8")


@contextmanager
def _edited_grade_cells(folder: Path) -> Iterator[list[nbformat.NotebookNode]]:
    """The grade cells of the tasks, which are locked; not the one of the written question."""
    with _edited(folder) as notebook:
        yield [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("locked")]


def no_grade_cells(folder: Path, scene: Scene) -> None:
    with _edited(folder) as notebook:
        notebook.cells = [new_code_cell("print('all done')")]


def edited_grade_cells(folder: Path, scene: Scene) -> None:
    with _edited_grade_cells(folder) as cells:
        for cell in cells:
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


def endless_markdown(folder: Path, scene: Scene) -> None:
    """Each of these could begin a formula, and for each the renderer looks for the end."""
    with _edited(folder) as notebook:
        notebook.cells.append(new_markdown_cell("\\begin{a}" * 10_000))


def linked_folder(folder: Path, scene: Scene) -> None:
    shutil.rmtree(folder)
    folder.symlink_to(scene.folder(HONEST))


def own_modules(folder: Path, scene: Scene) -> None:
    """Each would leave a trace in the course's folder if a process outside of the sandbox imported it."""
    text = f"open({str(scene.root / 'labs/planted')!r}, 'w').write(__name__)\n"
    (folder / "course_lib").mkdir()
    for name in ("sitecustomize", "numpy", "json", "nbgrader_config", "course_lib/__init__", "conftest"):
        (folder / f"{name}.py").write_text(text)
