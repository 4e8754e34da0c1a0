"""A share as a short percentage, also if it is far above 100 %."""

from __future__ import annotations


def in_percent(share: float) -> str:
    """Two significant digits, and never an exponent for a large one: ``0.21 %``, ``4.5 %``, ``210 %``."""
    value = 100 * share
    return f"{value:.0f} %" if abs(value) >= 99.5 else f"{value:.2g} %"
