"""Render the course as a static site: lectures with what they print, labs, the guide, the library, the cookbook of old code.

    python docs/make_book.py [--no-execute] [--output FOLDER]

Sources are copied to their own folder, so that links between lectures and labs are those of the repository, and solutions are
not among them.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import make_links

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # Python begins with this script's folder
PACKAGES = (
    "recipe",
    "models",
    "precision",
    "plugins",
    "migration",
    "engines",
    "profiling",
    "benchmark",
    "labs",
    "teaching.widgets",
)


def prepare(source: Path) -> bool:
    """Everything that the book is made of, below one folder; returns whether the settings have changed.

    A file that has not changed keeps its time, so that Sphinx keeps its page.
    """
    pages: dict[str, bytes] = {}
    for page in (ROOT / "docs").glob("*.md"):
        text = page.read_text(encoding="utf-8").replace("](../lectures/", "](lectures/").replace("](../labs/", "](labs/")
        pages[page.name] = text.replace("<!-- lectures -->", _lectures()).encode()
    copied = [
        *(ROOT / "docs").glob("*.png"),
        *(ROOT / "docs").glob("*.svg"),
        ROOT / "docs" / "conf.py",
        *(ROOT / "docs").glob("api/*"),
        *(ROOT / "docs").glob("_static/*"),
    ]
    pages |= {str(file.relative_to(ROOT / "docs")): file.read_bytes() for file in copied}
    pages |= {str(file.relative_to(ROOT)): file.read_bytes() for file in ROOT.glob("lectures/figures/*")}
    for notebook in (*ROOT.glob("lectures/*.ipynb"), *ROOT.glob("labs/*/*.ipynb")):
        # the book has the pages of docs/ at its root, and is what the line below a title links to
        text = re.sub(rb"(\]\((?:\.\./)+)docs/", rb"\1", notebook.read_bytes())
        text = re.sub(rb"\[Read it [^\n]* \[open (it in Colab[^\n]*\))\.", rb"[Open \1", text)
        pages[str(notebook.relative_to(ROOT))] = text
    pages[_VIEWS] = _with_outputs(pages[_VIEWS].decode()).encode()
    pages["cookbook.md"] = _cookbook().encode()
    pages["search_scorer.js"] = _search_scorer().encode()
    pages["names_by_version.md"] = _names_by_version().encode()
    pages |= {f"reference/{package}.md": _reference(f"course_lib.{package}").encode() for package in PACKAGES}
    conf = source / "conf.py"
    changed = not conf.is_file() or conf.read_bytes() != pages["conf.py"]
    for name, content in pages.items():
        target = source / name
        if not target.is_file() or target.read_bytes() != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    for stale in {file for file in source.rglob("*") if file.is_file()} - {source / name for name in pages}:
        stale.unlink()
    return changed


_VIEWS = "api/widgets.md"  # its examples are pictures


def _with_outputs(text: str) -> str:
    """A page whose Python is run like the cells of a lecture, by MyST-NB."""
    header = "---\nfile_format: mystnb\nkernelspec: {name: python3, display_name: Python 3}\n---\n"
    return header + text.replace("```python\n", "```{code-cell}\n")


def _search_scorer() -> str:
    """JavaScript that ranks the lecture first that uses the words of a query most; a heading of few words counts much."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for lecture in ROOT.glob("lectures/*.ipynb"):
        for cell in json.loads(lecture.read_text("utf-8"))["cells"]:
            for line in "".join(cell["source"]).lower().splitlines():
                words = [word.rstrip("s") for word in re.findall(r"[a-z][a-z0-9_-]{2,}", line)]
                heading = cell["cell_type"] == "markdown" and line.startswith("#")
                weight = max(1, 16 // max(len(words), 1)) if heading else 1
                for term in [*words, *map(" ".join, pairwise(words))]:
                    counts[term][lecture.stem[:2]] += weight
    shares = {
        term: {number: round(count / found.total(), 2) for number, count in found.most_common(2)}
        for term, found in sorted(counts.items())
        if found.total() > (3 if " " in term else 1)
    }
    return _SCORER.replace("SHARES", json.dumps(shares, separators=(",", ":")))


# Sphinx's own values (searchtools.js), but for `score`.
_SCORER = """var Scorer = {
  shares: SHARES,
  score: ([page, , , , score]) => {
    const query = new URLSearchParams(window.location.search).get("q") ?? "";
    const words = (query.toLowerCase().match(/[a-z][a-z0-9_-]{2,}/g) ?? []).map((word) => word.replace(/s+$/, ""));
    const lecture = page.startsWith("lectures/") ? page.slice(9, 11) : "";
    const pairs = words.slice(1).map((word, at) => `${words[at]} ${word}`).filter((pair) => pair in Scorer.shares);
    return score + (pairs.length ? pairs : words).reduce((sum, term) => sum + 60 * (Scorer.shares[term]?.[lecture] ?? 0), 0);
  },
  objNameMatch: 11, objPartialMatch: 6, objPrio: { 0: 15, 1: 5, 2: -5 }, objPrioDefault: 0,
  title: 15, partialTitle: 7, term: 5, partialTerm: 2,
};
"""


def _lectures() -> str:
    """A list of the lectures: what you learn, and the lab; from the start page's table."""
    cells = json.loads((ROOT / "lectures" / "00_start_here.ipynb").read_text("utf-8"))["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells)
    rows = re.findall(r"^\| \[\d+\. ([^]]+)\]\((\d\d_\w+\.ipynb)\) \| (.+) \| (.*)\|$", text, re.M)
    items = [
        f"1. [{title}](lectures/{page})\\\n   {outcome}" + (f"\\\n   *prepares {labs.strip()}*" if labs else "")
        for title, page, outcome, labs in rows
    ]
    return "\n".join([":::{div} course-lectures", *items, ":::"])


def _cookbook() -> str:
    from docs import cookbook

    return cookbook.page({int(path.name[:2]): f"lectures/{path.name}" for path in ROOT.glob("lectures/*.ipynb")})


def _names_by_version() -> str:
    from docs import conformance

    rows, _ = conformance.check(conformance.course_folders())
    files = [tuple(dict.fromkeys(_place(file) for file in row.files if not file.startswith("solutions/"))) for row in rows]
    return conformance.page([replace(row, files=left) for row, left in zip(rows, files, strict=True) if left])


def _place(file: str) -> str:
    """What a reader calls a file of the course."""
    notebook = re.match(r"(lecture|lab)s/(?:lab)?0?(\d+)", file)
    return f"{notebook[1]} {notebook[2]}" if notebook else "the library"


def _reference(name: str) -> str:
    """A page with the public names of a package, from their docstrings."""
    module = import_module(name)
    names = getattr(module, "__all__", None) or [
        n for n, v in vars(module).items() if _is_own(v, name) and not n.startswith("_")
    ]
    text = [f"# {name}: reference", "", (module.__doc__ or "").split("\n")[0], ""]
    for public in sorted(names):
        thing = getattr(module, public)
        kind = "autoclass" if inspect.isclass(thing) else "autofunction" if callable(thing) else "autodata"
        text += ["```{eval-rst}", f".. {kind}:: {name}.{public}", *(["   :members:"] if kind == "autoclass" else []), "```", ""]
    return "\n".join(text)


def _is_own(value: object, module: str) -> bool:
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__ == module


def main() -> int:
    """Sphinx's exit status; warnings are errors, a dead link is a warning."""
    from sphinx.cmd.build import build_main

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--no-execute", action="store_true", help="leave the lectures without outputs: half a minute instead of some"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "book", help="where the site goes")
    asked = parser.parse_args()
    source = asked.output / "source"
    everything = ["-E"] if prepare(source) else []  # Sphinx does not see that a function in conf.py changed
    os.environ["COURSE_FIGURES"] = "book"  # read by `course_lib.style` in the kernels
    os.environ.setdefault("COURSE_BOOK_URL", make_links.book(make_links.repository()))
    os.environ["XDG_STATE_HOME"] = str(asked.output.resolve() / "state")  # the start page shows no exercise as solved
    os.environ["IPYTHONDIR"] = str(asked.output.resolve() / "ipython")  # kernels warn of their transport, 17 times
    settings = asked.output / "ipython" / "profile_default" / "ipython_kernel_config.py"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("c.IPKernelApp.log_level = 'ERROR'\n", encoding="utf-8")
    cache = asked.output / "executed"  # a lecture that has not changed is not run again
    options = ["-D", "nb_execution_mode=off"] if asked.no_execute else ["-D", f"nb_execution_cache_path={cache}"]
    site = asked.output / "html"
    status = build_main(["-b", "html", "-W", "--keep-going", "-q", *everything, *options, str(source), str(site)])
    print(f"the book: {site / 'index.html'}" if not status else "the book has faults: see the warnings above", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
