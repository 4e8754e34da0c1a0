"""What several test modules share. Everything is made on first use, once a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import course_lib.grading  # noqa: F401  (makes the import of nbformat quick)
from course_lib.recipe import Profile, Recipe
from tests import long_tests

# They share no fixture with their file's other tests and take longest, so they go first and to whichever process is free.
ALONE = ("tests/test_notebooks.py::test_runs_top_to_bottom", "tests/test_lint.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what takes longer than half a second; `make quick`")
    parser.addoption("--record-long", action="store_true", help="write down what does; `make durations`")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        config.pluginmanager.register(long_tests.Quick())
    if config.getoption("--record-long") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(long_tests.Recorder())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(ALONE))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `-n 2`: the tests of a file share a process, and with it its fixtures."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.startswith(ALONE) else nodeid.partition("::")[0]

    return ByFile(config, log)


@pytest.fixture(scope="session", autouse=True)
def alembic_is_asked_once() -> Iterator[None]:
    """nbgrader starts a process for each new gradebook to ask which schema it has itself."""
    import nbgrader.api

    asked = nbgrader.api.get_alembic_version
    nbgrader.api.get_alembic_version = cache(asked)
    yield
    nbgrader.api.get_alembic_version = asked


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
def resnet50_fp16_onnx(onnx_folder: Path) -> Path:
    return _exported(onnx_folder, "resnet50", "fp16")


@pytest.fixture(scope="session")
def service_recipe() -> Recipe:
    """One profile for the classifiers: batch 1 to 32, tuned for 8."""
    return Recipe(profiles=(Profile(image={"min": (1, 1, 32, 32), "opt": (8, 1, 32, 32), "max": (32, 1, 32, 32)}),))


@pytest.fixture(scope="session")
def small_plan(small_onnx: Path, service_recipe: Recipe) -> Any:
    """The small classifier, compiled by TensorRT for RTX."""
    from course_lib import engines

    return engines.build(small_onnx, service_recipe, backend="tensorrt_rtx")


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
