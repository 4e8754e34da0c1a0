"""Write the course's addresses, which pyproject.toml names, into README and into every lecture and lab.

    python docs/make_links.py

Each notebook gets a line with its page in the book and with a link that opens it on a hosted machine, and a first code cell that
installs the course there.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nbformat

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
COLAB = "https://colab.research.google.com/github"
INSTALL = """# On a hosted machine, installs the course with its data; this takes minutes.
try:
    import course_lib
except ModuleNotFoundError:
    %pip install -q git+{repository}"""
# What pip cannot install with the rest, for the notebooks whose paths begin so. It does nothing where it is installed.
TORCH_TENSORRT = """
from course_lib.engines.backends.torch_tensorrt import installation

_ = installation.main()"""
WITH_TORCH_TENSORRT = ("lectures/13_", "labs/lab11_")


def address(name: str) -> str:
    """One of the course's addresses: `Repository`, or `Book`, which ends with a slash."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"][name]


def sources() -> list[Path]:
    """Every notebook that is edited by hand, but the start page: labs are generated from solutions."""
    return sorted([*ROOT.glob("lectures/*.ipynb"), *ROOT.glob("solutions/*/*.ipynb")])[1:]


def with_links(notebook: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    """A copy with the line and the cell.

    Args:
        notebook: a lecture, or the solution of a lab.
        name: the notebook's path in the repository, as learners get it.
    """
    notebook = nbformat.from_dict(notebook)
    first, *others = notebook.cells
    title, text = first.source.split("\n\n", 1)
    if text.startswith("[Read it"):
        text = text.split("\n\n", 1)[1]
    page = address("Book") + name.replace(".ipynb", ".html")
    read = (
        f"[Read it with its outputs]({page}), which are not stored here"
        if name.startswith("lectures/")
        else f"[Read it in the book]({page})"
    )
    hosted = f"{COLAB}/{address('Repository').removeprefix('https://github.com/')}/blob/main/{name}"
    first.source = f"{title}\n\n{read}, or [open it in Colab]({hosted}).\n\n{text}"
    install = nbformat.v4.new_code_cell(
        INSTALL.format(repository=address("Repository")) + (TORCH_TENSORRT if name.startswith(WITH_TORCH_TENSORRT) else ""),
        id="install",
        metadata={"tags": ["remove-cell"]},  # from the book
    )
    notebook.cells = [first, install, *(cell for cell in others if cell.id != install.id)]
    return notebook


def readme() -> str:
    """README with both addresses: the book's, which the link before the first picture has, and the repository's to clone and to install."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"(git\+|git clone )https://[^`\s]+", rf"\1{address('Repository')}", text)
    return text.replace(re.findall(r"\[Read the course with its outputs\]\(([^)]+)\)", text)[0], address("Book"))


def main() -> None:
    """Change README, and the notebooks whose links are not those of pyproject.toml."""
    (ROOT / "README.md").write_text(readme(), encoding="utf-8")
    for path in sources():
        notebook = nbformat.read(path, as_version=4)
        linked = with_links(notebook, name_in_repository(path))
        if linked != notebook:
            nbformat.write(linked, path)
            print(path.relative_to(ROOT))
    print("now run: course release")


def name_in_repository(path: Path) -> str:
    """The path of a notebook as learners get it."""
    return re.sub("^solutions/", "labs/", path.relative_to(ROOT).as_posix())


if __name__ == "__main__":
    main()
