"""rope.cu as nvcc sees it: every architecture, no warnings, and the memory instructions that it promises."""

import re
import subprocess
from pathlib import Path

import pytest

from course_lib.plugins import compile_with_nvcc, compilers
from course_lib.plugins.launchers import DTYPES

ARCHITECTURES = ("sm_80", "sm_120")
KERNELS = {
    f"rope_{dtype}_{pairs}_{kind}": (dtype, width)
    for dtype in DTYPES
    for pairs in ("halves", "interleaved")
    for kind, width in (("scalar", 1), ("vector", 8))
}


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


def test_every_kernel_has_a_plain_name(ptx: dict[str, str]) -> None:
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


@pytest.mark.parametrize("name", KERNELS)
def test_no_memory_is_touched_before_the_wait(ptx: dict[str, str], name: str) -> None:
    """A kernel that may be launched early must not overtake those before it."""
    assert re.findall(r"griddepcontrol\.(\w+)", ptx[name]) == ["launch_dependents", "wait"]
    before, _, after = ptx[name].partition("griddepcontrol.wait")
    touched = re.compile(r"\b(ld|st)\.global")
    assert not touched.search(before) and touched.search(after)
