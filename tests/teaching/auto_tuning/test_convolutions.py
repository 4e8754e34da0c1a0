"""Every algorithm against PyTorch's convolution in double precision; the counts against formulas worked out by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.teaching.auto_tuning.convolutions import ALGORITHMS, direct, fft, implicit_gemm, winograd


def problem(c: int, k: int, height: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((c, height, width)).astype(np.float32), rng.standard_normal((k, c, 3, 3)).astype(np.float32)


def exact(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return torch.conv2d(torch.from_numpy(x)[None].double(), torch.from_numpy(w).double(), padding=1)[0].numpy()


def error(x: np.ndarray, w: np.ndarray, result: np.ndarray) -> float:
    reference = exact(x, w)
    return float(np.linalg.norm(result - reference) / np.linalg.norm(reference))


@settings(deadline=None, max_examples=15)
@given(c=st.integers(1, 9), k=st.integers(1, 70), height=st.integers(1, 3), width=st.integers(1, 5), seed=st.integers(0, 9))
def test_all_compute_the_same(c, k, height, width, seed):
    x, w = problem(c, k, 4 * height, 4 * width, seed)
    for name, algorithm in ALGORITHMS.items():
        found = algorithm(x, w)
        assert found.result.shape == (k, 4 * height, 4 * width) and found.result.dtype == np.float32
        assert error(x, w, found.result) < 2e-5, name


def test_half_precision_costs_winograd_most():
    x, w = problem(32, 32, 16, 16)
    errors = [error(x, w, run(x, w, np.float16).result) for run in (direct, winograd, ALGORITHMS["Winograd 4x4"])]
    assert errors == sorted(errors) and errors[-1] > 2 * errors[0]


def test_multiplications():
    x, w = problem(8, 16, 12, 12)
    assert direct(x, w).multiplications == 16 * 8 * 9 * 144
    # 36 tiles of 2x2, each 4x4 products for every pair of channels; the transforms only add
    assert winograd(x, w).multiplications == 36 * 16 * 16 * 8
    # 9 tiles of 4x4; B has 12 factors that are not 0 or 1, used on 6 + 6 vectors, A^T has 6, on 6 + 4
    assert winograd(x, w, m=4).multiplications == 9 * (36 * 16 * 8 + 8 * 12 * 12 + 16 * 6 * 10)
    # spectra of 14x14 numbers have 14x8 complex values; 24 transforms of 196 numbers
    assert fft(x, w).multiplications == 4 * 16 * 8 * 14 * 8 + round(24 * 196 * np.log2(196))


@pytest.mark.parametrize(("tile", "tiles"), [((144, 16, 72), 1), ((128, 16, 32), 2 * 1 * 3), ((100, 10, 50), 2 * 2 * 2)])
def test_implicit_gemm_multiplies_whole_tiles(tile, tiles):
    x, w = problem(8, 16, 12, 12)  # 144 pixels, 16 channels, depth 72
    found = implicit_gemm(x, w, tile=tile)
    assert found.multiplications == tiles * np.prod(tile)
    assert error(x, w, found.result) < 1e-6
