"""What several test modules share. Everything is made on first use, once a session."""

import contextlib
import gc
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import course_lib.grading  # noqa: F401  (makes the import of nbformat quick)
from course_lib.recipe import Profile, Recipe
from tests import exports_once, long_tests, warm_processes

# They share no fixture with their file's other tests and take longest, so they go first and to whichever process is free.
ALONE = ("tests/content/test_notebooks.py::test_runs_top_to_bottom", "tests/test_lint.py")

# torch.compile in tests: do not compile a program to see whether the compiler knows this CPU's vector instructions (seven seconds
# with an empty cache), and compile in the process that asks for it instead of in one that imports torch first.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what takes longer than half a second; `make quick`")
    parser.addoption("--record-long", action="store_true", help="write down what does; `make durations`")


# They test how processes start and end, so theirs start as a user's do.
REAL_WORKERS = (
    *("tests/engines/", "tests/doubles/", "tests/labs/framework/test_isolation.py"),
    "tests/labs/test_lab10.py::test_nothing_of_a_submission",  # the server ends a process a moment after its worker
)
_end_of_session = contextlib.ExitStack()
_running = ""


def pytest_configure(config: pytest.Config) -> None:
    controls = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if controls and not config.getoption("--quick"):  # which starts so few processes that a server costs as much as it saves
        folder = _end_of_session.enter_context(tempfile.TemporaryDirectory())
        _end_of_session.enter_context(warm_processes.start(folder))
    warm_processes.install(wanted=lambda: not _running.startswith(REAL_WORKERS))
    if config.getoption("--quick"):
        config.pluginmanager.register(long_tests.Quick())
    if config.getoption("--record-long"):
        config.pluginmanager.register(long_tests.FixtureClock())
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(long_tests.Recorder(long_tests.read() if config.getoption("--quick") else {}))


def pytest_unconfigure() -> None:
    _end_of_session.close()


def pytest_runtest_setup(item: pytest.Item) -> None:
    global _running
    _running = item.nodeid
    if "course_lib.models.export" in sys.modules:  # to import it takes two seconds, and most tests do without
        exports_once.install()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """All that is made here stays until the end: searching it for garbage would take half of the collection, and more later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first, so that no process has a long file left when the other has nothing."""
    seconds: Counter[str] = Counter()
    for name, took in long_tests.read().items():
        seconds[_scope(name)] += took
    items.sort(key=lambda item: (not item.nodeid.startswith(ALONE), -seconds[_scope(item.nodeid)]))


def _scope(nodeid: str) -> str:
    """What one process runs as a whole: a file, or a test that may run alone."""
    return nodeid if nodeid.startswith(ALONE) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n 2`: the tests of a file share a process, and with it its fixtures."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _scope(nodeid)

    return ByFile(config, log)


@pytest.fixture(scope="session", autouse=True)
def solved_exercises_are_not_the_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def nothing_waits_for_the_disk() -> Iterator[None]:
    """No file of a test has to survive a power cut."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True)
def output_has_no_width() -> None:
    """A library sets the width of a terminal for the whole process, and tables would then be cut as on that terminal."""
    os.environ.pop("COLUMNS", None)


@pytest.fixture(scope="session", autouse=True)
def nbgrader_compiles_once() -> Iterator[None]:
    from tests import nbgrader_once

    with pytest.MonkeyPatch.context() as patched:
        nbgrader_once.install(patched)
        yield


@pytest.fixture(scope="session")
def onnx_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("onnx")


def _exported(folder: Path, name: str, dtype: str = "fp32") -> Path:
    import onnx

    from tests.exported import exported

    path = folder / f"{name}{'' if dtype == 'fp32' else '_' + dtype}.onnx"
    onnx.save(exported(name, dtype=dtype), path)
    return path


@pytest.fixture(scope="session")
def wide_onnx(onnx_folder: Path) -> Path:
    return _exported(onnx_folder, "wide")


@pytest.fixture(scope="session")
def wide_fp16_onnx(onnx_folder: Path) -> Path:
    return _exported(onnx_folder, "wide", "fp16")


@pytest.fixture(scope="session")
def small_onnx(onnx_folder: Path) -> Path:
    return _exported(onnx_folder, "small")


@pytest.fixture(scope="session")
def resnet50_onnx(onnx_folder: Path) -> Path:
    return _exported(onnx_folder, "resnet50")


@pytest.fixture(scope="session")
def service_recipe() -> Recipe:
    """One profile for the classifiers: batch 1 to 32, tuned for 8."""
    return Recipe(profiles=(Profile(image={"min": (1, 1, 32, 32), "opt": (8, 1, 32, 32), "max": (32, 1, 32, 32)}),))


@pytest.fixture(scope="session")
def rtx() -> Iterator[Any]:
    """One process of TensorRT for RTX, which starts with the first build."""
    from course_lib.engines import Compiler

    with Compiler("tensorrt_rtx") as compiler:
        yield compiler


@pytest.fixture(scope="session")
def small_plan(rtx: Any, small_onnx: Path, service_recipe: Recipe) -> Any:
    """The small classifier, compiled by TensorRT for RTX."""
    return rtx.build(small_onnx, service_recipe)


@pytest.fixture(scope="session")
def small_ort_plan(small_onnx: Path, service_recipe: Recipe) -> Any:
    """The small classifier for ONNX Runtime, which can run it here."""
    from course_lib import engines

    return engines.build(small_onnx, service_recipe, backend="onnxruntime")


@pytest.fixture(scope="session")
def one_node() -> Callable[..., Any]:
    """Makes a float32 ONNX model of one node with the given input shapes; a string is a dynamic dimension."""
    from onnx import TensorProto, helper

    def make(
        operator: str,
        shapes: Sequence[Sequence[int | str]] = ((4, 4),),
        *,
        name: str = "node",
        domain: str = "",
        output: Any = None,
    ) -> Any:
        inputs = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape) for i, shape in enumerate(shapes)]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)]
        node = helper.make_node(operator, [value.name for value in inputs], ["y"], name=name, domain=domain)
        imports = [helper.make_opsetid("", 20), *([helper.make_opsetid(domain, 1)] if domain else [])]
        return helper.make_model(helper.make_graph([node], "graph", inputs, outputs), opset_imports=imports, ir_version=10)

    return make
