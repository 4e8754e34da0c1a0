"""Excerpts of files, and CUDA C++ from a text, run on the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from course_lib.teaching.plugins.sources import call_on_host, excerpt

TWICE = """
#include "cuda_on_host.h"
__global__ void twice(const float* x, float* y, float plus, int64_t count) {
  const int64_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = 2 * x[i] + plus;
}
extern "C" int run(const float* x, float* y, float plus, int64_t count) {
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(count < 0 ? 2048 : 64);
  config.gridDim = dim3((count + 63) / 64);
  return cudaLaunchKernelEx(&config, twice, x, y, plus, count);
}
"""


@pytest.fixture(autouse=True)
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_KERNELS", str(tmp_path / "kernels"))


def test_excerpts_have_the_numbers_of_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "some.cu"
    file.write_text("zero\none {\n  two\n}\nthree\n}\n")
    assert excerpt(file, "one", "}").splitlines()[1:] == ["   2  one {", "   3    two", "   4  }"]
    assert excerpt(file, "three", "three").splitlines()[1:] == ["   5  three"]
    with pytest.raises(ValueError, match=r"no line of some.cu contains 'four'"):
        excerpt(file, "four", "}")
    with pytest.raises(ValueError, match=r"from 5 on contains 'one'"):
        excerpt(file, "three", "one")


def test_a_kernel_from_a_text() -> None:
    x = np.arange(100, dtype=np.float32)
    y = np.zeros_like(x)
    call_on_host(TWICE, "run", x, y, 0.5, x.size)
    assert np.array_equal(y, 2 * x + 0.5)
