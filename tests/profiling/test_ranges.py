"""NVTX ranges: which library marks them, that they nest, and that without one they cost next to nothing."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from course_lib.profiling.timelines import ranges
from course_lib.profiling.timelines.ranges import nvtx_range


@pytest.fixture(autouse=True)
def fresh():
    """Forgets what was found, before and after."""
    ranges._marker.cache_clear()
    yield
    ranges._marker.cache_clear()


def recorder(log, source):
    return lambda name: log.append(f"{source} {name}"), lambda: log.append(f"{source} end")


@pytest.fixture
def nvtx(monkeypatch):
    """A stand-in for the package, which notes what it is told."""
    log, module = [], ModuleType("nvtx")
    module.push_range, module.pop_range = recorder(log, "nvtx")
    monkeypatch.setitem(sys.modules, "nvtx", module)
    return log


@pytest.fixture
def torch(monkeypatch):
    """A PyTorch that is imported and has CUDA."""
    log, module = [], ModuleType("torch")
    push, pop = recorder(log, "torch")
    module.cuda = SimpleNamespace(is_available=lambda: True, nvtx=SimpleNamespace(range_push=push, range_pop=pop))
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setitem(sys.modules, "torch", module)
    return log


def test_ranges_nest_and_the_package_is_preferred(nvtx):
    with nvtx_range("step"), nvtx_range("infer"):
        nvtx.append("work")
    assert nvtx == ["nvtx step", "nvtx infer", "work", "nvtx end", "nvtx end"]


def test_an_error_ends_the_range_and_passes(nvtx):
    with pytest.raises(KeyError), nvtx_range("step"):
        raise KeyError
    assert nvtx == ["nvtx step", "nvtx end"]


def test_a_function_keeps_its_name_and_its_result(nvtx):
    @nvtx_range("fib")
    def fibonacci(n):
        """Slow."""
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    assert fibonacci(3) == 2
    assert (fibonacci.__name__, fibonacci.__doc__) == ("fibonacci", "Slow.")
    assert nvtx.count("nvtx fib") == nvtx.count("nvtx end") == 5


def test_torch_serves_where_the_package_is_missing(torch):
    with nvtx_range("step"):
        pass
    assert torch == ["torch step", "torch end"]
