"""rope.cu as nvcc sees it: every architecture, no warnings, and the memory instructions that it promises."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from course_lib.errors import BackendUnavailable
from course_lib.plugins import PycudaRope, compile_with_nvcc, compilers, launchers
from course_lib.plugins.launchers import DTYPES, geometry, kernel_name, pycuda_options, pycuda_source

ARCHITECTURES = ("sm_80", "sm_89", "sm_90", "sm_120")
KERNELS = {kernel_name(d, interleaved=i, width=w): (d, w) for d in DTYPES for i in (False, True) for w in (1, 8)}


@pytest.fixture(scope="module")
def ptx(nvcc: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The body of each kernel."""
    output = tmp_path_factory.mktemp("ptx") / "rope.ptx"
    subprocess.run([nvcc, "-std=c++17", "-O3", "-arch=sm_90", "-ptx", str(compilers.SOURCE), "-o", str(output)], check=True)
    return dict(re.findall(r"\.entry (\w+)\((.*?)\n}", output.read_text(), re.DOTALL))


def test_all_architectures_without_a_warning(nvcc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compilers.CACHE_VARIABLE, str(tmp_path))
    library = compile_with_nvcc(architectures=ARCHITECTURES).read_bytes()
    assert all(name.encode() in library for name in KERNELS)


def test_a_warning_is_an_error(nvcc: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compilers.CACHE_VARIABLE, str(tmp_path))
    source = tmp_path / "careless.cu"
    source.write_text("__global__ void kernel(float* x) { int unused; x[0] = 1; }\n")
    with pytest.raises(compilers.BuildError, match="unused"):
        compile_with_nvcc(source, architectures=("sm_90",))


def test_the_kernels_have_the_names_that_pycuda_asks_for(ptx: dict[str, str]) -> None:
    assert set(ptx) == set(KERNELS) and len(KERNELS) == 12


@pytest.mark.parametrize("name", KERNELS)
def test_every_access_is_as_wide_as_promised(ptx: dict[str, str], name: str) -> None:
    """16 bytes a load and a store in the vector kernels: a compiler may split what the source writes as one."""
    dtype, width = KERNELS[name]
    stores = re.findall(r"\bst\.global\S*", ptx[name])
    loads = re.findall(r"\bld\.global\S*", ptx[name])
    assert len(stores) == 2, "one for either half of the pairs"
    if width == 1:
        assert len(loads) == 4 and not any(".v" in access for access in stores + loads)
    else:
        tables = 2 if dtype == "float32" else 4  # eight float32 cosines are two loads
        assert len(loads) == 2 + tables and all(".v4." in access for access in stores + loads)
    streamed = [access for access in loads if ".cs" in access]
    assert len(streamed) == (0 if width == 1 else 2), "x is read once, and a vector of it leaves the caches first"
    assert all(".nc" in access for access in loads if access not in streamed), "the tables go through the read-only path"


def test_the_indices_need_no_division(ptx: dict[str, str]) -> None:
    assert not any(re.search(r"\b(div|rem)\.[su]", body) for body in ptx.values())


@pytest.mark.parametrize("name", KERNELS)
def test_no_memory_is_touched_before_the_wait(ptx: dict[str, str], name: str) -> None:
    """A kernel that may be launched early must not overtake those before it."""
    assert re.findall(r"griddepcontrol\.(\w+)", ptx[name]) == ["launch_dependents", "wait"]
    before, _, after = ptx[name].partition("griddepcontrol.wait")
    touched = re.compile(r"\b(ld|st)\.global")
    assert not touched.search(before) and touched.search(after)


def test_there_is_no_wait_for_an_architecture_that_has_none(nvcc: str, tmp_path: Path) -> None:
    output = tmp_path / "rope.ptx"
    subprocess.run([nvcc, "-std=c++17", "-O3", "-arch=sm_80", "-ptx", str(compilers.SOURCE), "-o", str(output)], check=True)
    assert ".entry" in output.read_text() and "griddepcontrol" not in output.read_text()


def test_registers_leave_room_for_enough_threads(nvcc: str, tmp_path: Path) -> None:
    """At 64 registers or fewer four blocks of 256 threads share a multiprocessor: enough loads in flight to fill the memory bus."""
    flags = ("-std=c++17", "-O3", "-arch=sm_90", "-cubin", "-Xptxas=-v")
    command = [nvcc, *flags, str(compilers.SOURCE), "-o", str(tmp_path / "rope.cubin")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    registers = [int(number) for number in re.findall(r"Used (\d+) registers", said)]
    assert len(registers) == 12 and max(registers) <= 64
    assert re.findall(r"(\d+) bytes spill", said) == ["0"] * 24


# ---- pycuda


def test_what_pycuda_is_given_compiles_as_pycuda_compiles_it(nvcc: str, tmp_path: Path) -> None:
    options = pycuda_options()
    assert options["no_extern_c"]
    source = tmp_path / "kernel.cu"
    source.write_text(pycuda_source())
    folders = [f"-I{folder}" for folder in options["include_dirs"]]
    command = [options["nvcc"], "--cubin", *options["options"], "-arch", "sm_90", *folders, "kernel.cu"]
    subprocess.run(command, check=True, cwd=tmp_path)
    assert all(name.encode() in (tmp_path / "kernel.cubin").read_bytes() for name in KERNELS)


class FakeModule:
    """As `pycuda.compiler.SourceModule`; keeps what was launched."""

    launched: ClassVar[list[Any]] = []

    def __init__(self, source: str, **options: Any) -> None:
        assert "rotate" in source and options["no_extern_c"]

    def get_function(self, name: str) -> FakeModule:
        assert name in KERNELS
        self.name = name
        return self

    def prepare(self, types: str) -> None:
        assert types == "PPPPiiii"

    def prepared_async_call(self, grid: Any, block: Any, stream: Any, *arguments: int) -> None:
        FakeModule.launched.append((self.name, grid, block, stream, arguments))


def test_pycuda_launches_the_same_kernels_on_the_same_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler: Any = ModuleType("pycuda.compiler")
    compiler.SourceModule = FakeModule
    monkeypatch.setitem(sys.modules, "pycuda", ModuleType("pycuda"))
    monkeypatch.setitem(sys.modules, "pycuda.compiler", compiler)
    monkeypatch.setattr(launchers, "nvcc", lambda: "nvcc")
    launch = PycudaRope()
    shape = (8, 4096, 32, 128)
    launch("float16", 0x1000, 0x2000, 0x3000, 0x4000, shape, stream="a stream")
    launch("float32", 0x1000, 0x2000, 0x3004, 0x4000, shape, interleaved=True)
    launch("float32", 0, 0, 0, 0, (0, 4096, 32, 128))
    assert FakeModule.launched == [
        ("rope_float16_halves_vector", *geometry(shape, 8), "a stream", (0x1000, 0x2000, 0x3000, 0x4000, *shape)),
        ("rope_float32_interleaved_scalar", *geometry(shape, 1), None, (0x1000, 0x2000, 0x3004, 0x4000, *shape)),
    ]


def test_pycuda_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda.compiler", None)
    with pytest.raises(BackendUnavailable, match="pip install pycuda"):
        PycudaRope()
