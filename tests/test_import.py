"""What an import may load, and which floor may import which."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import course_lib

PACKAGE = Path(course_lib.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__") for path in PACKAGE.rglob("*.py")
)
HEAVY = ("torch", "onnxruntime", "tensorrt", "tensorrt_rtx")
# These define torch modules or export them; `course_lib.models` imports each when one of its names is used.
TORCH_MODULES = {
    f"course_lib.models.{name}"
    for name in (
        *("export", "gpt", "gpt_onnx"),
        *("grid_detector", "residual_cnn", "transformer", "weights"),
    )
} | {
    f"course_lib.labs.{name}"
    for name in (
        "lab02_fusion.given",
        "lab02_fusion.reference",
        "lab04_mixed_precision.network",
        "lab07_dynamic_shapes.network",
        "lab06_qat.float_network",
        "lab06_qat.reference",
        "lab11_torch_tensorrt.given",
        "lab13_generation.network",
    )
}
# A worker may run in an environment that holds nothing of the course's: only TensorRT and numpy.
WORKER_MODULES = {module for module in MODULES if module.startswith("course_lib.engines")}


def _floors() -> dict[str, int]:
    """The table of docs/architecture.md: number of the floor by package. `errors` lies below all of them."""
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| ([^|]+) \|", page, re.MULTILINE)
    floors = {name: int(number) for number, packages in rows for name in re.findall(r"`(\w+)`", packages)}
    return {"errors": -1, "course_lib": 0, **floors}


FLOORS = _floors()

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if {condition}:
            raise ModuleNotFoundError(f"blocked: {{name}}", name=name)
sys.meta_path.insert(0, Block())
import importlib
for module in {modules!r}:
    importlib.import_module(module)
"""


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_importing_the_library_loads_that_one_module() -> None:
    code = "import sys; before = set(sys.modules); import course_lib; print(sorted(set(sys.modules) - before))"
    assert _run(code).strip() == "['course_lib']"


def test_every_module_imports_without_torch_and_without_any_backend() -> None:
    modules = [module for module in MODULES if module not in TORCH_MODULES]
    assert len(modules) > 30 and set(MODULES) >= TORCH_MODULES
    _run(BLOCK.format(condition=f"top in {HEAVY!r}", modules=modules))


def test_a_worker_needs_numpy_and_the_standard_library_only() -> None:
    condition = "top not in {*sys.stdlib_module_names, 'course_lib', 'numpy'}"
    assert set(MODULES) >= WORKER_MODULES
    _run(BLOCK.format(condition=condition, modules=sorted(WORKER_MODULES)))


def _group(module: str) -> str:
    """The package of the table of floors that a module belongs to."""
    return module.split(".")[1] if "." in module else module


def _imports(module: str) -> Iterator[tuple[str, int, bool]]:
    """Every import of a course module, also within functions: its full name, the line, and whether only a type checker sees it."""
    path = PACKAGE.parent.joinpath(*module.split("."))
    path = path / "__init__.py" if (path / "__init__.py").is_file() else path.with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")]
    unseen = {id(child) for guard in guards for statement in guard.body for child in ast.walk(statement)}
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: a relative import"
            base = node.module or ""
            names = [full if (full := f"{base}.{alias.name}") in MODULES else base for alias in node.names]
        for name in names:
            if name.partition(".")[0] == "course_lib":
                yield name, node.lineno, id(node) in unseen


def test_a_module_imports_from_floors_below_its_own_only() -> None:
    assert {_group(module) for module in MODULES} <= FLOORS.keys(), "a package is on no floor: add it to the table above"
    wrong = [
        f"{module}:{line} imports {imported}, which is not below it"
        for module in MODULES
        for imported, line, _ in _imports(module)
        if _group(imported) != _group(module) and FLOORS[_group(imported)] >= FLOORS[_group(module)]
    ]
    assert wrong == []


def test_no_two_modules_import_each_other() -> None:
    pairs = {(module, imported) for module in MODULES for imported, _, unseen in _imports(module) if not unseen}
    # a package's __init__ gathers its modules; what they import is one another, by full name
    assert not {pair for pair in pairs if pair[::-1] in pairs and pair[0] != pair[1]}


LABS = {module.split(".")[2] for module in MODULES if module.startswith("course_lib.labs.lab")}


def test_a_lab_imports_the_framework_and_itself() -> None:
    for module in (module for module in MODULES if module.startswith("course_lib.labs.")):
        others = LABS - {module.split(".")[2]}
        for imported, line, _ in _imports(module):
            assert not others & set(imported.split(".")[2:3]), (
                f"{module}:{line} imports {imported}, which belongs to another lab"
            )


def test_what_runs_with_learner_code_imports_nothing_that_judges() -> None:
    for module in (module for module in MODULES if ".sandboxed." in module):
        for imported, line, _ in _imports(module):
            assert not {"judge", "reference", "grading"} & set(imported.split(".")), f"{module}:{line} imports {imported}"


def test_every_lab_has_the_same_first_file() -> None:
    assert {module.split(".")[2] for module in MODULES if module.endswith(".lab")} - {"framework"} == LABS


def _named_after_their_module() -> Iterator[str]:
    for module in MODULES:
        path = PACKAGE.parent.joinpath(*module.split(".")).with_suffix(".py")
        own = module.rpartition(".")[2]
        if path.is_file():
            tree = ast.parse(path.read_text(encoding="utf-8"))
            yield from (module for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == own)


def test_no_function_bears_the_name_of_its_module() -> None:
    """Imported from its package, such a name means the function or the module, by what was imported before."""
    assert list(_named_after_their_module()) == []
