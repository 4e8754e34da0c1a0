"""The same convolution computed in four ways, with the number of multiplications: the algorithms from which a compiler chooses.

All four take an image ``(C, H, W)`` and weights ``(K, C, 3, 3)``, pad with one zero on each side, and give ``(K, H, W)`` in float32.
`dtype` is the type that the multiplier reads; sums are float32, as on a Tensor Core. Work that depends only on the weights is done at
build time and is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from course_lib import style

_Array = np.ndarray


@dataclass(frozen=True)
class Convolved:
    """A convolution's result and its cost.

    Attributes:
        result: shape ``(K, H, W)``, float32.
        multiplications: number of multiplications of real numbers at run time.
        scratch_bytes: memory for intermediate results, beyond input, weights and result.
    """

    result: _Array
    multiplications: int
    scratch_bytes: int


def direct(x: _Array, w: _Array, dtype: type = np.float32) -> Convolved:
    """The definition: nine shifted copies of the image, each times its matrix of weights, summed.

    Args:
        x: the image, ``(C, H, W)``.
        w: the weights, ``(K, C, 3, 3)``.
        dtype: the type that the multiplier reads.

    Raises:
        ValueError: other shapes.
    """
    _check(x, w)
    (k, c, r, s), (_, height, width) = w.shape, x.shape
    padded, weights = _rounded(_padded(x), dtype), _rounded(w, dtype)
    result = np.zeros((k, height, width), np.float32)
    for i in range(r):
        for j in range(s):
            shifted = padded[:, i : i + height, j : j + width]
            result += np.tensordot(weights[:, :, i, j], shifted, axes=1)
    return Convolved(result, k * c * r * s * height * width, 0)


def implicit_gemm(x: _Array, w: _Array, dtype: type = np.float32, tile: tuple[int, int, int] = (128, 64, 32)) -> Convolved:
    """One matrix product: pixels by (channel, row, column) of the kernel, times a matrix of these by output channels.

    The left matrix is never built ("implicit"): each tile gathers its numbers from the image when it needs them. Tiles at the edge
    are multiplied whole, so sizes that are not a multiple of the tile cost extra.

    Args:
        x, w, dtype: as in `direct`.
        tile: pixels, output channels, and the depth that is summed at a time.

    Raises:
        ValueError: other shapes.

    Source: Chetlur et al., cuDNN: Efficient Primitives for Deep Learning (2014), section 3.
    """
    _check(x, w)
    (k, c, r, s), (_, height, width) = w.shape, x.shape
    padded, weights = _rounded(_padded(x), dtype), _rounded(w, dtype).reshape(k, -1)
    result = np.zeros((height * width, k), np.float32)
    tiles = 0
    for pixels in _slices(height * width, tile[0]):
        row, column = np.divmod(np.arange(height * width)[pixels, None], width)
        for channels in _slices(k, tile[1]):
            for depth in _slices(c * r * s, tile[2]):
                channel, i, j = np.unravel_index(np.arange(c * r * s)[None, depth], (c, r, s))
                result[pixels, channels] += padded[channel, row + i, column + j] @ weights[channels, depth].T
                tiles += 1
    return Convolved(result.T.reshape(k, height, width), tiles * math.prod(tile), 0)


def winograd(x: _Array, w: _Array, dtype: type = np.float32, m: int = 2) -> Convolved:
    """F(m x m, 3 x 3): transform tiles of ``m + 2`` pixels so that the convolution is one product per number, and transform back.

    Args:
        x, w, dtype: as in `direct`.
        m: side of an output tile, 2 or 4; height and width must be its multiples.

    Source: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (2015), section 4.
    """
    _check(x, w)
    (k, c), (_, height, width) = w.shape[:2], x.shape
    into, weights_into, back = _WINOGRAD[m]
    windows = np.lib.stride_tricks.sliding_window_view(_padded(x), (m + 2, m + 2), axis=(1, 2))[:, ::m, ::m]
    tiles = _rounded(np.einsum("ai,cyxij,bj->abcyx", into, windows, into, optimize=True), dtype)
    weights = _rounded(np.einsum("ai,kcij,bj->abkc", weights_into, w, weights_into, optimize=True), dtype)
    products = np.einsum("abkc,abcyx->abkyx", weights, tiles, optimize=True)
    result = np.einsum("ia,abkyx,jb->kyixj", back, products, back, optimize=True).reshape(k, height, width)

    count = (height // m) * (width // m)
    transforms = c * _transform_cost(into, m + 2) + k * _transform_cost(back, m + 2)
    scratch = (m + 2) ** 2 * count * (c + k) * 4
    return Convolved(result.astype(np.float32), count * ((m + 2) ** 2 * k * c + transforms), scratch)


def fft(x: _Array, w: _Array, dtype: type = np.float32) -> Convolved:
    """The convolution theorem: a product of spectra. Transforms are float32, so no smaller `dtype` is accepted.

    A complex product counts as four multiplications, a transform of n numbers as ``n log2 n`` (half of a complex one).

    Args:
        x, w: as in `direct`.
        dtype: float32.
    """
    _check(x, w)
    (k, c), (_, height, width) = w.shape[:2], x.shape
    size = (height + 2, width + 2)
    image = np.fft.rfft2(_padded(x), s=size).astype(np.complex64)
    weights = np.conj(np.fft.rfft2(w, s=size)).astype(np.complex64)  # correlation, not convolution: the conjugate
    products = np.einsum("kcyx,cyx->kyx", weights, image, optimize=True)
    result = np.fft.irfft2(products, s=size)[:, :height, :width]

    n = math.prod(size)
    transforms = round((c + k) * n * math.log2(n))
    return Convolved(result.astype(np.float32), 4 * k * products[0].size * c + transforms, image.nbytes + products.nbytes)


ALGORITHMS: dict[str, Callable[..., Convolved]] = {
    "direct": direct,
    "implicit GEMM": implicit_gemm,
    "Winograd 2x2": winograd,
    "Winograd 4x4": lambda x, w, dtype=np.float32: winograd(x, w, dtype, m=4),
    "FFT": fft,
}

_WINOGRAD = {  # the matrices B^T, G and A^T of Lavin and Gray
    2: (
        np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float32),
        np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32),
        np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float32),
    ),
    4: (
        np.array(
            [
                [4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0],
                [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1],
            ],
            np.float32,
        ),
        np.array(
            [[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6],
             [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]],
            np.float32,
        ),
        np.array(
            [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], np.float32
        ),
    ),
}  # fmt: skip


def _transform_cost(matrix: _Array, side: int) -> int:
    """Multiplications of ``matrix @ tile @ matrix.T`` for a square tile, where factors 0, 1 and -1 are free."""
    factors = int(np.count_nonzero(~np.isin(matrix, (0, 1, -1))))
    return factors * (side + len(matrix))


def _slices(length: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def _padded(x: _Array) -> _Array:
    return np.pad(x.astype(np.float32), ((0, 0), (1, 1), (1, 1)))


def _rounded(values: _Array, dtype: type) -> _Array:
    return values.astype(dtype).astype(np.float32)


def _check(x: _Array, w: _Array) -> None:
    if x.ndim != 3 or w.ndim != 4 or w.shape[1:] != (len(x), 3, 3):
        raise ValueError(f"expected an image (C, H, W) and weights (K, C, 3, 3), got {x.shape} and {w.shape}")


def draw_algorithms(multiplications: Mapping[str, int], errors: Mapping[str, Mapping[str, float]], title: str) -> style.Figure:
    """Bars of multiplications on the left, relative errors on a logarithmic axis on the right.

    Args:
        multiplications: number by algorithm, drawn from top to bottom.
        errors: for each number type the relative error by algorithm; an algorithm may be missing in one.
        title: the takeaway.
    """
    names = list(multiplications)
    figure, (left, right) = style.subplots(1.0 + 0.42 * len(names), 1, 2, sharey=True)
    bars = left.barh(range(len(names)), [count / 1e6 for count in multiplications.values()], 0.6, color=style.color(0))
    left.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
    style.name_rows(left, names)
    left.margins(x=0.15)
    left.set_xlabel("million multiplications")
    for index, (dtype, by_name) in enumerate(errors.items()):
        rows = [names.index(name) for name in by_name]
        right.semilogx(list(by_name.values()), rows, "os^D"[index % 4], color=style.color(index + 1), label=dtype, ms=7)
    right.set_xlabel("relative error of the result")
    right.grid(axis="x", alpha=0.3)
    style.name_colors(right)
    figure.suptitle(title)
    return figure
