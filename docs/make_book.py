"""Render the course as a static site: lectures with what they print, labs, the guide, the library, the cookbook of old code.

    python docs/make_book.py [--no-execute] [--output FOLDER]

Sources are copied to a folder of their own, so that links between lectures and labs are those of the repository, and solutions are
not among them.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import shutil
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # for the tests' catalogue of attacks
PACKAGES = ("recipe", "models", "precision", "plugins", "migration", "engines", "profiling", "benchmark", "widgets", "labs")


def prepare(source: Path) -> None:
    """Everything that the book is made of, below one folder."""
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    for page in (ROOT / "docs").glob("*.md"):
        shutil.copy(page, source)
    shutil.copy(ROOT / "docs" / "conf.py", source)
    for folder in ("api", "_static"):
        shutil.copytree(ROOT / "docs" / folder, source / folder)
    for notebook in [*ROOT.glob("lectures/*.ipynb"), *ROOT.glob("labs/*/*.ipynb")]:
        target = source / notebook.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(notebook, target)
    (source / "cookbook.md").write_text(_cookbook(), encoding="utf-8")
    (source / "names_by_version.md").write_text(_names_by_version(), encoding="utf-8")
    gamed = source / "how_benchmarks_are_gamed.md"
    gamed.write_text(_with_hand_ins(gamed.read_text(encoding="utf-8")), encoding="utf-8")
    (source / "reference").mkdir()
    for package in PACKAGES:
        (source / "reference" / f"{package}.md").write_text(_reference(f"course_lib.{package}"), encoding="utf-8")


def _cookbook() -> str:
    from course_lib.migration import cookbook

    return cookbook.page({int(path.name[:2]): f"lectures/{path.name}" for path in ROOT.glob("lectures/*.ipynb")})


def _names_by_version() -> str:
    from course_lib.migration import conformance

    rows, _ = conformance.check(conformance.course_folders())
    files = [tuple(file for file in row.files if not file.startswith("solutions/")) for row in rows]
    return conformance.page([replace(row, files=left) for row, left in zip(rows, files, strict=True) if left])


def _with_hand_ins(page: str) -> str:
    """The page with a table of the tests' attacks where it asks for one. A learner's copy of the course has no tests."""
    if not (ROOT / "tests" / "attacks").is_dir():
        return page
    from tests.attacks import catalogue

    return re.sub(r"<!-- hand-ins: (\w+) -->", lambda found: catalogue.table(found[1]), page)


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
    prepare(source)
    os.environ["COURSE_FIGURES"] = "svg"  # read by `course_lib.style` in the kernels
    cache = asked.output / "executed"  # a lecture that has not changed is not run again
    options = ["-D", "nb_execution_mode=off"] if asked.no_execute else ["-D", f"nb_execution_cache_path={cache}"]
    site = asked.output / "html"
    status = build_main(["-b", "html", "-W", "--keep-going", "-q", *options, str(source), str(site)])
    print(f"the book: {site / 'index.html'}" if not status else "the book has faults: see the warnings above", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
