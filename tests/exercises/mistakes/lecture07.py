"""Wrong answers to the exercises of lecture 7."""

from __future__ import annotations

import numpy as np
import torch


def _fake(values, amax, bits=8, low=None, steps=None, code=np.rint, clip=True, back=True):
    half = 2 ** (bits - 1)
    scale = amax / (steps(half) if steps else half - 1)
    codes = code(values / scale)
    if clip:
        codes = np.clip(codes, -half if low is None else low(half), half - 1)
    return codes * scale if back else codes


def _rounded(x, scale, low, high):
    return torch.clamp(torch.round(x / scale), low, high) * scale


def _scaled(x, scale, low, high):
    clipped = torch.clamp(x / scale, low, high)
    return clipped + (torch.round(clipped) * scale - clipped).detach()


def _equal(first, bias, second, factor=np.sqrt, with_bias=True):
    factors = factor(np.abs(first).max(1) / np.abs(second).max(0))
    return first / factors[:, None], bias / factors if with_bias else bias, second * factors


MISTAKES = {
    "7.1": {
        "symmetric": lambda *given: _fake(*given, low=lambda half: 1 - half),
        "another scale": lambda *given: _fake(*given, steps=lambda half: half),
        "no clip": lambda *given: _fake(*given, clip=False),
        "codes": lambda *given: _fake(*given, back=False),
        "cut off": lambda *given: _fake(*given, code=np.trunc),
    },
    "7.2": {
        "plain": _rounded,
        "detached": lambda *given: _rounded(*given).detach(),
        "clipped values too": lambda x, *given: x + (_rounded(x, *given) - x).detach(),
        "not rounded": lambda x, scale, low, high: x * 1,
        "not clipped": lambda x, scale, low, high: x + (torch.round(x / scale) * scale - x).detach(),
        "with the scale": _scaled,
    },
    "7.3": {
        "no root": lambda *given: _equal(*given, factor=lambda ratio: ratio),
        "upside down": lambda *given: _equal(*given, factor=lambda ratio: 1 / np.sqrt(ratio)),
        "no bias": lambda *given: _equal(*given, with_bias=False),
        "nothing": lambda first, bias, second: (first, bias, second),
        "first only": lambda first, bias, second: (*_equal(first, bias, second)[:2], second),
        "two arrays": lambda first, bias, second: _equal(first, bias, second)[::2],
    },
}
