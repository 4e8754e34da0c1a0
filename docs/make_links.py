"""Write the address of the published course, which pyproject.toml names, into README and into every lecture and lab.

    python docs/make_links.py

Each notebook gets a line with its page in the book and with a link that opens it on a hosted machine, and a first code cell that
installs the course there. Where pyproject.toml names no address, there are no links, and nothing is installed.
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
GITHUB = "https://github.com/"
# Drivers before 580 cannot run CUDA 13, which the extra's packages are for.
INSTALL = """# On a hosted machine, installs the course with its data; this takes minutes.
# TensorRT comes with it if there is a GPU whose driver is 580 or later.
try:
    import course_lib
except ModuleNotFoundError:
    driver = !nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null
    extra = "[gpu]" if "580" <= "".join(driver)[:3] <= "999" else ""
    %pip install -q "tensorrt-course{extra} @ git+REPOSITORY"
"""
# What pip cannot install with the rest, for the notebooks whose paths begin so. It does nothing where it is installed.
TORCH_TENSORRT = """from course_lib.engines.backends.torch_tensorrt import installation

_ = installation.main()"""
WITH_TORCH_TENSORRT = ("lectures/13_", "labs/lab11_")


def repository() -> str:
    """The address of the published course, "" if it is not published."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project.get("urls", {}).get("Repository", "")).removesuffix("/").removesuffix(".git")


def book(address: str) -> str:
    """Where the workflow of a repository on GitHub publishes the book, with a slash at its end; "" for a repository elsewhere."""
    owner, _, name = address.removeprefix(GITHUB).partition("/")
    return f"https://{owner}.github.io/{name}/" if address.startswith(GITHUB) else ""


def sources() -> list[Path]:
    """Every notebook that is edited by hand, but the start page: labs are generated from solutions."""
    return sorted([*ROOT.glob("lectures/*.ipynb"), *ROOT.glob("solutions/*/*.ipynb")])[1:]


def with_links(notebook: nbformat.NotebookNode, name: str, address: str) -> nbformat.NotebookNode:
    """A copy with the line and the cell.

    Args:
        notebook: a lecture, or the solution of a lab.
        name: the notebook's path in the repository, as learners get it.
        address: of the repository, or "".
    """
    notebook = nbformat.from_dict(notebook)
    first, *others = notebook.cells
    title, text = re.sub(r"\n\n\[Read it [^\n]*", "", first.source).split("\n\n", 1)
    if book(address):
        page = book(address) + name.replace(".ipynb", ".html")
        read = (
            f"[Read it with its outputs]({page}), which are not stored here"
            if name.startswith("lectures/")
            else f"[Read it in the book]({page})"
        )
        hosted = f"https://colab.research.google.com/github/{address.removeprefix(GITHUB)}/blob/main/{name}"
        text = f"{read}, or [open it in Colab]({hosted}).\n\n{text}"
    first.source = f"{title}\n\n{text}"
    course = INSTALL.replace("REPOSITORY", address) if address else ""
    code = (course + TORCH_TENSORRT if name.startswith(WITH_TORCH_TENSORRT) else course).strip()
    tags = {"tags": ["remove-cell"]}  # from the book
    install = [nbformat.v4.new_code_cell(code, id="install", metadata=tags)] if code else []
    notebook.cells = [first, *install, *(cell for cell in others if cell.id != "install")]
    return notebook


def readme(text: str, address: str) -> str:
    """README with the book's address before its first picture and in each row of its syllabus, and with the repository's to clone."""
    text = re.sub(r"\n\[Read the course [^\n]*|\ngit clone [^\n]*| \(\[outputs\]\([^)]*\)\)", "", text)
    if address:
        text = text.replace("\n```text\n", f"\n```text\ngit clone {address} && cd {address.rpartition('/')[2]}\n", 1)
    if site := book(address):
        text = text.replace("\n\n<img", f"\n[Read the course with its outputs]({site}).\n\n<img", 1)
        row = r"^(\| \[\d+ [^]]+\]\((lectures/\w+)[.]ipynb\))"
        text = re.sub(row, rf"\1 ([outputs]({site}\2.html))", text, flags=re.MULTILINE)
    return text


def main() -> None:
    """Change README, and the notebooks whose links are not those of pyproject.toml."""
    address, page = repository(), ROOT / "README.md"
    page.write_text(readme(page.read_text(encoding="utf-8"), address), encoding="utf-8")
    for path in sources():
        notebook = nbformat.read(path, as_version=4)
        linked = with_links(notebook, name_in_repository(path), address)
        if linked != notebook:
            nbformat.write(linked, path)
            print(path.relative_to(ROOT))
    print("now run: course release")


def name_in_repository(path: Path) -> str:
    """The path of a notebook as learners get it."""
    return re.sub("^solutions/", "labs/", path.relative_to(ROOT).as_posix())


if __name__ == "__main__":
    main()
