import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from course_lib._util import unsolved

CELLS = {
    "find": "from course_lib import labs\nlabs.find('lab01')",
    "early": "unknown",
    "task": "raise NotImplementedError('Task 2 and Task 3 are not solved yet')  # your code here",
    "dependent": "recipe",
    "function": "def mine():\n    return recipee\nmine()",
    "own": "raise NotImplementedError('a method of mine')",
    "other": "1 / 0",
}


def test_unsolved_cells_show_cards_and_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    cells = [nbformat.v4.new_code_cell(source, id=name) for name, source in CELLS.items()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(notebook, timeout=120)
    outputs = {}
    with client.setup_kernel():
        for index, name in enumerate(CELLS):
            if name == "find":
                client.execute_cell(notebook.cells[index], index)
                continue
            with pytest.raises(CellExecutionError):
                client.execute_cell(notebook.cells[index], index)
            outputs[name] = notebook.cells[index].outputs
    assert "Task 2 and Task 3: not solved yet" in outputs["task"][0].data["text/html"]
    assert "recipe: not defined. If the cell of Task 2 and Task 3 defines" in outputs["dependent"][0].data["text/plain"]
    unsolved.show_unsolved_as_cards()  # nothing to do outside a notebook
    assert [outputs[name][0].output_type for name in ("early", "function", "own", "other")] == ["error"] * 4
