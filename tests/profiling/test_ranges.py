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


@pytest.fixture
def nvtx(monkeypatch):
    """A stand-in for the package, which notes what it is told."""
    log, module = [], ModuleType("nvtx")
    module.push_range, module.pop_range = lambda name: log.append(f"nvtx {name}"), lambda: log.append("nvtx end")
    monkeypatch.setitem(sys.modules, "nvtx", module)
    return log


def test_ranges_nest_and_an_error_ends_them_and_passes(nvtx):
    with pytest.raises(KeyError), nvtx_range("step"), nvtx_range("infer"):
        nvtx.append("work")
        raise KeyError
    assert nvtx == ["nvtx step", "nvtx infer", "work", "nvtx end", "nvtx end"]


def test_torch_serves_where_the_package_is_missing(monkeypatch):
    log, module = [], ModuleType("torch")
    calls = SimpleNamespace(range_push=log.append, range_pop=lambda: log.append("end"))
    module.cuda = SimpleNamespace(is_available=lambda: True, nvtx=calls)
    monkeypatch.setitem(sys.modules, "nvtx", None)
    monkeypatch.setitem(sys.modules, "torch", module)
    with nvtx_range("step"):
        pass
    assert log == ["step", "end"]


def test_a_function_keeps_its_name_and_its_result(nvtx):
    @nvtx_range("fib")
    def fibonacci(n):
        """Slow."""
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    assert fibonacci(3) == 2
    assert (fibonacci.__name__, fibonacci.__doc__) == ("fibonacci", "Slow.")
    assert nvtx.count("nvtx fib") == nvtx.count("nvtx end") == 5
