"""The Python plugins against NVIDIA's bindings of TensorRT 10.16 and 11.4."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from course_lib.errors import BackendUnavailable
from course_lib.plugins import quick_rope, rope_plugin
from tests.plugins.contracts import checks_of, run_contract

SCRIPT = Path(__file__).with_name("contract.py")
CHECKS = checks_of(SCRIPT)


@pytest.fixture(scope="module", params=["10.16", "11.4"])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return run_contract(SCRIPT, request.param, tmp_path_factory.mktemp("bindings"))


@pytest.mark.parametrize("name", CHECKS)
def test_contract(results: dict[str, str | None], name: str) -> None:
    assert results[name] is None, results[name]


@pytest.mark.parametrize(("make", "said"), [(rope_plugin, "no IPluginV3"), (quick_rope, "no quick plugins")])
def test_versions_that_are_too_old(make: Callable[[Any], Any], said: str) -> None:
    old: Any = ModuleType("tensorrt_of_old")
    old.__version__ = "8.6.0"
    with pytest.raises(BackendUnavailable, match=f"TensorRT 8.6.0 has {said}"):
        make(old)
