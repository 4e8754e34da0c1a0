"""Code over NVIDIA's bindings, in its own process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from course_lib.errors import CourseError
from course_lib.migration.tables.bindings import NoNetwork
from course_lib.teaching.plugins import sources as module
from course_lib.teaching.plugins.sources import on_bindings


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    module._prepared.cache_clear()


def helper(number: int) -> int:
    return 2 * number


def version(trt: Any) -> None:
    import sys

    import tensorrt

    print(trt.__version__, tensorrt is trt, helper(21), hasattr(trt, "IPluginV3"))
    print("in its own process:", "pytest" not in sys.modules)


def failing(trt: Any) -> None:
    raise KeyError("nothing here")


def endless(trt: Any) -> None:
    while True:
        pass


def _or_skip(said: str) -> str:
    if said.startswith("not run here"):
        pytest.skip(said)
    return said


def test_it_runs_on_the_real_bindings() -> None:
    assert _or_skip(on_bindings(helper, version)).splitlines() == ["10.16.1.11 True 42 True", "in its own process: True"]
    assert _or_skip(on_bindings(helper, version, version="8.6.1")).startswith("8.6.1 True 42 False")


def test_what_goes_wrong_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    _or_skip(on_bindings(helper, version))
    with pytest.raises(CourseError, match=r"on the bindings of TensorRT 10\.16: KeyError: 'nothing here'"):
        on_bindings(failing)
    monkeypatch.setattr(module, "TIME_LIMIT_S", 1.0)
    with pytest.raises(CourseError, match="no end after 1 s"):
        on_bindings(endless)


def test_without_a_registry_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(release: Any) -> Any:
        raise NoNetwork("pip reached no registry")

    module._prepared.cache_clear()
    monkeypatch.setattr(module, "download", unreachable)
    assert on_bindings(helper, version) == "not run here: pip reached no registry"
