"""What an import may load, and which floor may import which."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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
        *("bert", "detector_training", "export", "grid_detector", "residual_cnn", "resnet", "training", "transformer"),
        *("u_net", "vision_transformer", "weights"),
    )
} | {f"course_lib.labs.{name}" for name in ("lab02_network", "lab02_reference", "lab04_network", "lab05_network")}
WORKER_MODULES = {
    f"course_lib.engines.{name}"
    for name in (
        *("worker", "wire", "base", "layers", "layer_sources", "environments", "cuda_driver", "backends", "build", "cache"),
        *("ort", "ort_session", "onnx_file", "openvino_cpu", "torch_engine", "torch_graphs", "torch_trt"),
        *("ort_layers", "torch_trt_keywords", "torch_trt_options"),
        *("progress", "cuda_graph", "cuda_stream", "two_clocks", "trt"),
        *(
            f"trt.{name}"
            for name in (
                "builder",
                "config",
                "execution",
                "loaded",
                "log",
                "memory",
                "profiler",
                "progress",
                "refit",
                "runtime",
            )
        ),
        "trt.timing_cache",
    )
}

COMMAND = "the course command"
FLOORS = {
    "errors": -1,
    **dict.fromkeys(
        ("course_lib", "bars", "cpu_int8", "files", "installation", "lazy", "model_file", "percent", "steps", "style"), 0
    ),
    **dict.fromkeys(("recipe", "models", "precision", "plugins", "migration"), 1),
    "engines": 2,
    **dict.fromkeys(("profiling", "benchmark"), 3),
    **dict.fromkeys(("labs", "widgets"), 4),
    "grading": 5,
    COMMAND: 6,
}
COMMAND_MODULES = {"__main__", "cli", "console", "demo", "bench_files"}

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


def test_importing_the_library_loads_nothing_heavy() -> None:
    assert _run(f"import sys, course_lib; print(sorted(set({HEAVY!r}) & set(sys.modules)))").strip() == "[]"


def test_every_module_imports_without_torch_and_without_any_backend() -> None:
    modules = [module for module in MODULES if module not in TORCH_MODULES]
    assert len(modules) > 30, "the list of modules came out too short to prove anything"
    _run(BLOCK.format(condition=f"top in {HEAVY!r}", modules=modules))


def test_the_torch_modules_are_still_there() -> None:
    assert set(MODULES) >= TORCH_MODULES


def test_a_worker_needs_numpy_and_the_standard_library_only() -> None:
    condition = "top not in {*sys.stdlib_module_names, 'course_lib', 'numpy'}"
    assert set(MODULES) >= WORKER_MODULES
    _run(BLOCK.format(condition=condition, modules=sorted(WORKER_MODULES)))


def _group(module: str) -> str:
    """The package of the table of floors that a module belongs to."""
    name = module.split(".")[1] if "." in module else module
    return COMMAND if name in COMMAND_MODULES else name


def _imports(module: str) -> Iterator[tuple[str, int, bool]]:
    """Every import of a course module, also within functions: its full name, the line, and whether only a type checker sees it."""
    path = PACKAGE.parent.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
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


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_from_floors_below_its_own_only(module: str) -> None:
    own = _group(module)
    assert own in FLOORS, f"{module} is on no floor: add its package to the table above"
    for imported, line, _ in _imports(module):
        group = _group(imported)
        assert group == own or FLOORS[group] < FLOORS[own], f"{module}:{line} imports {imported}, which is not below it"


def test_no_two_modules_import_each_other() -> None:
    pairs = {(module, imported) for module in MODULES for imported, _, unseen in _imports(module) if not unseen}
    # a package's __init__ gathers its modules; what they import is one another, by full name
    assert not {pair for pair in pairs if pair[::-1] in pairs and pair[0] != pair[1]}


def test_nothing_imports_the_command() -> None:
    for module in MODULES:
        for imported, line, _ in _imports(module):
            assert imported != "course_lib.cli" or module == "course_lib.__main__", f"{module}:{line}"
