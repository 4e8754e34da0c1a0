"""Makers of submissions whose notebook attacks: its cells, its metadata, the program that it names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell

from tests.attacks.scene import Scene
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


def skipped_grade_cells(folder: Path, scene: Scene) -> None:
    with _edited_grade_cells(folder) as cells:
        for cell in cells:
            cell.metadata.tags = ["skip-execution", "raises-exception"]


def no_grade_cells(folder: Path, scene: Scene) -> None:
    with _edited(folder) as notebook:
        notebook.cells = [new_code_cell("print('all done')")]


def repeated_grade_ids(folder: Path, scene: Scene) -> None:
    with _edited(folder) as notebook:
        for cell in [found for found in notebook.cells if found.metadata.get("nbgrader", {}).get("locked")]:
            again = new_code_cell("10")
            again.metadata.nbgrader = dict(cell.metadata.nbgrader)
            notebook.cells.append(again)


def changed_points(folder: Path, scene: Scene) -> None:
    with _edited_grade_cells(folder) as cells:
        for cell, points in zip(cells, (1000, 0, -5), strict=True):
            cell.metadata.nbgrader.points = points


def edited_grade_cells(folder: Path, scene: Scene) -> None:
    with _edited_grade_cells(folder) as cells:
        for cell in cells:
            cell.source = "4"


def other_kernelspec(folder: Path, scene: Scene) -> None:
    with _edited(folder) as notebook:
        argv = ["/bin/sh", "-c", f"touch {scene.root}/labs/planted"]
        notebook.metadata.kernelspec = {"name": "../../../planted", "display_name": "x", "language": "sh", "argv": argv}


def own_kernel(folder: Path, scene: Scene) -> None:
    sleeps = f"import time\ntry: open({str(scene.root / 'labs/planted')!r}, 'w')\nexcept OSError: pass\ntime.sleep(600)\n"
    (folder / "ipykernel").mkdir()
    for name in ("ipykernel_launcher.py", "ipykernel/__init__.py"):
        (folder / name).write_text(sleeps)


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


def scripted_metadata(folder: Path, scene: Scene) -> None:
    with _edited(folder) as notebook:
        notebook.metadata.update(title=BREAKING, authors=[{"name": BREAKING}])
        notebook.metadata.language_info = {"name": BREAKING, "pygments_lexer": BREAKING, "codemirror_mode": BREAKING}
        state = {"state": {BREAKING: BREAKING}, "version_major": 2, "version_minor": 0}
        notebook.metadata.widgets = {"application/vnd.jupyter.widget-state+json": state}
        for cell in notebook.cells:
            cell.metadata.update(tags=[BREAKING], name=BREAKING, magics_language=BREAKING, slideshow={"slide_type": BREAKING})


def endless_markdown(folder: Path, scene: Scene) -> None:
    """Each of these could begin a formula, and for each the renderer looks for the end."""
    with _edited(folder) as notebook:
        notebook.cells.append(new_markdown_cell("\\begin{a}" * 10_000))
