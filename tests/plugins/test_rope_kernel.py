"""rope.cu itself, compiled by the host's compiler."""

import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.errors import BackendUnavailable, BuildError, EngineError
from course_lib.plugins import compilers, host_launcher, rope_on_host, rope_tables
from course_lib.plugins.launchers import vector_width
from tests.one_line import one_line
from tests.plugins.rope_cases import DTYPES, Case, excess, make_case, random_shapes

SHAPES = random_shapes(60, seed=20, largest=60_000)


def run(case: Case) -> np.ndarray:
    return rope_on_host(case.x, case.cos, case.sin, interleaved=case.interleaved)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_sixty_random_shapes_within_one_rounding_of_float64(dtype: str, interleaved: bool) -> None:
    assert len(SHAPES) >= 50 and len({shape[3] for shape in SHAPES}) > 15
    worst = max(excess(run(make_case(s, dtype, interleaved=interleaved, seed=i)), make_case(s, dtype, interleaved=interleaved, seed=i))
                for i, s in enumerate(SHAPES))  # fmt: skip
    assert 0.05 < worst <= 1, worst  # far below, the bound would prove nothing


@settings(max_examples=150, deadline=None)
@given(
    st.tuples(st.integers(0, 3), st.integers(0, 70), st.integers(0, 35), st.integers(0, 40).map(lambda half: 2 * half)),
    st.sampled_from(list(DTYPES)),
    st.booleans(),
    st.integers(0, 3),
    st.integers(0, 2**32 - 1),
)
def test_any_shape(shape: tuple[int, ...], dtype: str, interleaved: bool, spare: int, seed: int) -> None:
    case = make_case(shape, dtype, interleaved=interleaved, seed=seed, spare=spare)
    assert excess(run(case), case) <= 1


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("which", ["x", "cos", "sin", "y"])
def test_memory_that_is_not_aligned_for_vectors(dtype: str, which: str, interleaved: bool) -> None:
    """One number off: every pointer alone must lead to the scalar path, and nothing beside the result may change."""
    case = make_case((2, 5, 3, 64), dtype, interleaved=interleaved, seed=4)
    arrays = {"x": case.x, "cos": case.cos, "sin": case.sin, "y": np.zeros_like(case.x)}
    memory, views = {}, {}
    for name, array in arrays.items():
        memory[name] = np.full(array.nbytes + 96, 0xA5, np.uint8)
        start = -memory[name].ctypes.data % 32 + (array.itemsize if name == which else 0)
        views[name] = memory[name][start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        views[name][...] = array
    addresses = [views[name].ctypes.data for name in arrays]
    assert vector_width(dtype, addresses, 64) == 1
    before = {name: memory[name].copy() for name in arrays}
    host_launcher()(dtype, *addresses, case.x.shape, interleaved=interleaved)
    assert excess(views["y"], case) <= 1
    views["y"][...] = 0
    assert all(np.array_equal(memory[name], before[name]) for name in arrays)


def test_every_float16_and_bfloat16_survives() -> None:
    """Turned by nothing, each bit pattern comes back: widening and rounding to itself."""
    for kind in (np.float16, ml_dtypes.bfloat16):
        bits = np.arange(65536, dtype=np.uint16)
        numbers = bits[np.isfinite(bits.view(kind).astype(np.float32))].view(kind)
        x = np.concatenate([numbers, np.zeros(-len(numbers) % 32, kind)]).reshape(1, 1, -1, 32)
        y = rope_on_host(x, np.ones((1, 16), np.float32), np.zeros((1, 16), np.float32))
        assert np.array_equal(y.astype(np.float32), x.astype(np.float32))


@pytest.mark.parametrize("width", [1, 4, 8])
def test_a_launch_keeps_cudas_limits(width: int) -> None:
    shapes = [*SHAPES, (1, 1, 32, 128), (8, 4096, 32, 128), (70_000, 3, 5, 64), (1, 1 << 30, 1, 2), (1, 1, 1 << 30, 2)]
    for shape in shapes:
        grid, block = host_launcher().geometry(shape, width)
        assert 1 <= np.prod(block) <= (512 if width == 4 else 256) and block[2] <= 64 and grid[1] <= 65535 and grid[0] < 2**31


def test_launches_and_inputs_that_are_rejected() -> None:
    for shape in ((1, 1, 1, 3), (-1, 1, 1, 4), (1, (1 << 30) + 1, 1, 4)):
        with pytest.raises(EngineError, match="CUDA error 1"):
            host_launcher()("float32", 0, 0, 0, 0, shape)
    with pytest.raises(ValueError, match="not float64"):
        host_launcher()("float64", 0, 0, 0, 0, (1, 1, 1, 4))
    x, (cos, sin) = np.zeros((1, 3, 2, 8), np.float32), rope_tables(3, 8)
    for arguments, said in (
        ((x.astype(np.float64), cos, sin), "not float64"),
        ((x, cos.astype(np.float16), sin), "cos and sin need the dtype float32"),
        ((x, cos[:2], sin[:2]), "at least 3 rows"),
    ):
        with pytest.raises(ValueError, match=said):
            rope_on_host(*arguments)


# ---- compiling


def test_a_compiled_kernel_is_found_again_and_a_changed_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(compilers.CACHE_VARIABLE, str(tmp_path / "kernels"))
    source = tmp_path / "mine.cu"
    source.write_text('extern "C" int answer() { return 41; }\n')
    first = compilers.compile_for_host(source)
    stamp = first.stat().st_mtime_ns
    assert compilers.compile_for_host(source) == first and first.stat().st_mtime_ns == stamp
    (tmp_path / "beside.h").write_text("// a header that the source may include\n")
    assert compilers.compile_for_host(source) != first
    assert compilers.compile_for_host(source, flags=["-DX"]) not in (first, compilers.compile_for_host(source))
    assert first.parent == tmp_path / "kernels" and not [p for p in first.parent.iterdir() if p.is_dir()]


def test_a_source_that_does_not_compile_is_one_line_and_so_is_a_missing_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(compilers.CACHE_VARIABLE, str(tmp_path))
    source = tmp_path / "wrong.cu"
    source.write_text("int f() { return nothing; }\n")
    with one_line(BuildError, "rejects wrong.cu: ", "nothing"):
        compilers.compile_for_host(source)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    with one_line(BackendUnavailable, "C++ compiler"):
        compilers.compile_for_host()
    with one_line(BackendUnavailable, "nvcc"):
        compilers.compile_with_nvcc()
