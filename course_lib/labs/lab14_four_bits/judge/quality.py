"""The size and the loss of a submission's weights: they are compared with the given ones, and run on secret text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from course_lib.engines.worker.parent import Launcher
from course_lib.errors import BuildError, EngineError
from course_lib.labs.framework.criteria import ALL, HALF, Criterion
from course_lib.labs.framework.isolation import module_command, run_isolated
from course_lib.labs.lab14_four_bits import graph_file, network
from course_lib.labs.lab14_four_bits.loss import BUDGET, Lost, Meter
from course_lib.labs.lab14_four_bits.network import VOCABULARY
from course_lib.labs.lab14_four_bits.sandboxed import all_logits
from course_lib.labs.lab14_four_bits.stored import Int4, Stored

FULL_BITS, HALF_BITS = 5.3, 6.5  # per weight of the sixteen products, scales included
MOST_ABOVE = 1.5  # times the budget, that the loss itself may be
WINDOWS = 64  # of secret text: the interval is about a twentieth of the loss
# Relative errors of a product's weight: what good scales leave at most, and the largest one that is taken. Measured: 0.12 in rows of
# 192, with searched scales; 0.29 with scales in another order.
_USUAL, _FAITHFUL = 0.2, 0.35
_TIME_LIMIT_S = 120.0


def bits_per_weight(stored: Mapping[str, Stored]) -> float:
    """What is stored for all products, in bits per weight with its share of the scales."""
    return sum(one.bits for one in stored.values()) / network.WEIGHTS


def check_weights(stored: Mapping[str, Stored]) -> None:
    """Whether the weights are the given ones, rounded.

    Raises:
        BuildError: a weight is another one; the message names a mistake that explains it.
    """
    for name, one in stored.items():
        given = network.weights()[name].T
        off = _relative(one.values(), given)
        why = _mistake(one, given, off) if isinstance(one, Int4) and off > _USUAL else ""
        if why or off > _FAITHFUL:
            raise BuildError(
                f"the weight of {name} has a relative error of {off:.2f}, expected at most {_FAITHFUL:g}. {why}".rstrip()
            )


def _relative(values: np.ndarray, given: np.ndarray) -> float:
    return float(np.linalg.norm(values - given) / np.linalg.norm(given))


def _mistake(one: Int4, given: np.ndarray, off: float) -> str:
    """The mistake that explains an error, because the weight read in another way is much closer to the given one."""
    with np.errstate(all="ignore"):
        return next((words for words, values in _MISTAKES if _relative(values(one), given) < 0.6 * off), "")


def _again(one: Int4, codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return np.asarray(codes * np.repeat(scales.astype(np.float32), len(codes) // len(scales), axis=0))


def _codes_as_rows_of_outputs(one: Int4) -> np.ndarray:
    codes = one.codes()
    return _again(one, codes.reshape(codes.shape[::-1]).T, one.scales)


def _scales_as_rows_of_outputs(one: Int4) -> np.ndarray:
    return _again(one, one.codes(), one.scales.reshape(one.scales.shape[::-1]).T)


def _both_as_rows_of_outputs(one: Int4) -> np.ndarray:
    codes = one.codes()
    return _again(one, codes.reshape(codes.shape[::-1]).T, one.scales.reshape(one.scales.shape[::-1]).T)


def _exchanged(one: Int4) -> np.ndarray:
    codes = one.codes()
    return _again(one, codes.reshape(-1, 2)[:, ::-1].reshape(codes.shape), one.scales)


def _apart(one: Int4) -> np.ndarray:
    """The first half of the codes is in the low four bits."""
    halves = one.codes().reshape(-1, 2)
    return _again(one, np.concatenate([halves[:, 0], halves[:, 1]]).reshape(one.codes().shape), one.scales)


def _plus_eight(one: Int4) -> np.ndarray:
    return _again(one, (one.codes() & 15) - 8, one.scales)


_TRANSPOSED = "The codes are in the order (out, in), and the graph reads (in, out): transpose them before you pack them."
_MISTAKES: Sequence[tuple[str, Callable[[Int4], np.ndarray]]] = (
    (_TRANSPOSED, _codes_as_rows_of_outputs),
    (_TRANSPOSED, _both_as_rows_of_outputs),
    ("The scales are in the order (out, in / block): transpose them, and do not reshape them.", _scales_as_rows_of_outputs),
    ("The two codes of each byte are exchanged: the first one belongs in the low four bits.", _exchanged),
    ("The two halves of the codes share the bytes: two neighbors must share a byte.", _apart),
    ("The codes are stored plus 8: INT4 is signed, in two's complement.", _plus_eight),
    ("These scales must be divided by instead of multiplied by: store the scale, not its reciprocal.",
     lambda one: _again(one, one.codes(), 1 / one.scales.astype(np.float32))),
)  # fmt: skip


def lost(stored: Mapping[str, Stored], seed: int | None, launcher: Launcher | None) -> Lost:
    """Lost bits per byte of the course's own graph with these weights in FP16, on a text that is drawn for this call.

    Raises:
        EngineError: the graph does not run, or its logits are not finite.
    """
    meter = Meter(seed, WINDOWS)
    tokens = meter.tokens[:, :-1]
    shape = (*tokens.shape, VOCABULARY)
    command = module_command(all_logits.__name__)
    size = 4 * int(np.prod(shape))
    asked = all_logits.question(graph_file.serialized(stored), tokens)
    answer = run_isolated(command, asked, launcher=launcher, time_limit_s=_TIME_LIMIT_S, max_bytes=size)
    if len(answer) != size:
        raise EngineError("the process that runs the decoder sent an invalid answer")
    logits = np.frombuffer(answer, np.float32).reshape(shape)
    if not np.isfinite(logits).all():
        raise EngineError("the logits are NaN or infinite: which scale is so large that a weight leaves FP16?")
    return meter.lost_by(logits)


def criteria(bits: float, loss: Lost) -> tuple[list[Criterion], list[Criterion]]:
    """For all points, and for half of them."""
    full = [_within(loss, ALL), _small(bits, FULL_BITS, ALL)]
    return full, [_within(loss, HALF), _small(bits, HALF_BITS, HALF)]


def within_budget(loss: Lost) -> bool:
    """Whether the interval of the loss reaches down to the budget, and the loss itself is not far above it.

    An interval alone would forgive a decoder that loses very much on rare text: few bad windows make the interval wider than the mean.
    """
    return loss.mean - loss.half_width <= BUDGET and loss.mean <= MOST_ABOVE * BUDGET


def _within(loss: Lost, needed_for: str) -> Criterion:
    bound = f"at most {BUDGET:g}, or an interval that contains it around at most {MOST_ABOVE * BUDGET:g}"
    return Criterion("lost bits per byte on secret text", str(loss), bound, within_budget(loss), needed_for)


def _small(bits: float, most: float, needed_for: str) -> Criterion:
    return Criterion("bits per weight", f"{bits:.2f}", f"at most {most:g}", bits <= most, needed_for)
