"""Which test files cover a module: ``python -m tests.covering course_lib/engines/plan.py ...``

A test file covers a module at distance 1 when it imports the module, or a name of it through its package; at distance 2 when it
imports a module that does, and so on. The nearest test files are listed.
"""

import ast
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "course_lib").rglob("*.py"))
}

# What a module imports by name, where no `import` statement tells.
BY_NAME = {
    "course_lib.labs": [name for name in MODULES if name.endswith(".lab")],
    "course_lib.exercises.exercise": [name for name in MODULES if name.startswith("course_lib.exercises.lecture")],
    "course_lib.engines.registry": [name for name in MODULES if name.startswith("course_lib.engines.backends.")],
    "course_lib.engines.worker.parent": ["course_lib.engines.worker.child"],
}


@cache
def _homes(package: str) -> dict[str, str]:
    """The module of each name that a package gathers."""
    tree = ast.parse(MODULES[package].read_text(encoding="utf-8"))
    gathering = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in MODULES]
    return {alias.asname or alias.name: str(node.module) for node in gathering for alias in node.names}


@cache
def imported(path: Path) -> set[str]:
    """Modules of the library that a file imports, with names of a package followed to the module that defines them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & MODULES.keys()
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else _homes(node.module).get(alias.name, node.module))
    return found


@cache
def _imports() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """What each module of the library imports, and each test file."""
    library = {name: imported(path) for name, path in MODULES.items() if path.name != "__init__.py"}
    library |= {name: library.get(name, set()).union(found) for name, found in BY_NAME.items()}
    files = [path for path in ROOT.glob("tests/**/test_*.py") if "samples" not in path.parts]
    return library, {str(path.relative_to(ROOT)): imported(path) for path in files}


def covering(module: str) -> list[tuple[int, str]]:
    """Test files with their distance from `module`, the nearest ones only."""
    library, tests = _imports()
    reached, distance = {module}, 0
    while True:
        distance += 1
        if near := [name for name, names in tests.items() if names & reached]:
            return [(distance, name) for name in sorted(near)]
        wider = reached | {name for name, names in library.items() if names & reached}
        if wider == reached:
            return []
        reached = wider


def main() -> None:
    for path in sys.argv[1:]:
        module = ".".join(Path(path).resolve().relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if module not in MODULES:
            sys.exit(f"{path}: expected a file of course_lib, such as course_lib/engines/plan.py")
        for distance, name in covering(module) or [(0, "no test file imports it")]:
            print(distance, name)


if __name__ == "__main__":
    main()
