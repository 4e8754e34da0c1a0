"""Attention as an AOT quick plugin: against NVIDIA's bindings of TensorRT 10.15 to 11.4, and against its kernel as nvcc compiles it.

`tests/gpu/test_attention.py` launches the kernel from its PTX.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from course_lib.errors import BackendUnavailable
from course_lib.plugins import aot_plugin, quick_attention
from course_lib.plugins.compilers import compile_to_ptx, compile_with_nvcc
from tests.plugins.attention_launches import BLOCK, GRIDS, SHARED_BYTES
from tests.plugins.contracts import checks_of, run_contract

SCRIPT = Path(__file__).with_name("attention_contract.py")


@pytest.fixture(scope="module", params=["10.15", "10.16", "11.0", "11.4"])
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    return run_contract(SCRIPT, request.param, tmp_path_factory.mktemp("bindings"))


@pytest.mark.parametrize("name", checks_of(SCRIPT))
def test_contract(results: dict[str, str | None], name: str) -> None:
    assert results[name] is None, results[name]


def test_versions_without_aot_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    old: Any = SimpleNamespace(__name__="tensorrt_of_old", __version__="10.8.0")
    with pytest.raises(BackendUnavailable, match=r"10\.8\.0 has no quick plugins"):
        quick_attention(old, "")
    monkeypatch.setattr(aot_plugin, "plugin_module", lambda trt: SimpleNamespace(register=None, impl=None))
    with pytest.raises(BackendUnavailable, match=r"10\.8\.0 has no AOT quick plugins: they came with 10\.9"):
        quick_attention(old, "")


def test_the_ptx_has_the_entry_that_tensorrt_launches(nvcc: str) -> None:
    """TensorRT passes an input, two numbers of 32 bits and an output, in this order."""
    ptx = compile_to_ptx(aot_plugin.SOURCE)
    ((parameters, bounds),) = re.findall(rf"\.visible \.entry {aot_plugin.KERNEL}\((.*?)\)(.*?){{", ptx, re.DOTALL)
    assert re.findall(r"\.param \.(\w+)", parameters) == ["u64", "u32", "u32", "u64"]
    assert f".maxntid {aot_plugin.THREADS}, 1, 1" in bounds and ".target sm_80" in ptx


def test_the_launcher_in_cpp_has_the_same_grid(nvcc: str) -> None:
    flags = ("-Xlinker", "--wrap=__cudaPushCallConfiguration")
    recorder = Path(__file__).with_name("recorded_launch.cu")
    library = ctypes.CDLL(str(compile_with_nvcc(aot_plugin.SOURCE, recorder, architectures=("sm_90",), flags=flags)))
    recorded = (ctypes.c_uint * 7).in_dll(library, "recorded")
    for shape, grid in GRIDS.items():
        library.attention_launch(None, None, *map(ctypes.c_int, shape), None)
        assert list(recorded) == [*grid, *BLOCK, SHARED_BYTES], shape
    assert SHARED_BYTES <= 48 * 1024, "more needs cudaFuncSetAttribute, which TensorRT does not call for a plugin's kernel"
