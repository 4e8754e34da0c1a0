"""From what a kernel did to a tier, a message and a hint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.labs.lab06_cases import WIDTHS, Case
from course_lib.labs.lab06_kernel import Run
from course_lib.labs.lab06_memory import WARP, Traffic

# Of the sectors that a warp's request touches, the share that it needs. Measured: the course's kernel, and one with a thread for
# each pair, 1.00 on halves and 0.50 on interleaved pairs, whose two accesses lie side by side; a thread for each head 0.06 to 0.13.
USED = {False: 0.9, True: 0.45}
FULL_WIDTH = 12.0  # bytes that a thread moves at once; vectors of 16 have 16, a number at a time 2 or 4
# On a GPU: speed as a share of the reference's and of a plain copy's, FP16. Measured on an H200: the course's kernel 0.91 to 0.93
# of the copy; a thread for each pair 0.34 of the reference, with vectors 0.96, with vectors indexed at run time 0.42; a thread for
# each head 0.015.
FULL_SPEED, FULL_OF_COPY, PARTIAL_SPEED = 0.8, 0.7, 0.2

_HINTS = {
    "outside": "Which threads have nothing to do? Compare a thread's number with the number of pairs before it touches memory.",
    "misaligned": "An access of 16 bytes needs an address that is a multiple of 16. Ask for it before you choose the wide kernel.",
    "input": "x, cos and sin are inputs: write into y.",
    "host": "rope_launch runs on the host. It hands the pointers on to the kernel and looks at their values only.",
    "refused": "Put the dimension that can be large into the grid's x, which goes up to 2^31 - 1.",
    "time": "Does each loop come to its end? And is the number of threads near the number of pairs?",
    "crash": "A division by zero or a wild pointer: try the smallest shape by hand.",
    "ended": "Get the case before this one to its end first.",
}


@dataclass(frozen=True)
class Judgement:
    """A tier of `Outcome` for a task, and what to say with it."""

    tier: str
    message: str
    hint: str = ""


def judge_rotations(runs: Sequence[Run]) -> Judgement:
    """Full where all are right; partial where all of float32, all plain shapes, or all of the halves are."""
    wrong = [run for run in runs if not run.right]
    said = f"{len(runs) - len(wrong)} of {len(runs)} rotations right."
    if not wrong:
        return Judgement("full", said)
    groups = {
        "float32": [run for run in runs if run.case.dtype == "float32"],
        "plain shapes": [run for run in runs if run.case.plain],
        "halves": [run for run in runs if not run.case.interleaved],
    }
    right = [name for name, group in groups.items() if all(run.right for run in group)]
    first = min(wrong, key=lambda run: np.prod(run.case.shape))
    return Judgement("partial" if right else "none", f"{said} {first.message()}", _hint(wrong, first, right))


def _hint(wrong: Sequence[Run], first: Run, right: Sequence[str]) -> str:
    if first.kind:
        return _HINTS[first.kind]
    if all(not np.isfinite(run.excess) for run in wrong):
        return "Some numbers of y are never written. Do all threads together cover every pair, also where a size is odd?"
    if "float32" in right:
        return "Only the small types are wrong: compute in float32 and round once, at the end."
    if "halves" in right:
        return "Only interleaved pairs are wrong: there pair i is the numbers 2i and 2i + 1."
    if "plain shapes" in right:
        return "Only odd shapes are wrong: which size did you take for a multiple of another, and where do rows of the tables begin?"
    return "Rotate one head by hand: y_a = x_a cos - x_b sin, y_b = x_b cos + x_a sin, and both need the old x_a and x_b."


def serial(traffics: Iterable[Traffic]) -> str:
    """Why this is no parallel kernel; empty where it is one."""
    fewest = min((found.writers for found in traffics), default=WARP)
    if fewest >= WARP:
        return ""
    return f"{fewest} thread(s) wrote all of y: a GPU runs thousands at once, and less than a warp of {WARP} is no kernel"


def judge_memory(watched: Mapping[Run, Traffic]) -> Judgement:
    """By the accesses of a warp's threads, where no GPU can be asked."""
    worst = min(watched, key=lambda run: watched[run].used / USED[run.case.interleaved])
    narrowest = min(found.width for found in watched.values())
    found = watched[worst]
    said = f"{_described(worst.case)}: {100 * found.used:.0f} % of the sectors touched are needed; "
    said += f"threads move {narrowest:.0f} bytes at a time."
    once = all(one.written_once for one in watched.values())
    if found.used < USED[worst.case.interleaved] or not once:
        if not once:
            return Judgement(
                "none", f"{said} Numbers of y are written more than once.", "Who else writes the same number of y?"
            )
        wanted = f"At least {100 * USED[worst.case.interleaved]:.0f} % are asked for."
        return Judgement(
            "none", f"{said} {wanted}", "Look at the threads of one warp: do neighbours touch neighbouring addresses?"
        )
    if not all(one.read_once for one in watched.values()):
        hint = "A pair needs both of its numbers twice. If one thread makes both results, it loads each number once."
        return Judgement("partial", f"{said} Numbers of x are read more than once.", hint)
    if narrowest < FULL_WIDTH:
        hint = "Let each thread load and store 16 bytes at a time where addresses and head size allow it."
        return Judgement("partial", f"{said} Full points need vectors of 16.", hint)
    return Judgement("full", said)


def _described(case: Case) -> str:
    return f"{case.dtype}, {'interleaved' if case.interleaved else 'halves'}"


def judge_speed(case: Case, yours_s: float, reference_s: float, copy_s: float, hint: str) -> Judgement:
    """By the time of a launch on a GPU, beside the reference's and a copy's."""
    of_reference, of_copy = reference_s / yours_s, copy_s / yours_s
    moved = 2 * int(np.prod(case.shape)) * WIDTHS[case.dtype]
    speeds = f"{of_reference:.2f} of the reference's speed, {of_copy:.2f} of a copy's."
    said = f"{moved / yours_s / 1e12:.2f} TB/s on {case.dtype} {case.shape}: {speeds}"
    if of_reference >= FULL_SPEED and of_copy >= FULL_OF_COPY:
        return Judgement("full", said)
    wanted = f"Full points need {FULL_SPEED:g} and {FULL_OF_COPY:g}."
    if not hint:
        hint = "An array that is indexed by what is known at run time only lies in memory, not in registers: make it a template's argument."
    return Judgement("partial" if of_reference >= PARTIAL_SPEED else "none", f"{said} {wanted}", hint)
