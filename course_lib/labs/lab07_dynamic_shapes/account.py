"""A submission's figures for its profiles on yesterday's traffic, read as data and compared with the correct values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.errors import CourseError
from course_lib.labs.framework.submission_files import read_json
from course_lib.labs.lab07_dynamic_shapes.service import Bill

MAX_BYTES = 4 << 10
TOLERANCE = 0.005  # half a percentage point: rounding, not another rule
TOLERANCE_OF_TEXT = 0.01  # of the part that is not padding: where nearly everything is padding, 1.0 is not an answer


@dataclass(frozen=True)
class Account:
    """Shares of the batches by profile, and the part of the computed tokens that is padding."""

    shares: tuple[float, ...]
    padding: float


def write(path: Path | str, found: Any) -> Account:
    """Write ``account.json`` from what a learner's `account` returned.

    Args:
        found: ``{"shares": numbers, "padding": number}``, or the two in this order; arrays of numpy are fine.

    Returns:
        what was written.

    Raises:
        CourseError: anything else; one line.
    """
    if isinstance(found, tuple | list) and len(found) == 2:
        found = dict(zip(("shares", "padding"), found, strict=True))
    try:
        account = Account(tuple(float(share) for share in found["shares"]), float(found["padding"]))
    except (TypeError, ValueError, KeyError, IndexError):
        shown = " ".join(repr(found).split())[:60]
        raise CourseError(
            f'account(recipe) has to return {{"shares": [a number for each profile], "padding": a number}}, found {shown}'
        ) from None
    Path(path).write_text(json.dumps({"shares": account.shares, "padding": account.padding}), encoding="utf-8")
    return account


def read(path: Path, *, profiles: int) -> Account:
    """The account in ``account.json``.

    Raises:
        CourseError: the file is missing, not JSON, or does not have the two required entries. The message has one line.
    """
    found = read_json(path, MAX_BYTES, "it holds two entries")
    if not isinstance(found, dict) or set(found) != {"shares", "padding"}:
        raise CourseError('account.json needs exactly the keys "shares" and "padding"')
    shares = found["shares"]
    if not isinstance(shares, list) or len(shares) != profiles or not all(map(_is_part, shares)):
        raise CourseError(
            f"shares: expected {profiles} numbers between 0 and 1, one for each profile, found {json.dumps(shares)[:60]}"
        )
    if not _is_part(found["padding"]):
        raise CourseError(f"padding: expected a number between 0 and 1, found {json.dumps(found['padding'])[:60]}")
    return Account(tuple(map(float, shares)), float(found["padding"]))


def judge(claimed: Account, truth: Bill) -> dict[str, bool]:
    """Whether each of the two entries is correct."""
    pairs = zip(claimed.shares, truth.shares, strict=True)
    return {
        "shares": all(abs(yours - ours) <= TOLERANCE for yours, ours in pairs),
        "padding": abs(claimed.padding - truth.padding) <= min(TOLERANCE, TOLERANCE_OF_TEXT * (1 - truth.padding)),
    }


def _is_part(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1  # NaN is not
