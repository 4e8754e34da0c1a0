"""A tier, a message and a hint for what a kernel did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.labs.lab08_plugin.judge.kernel import Run
from course_lib.labs.lab08_plugin.judge.kernel_cases import WIDTHS, Case
from course_lib.labs.lab08_plugin.judge.memory import WARP, Traffic

# Of the sectors that a warp's request touches, the share that it needs. Measured: the course's kernel, and one with a thread for
# each pair, 1.00 on halves and 0.50 on interleaved pairs, whose two accesses lie side by side; a thread for each head 0.06 to 0.13.
USED = {False: 0.9, True: 0.45}
MOST_LAUNCHES = 4  # by one call of rope_launch: whole packs and the rest, in each half of a head, can have a kernel each
# Numbers of y that one thread may write, unless a head has more. Measured in the drawn cases: the course's kernel 128 (with a
# thousand heads), a thread for each pack 16, and 40 blocks of 128 threads 65.
MOST_OF_THREAD = 256
MOST_TABLE_READS = 2.0  # of each number for each head: a thread for each result, and not for each pair, reads everything twice
FULL_WIDTH = 12.0  # bytes that a thread moves at once; vectors of 16 have 16, a number at a time 2 or 4
# On a GPU: speed as a share of the reference's and of a plain copy's, FP16. Measured on an H200: the course's kernel 0.91 to 0.93
# of the copy; a thread for each pair 0.34 of the reference, with vectors 0.96, with vectors indexed at run time 0.42; a thread for
# each head 0.015.
FULL_SPEED, FULL_OF_COPY, PARTIAL_SPEED = 0.8, 0.7, 0.2

WITHOUT_NVCC = " nvcc is not installed or does not work here, so the accesses that it generates were not judged."
_MARKS = {"bfloat16": "bfloat16", "__half": "float16", "float16": "float16"}  # in a kernel's name, which holds its types
_NARROW_STORES = ("st 1", "st 2", "st 4", "st 8")
_STREAM = "A launch without a stream goes to the default stream, before or after TensorRT's work: set config.stream = stream."
_LAUNCHES = (
    "Each launch costs microseconds. One grid covers all batches, tokens and heads: blockIdx, blockDim and threadIdx give each "
    "thread its pair."
)
_GUARD = (
    "The last block has more threads than there are pairs left. Compare a thread's number with the number of pairs, and return "
    "before it touches memory."
)
_STORE = (
    "Store a pack as one uint4: copy its bytes into a uint4 words with memcpy, and call "
    "__stcs(reinterpret_cast<uint4*>(to), words). nvcc may split a plain assignment."
)
_LOCAL = (
    "An array whose index is known only at run time is in memory: make the index a template argument, and let the compiler "
    "unroll the loop."
)
_HINTS = {
    "outside": "Where does the row of this thread begin, and how many numbers does it have? Try the smallest shape by hand.",
    "table": "The tables have head_size / 2 numbers in a row, and the row is the position: row / heads % sequence.",
    "misaligned": "An access of 16 bytes needs an address that is a multiple of 16. Test x and y, the tables if you load them wide "
    "too, and half of the head size before you choose the wide kernel.",
    "input": "x, cos and sin are inputs: write into y.",
    "host": "rope_launch runs on the host. It passes the pointers on to the kernel and looks only at their values.",
    "frame": "A local array is too small, or its index is too large: compare each index with the array's size.",
    "call": "Call functions by their names. A pointer to a function must point to one that rope.cu defines.",
    "rejected": "Put the dimension that can be large into the grid's x, which goes up to 2^31 - 1.",
    "time": "Does each loop in this case come to its end? And is the number of threads near the number of pairs?",
    "crash": "A division by zero or a wild pointer: try the smallest shape by hand.",
    "ended": "Get the case before this one to its end first.",
}


@dataclass(frozen=True)
class Judgment:
    """A tier of `Outcome` for a task, and what to say with it."""

    tier: str
    message: str
    hint: str = ""


def judge_rotations(runs: Sequence[Run]) -> Judgment:
    """Full if all cases are correct; partial if all float32 cases, all plain shapes, or all halves are correct.

    Correct answers on another stream than the given one, or with many launches, are partial. A kernel that accesses memory outside its
    buffers earns no points, because on a GPU it can overwrite other tensors. Neither does one that overwrites its stack or calls a
    number.
    """
    wrong = [run for run in runs if not run.right]
    said = f"{len(runs) - len(wrong)} of {len(runs)} rotations right."
    if not wrong:
        if not all(run.on_stream for run in runs):
            return Judgment(
                "partial", f"{said} But the kernel was not launched on the stream that rope_launch was given.", _STREAM
            )
        if many := many_launches(runs):
            return Judgment("partial", f"{said} But {many}", _LAUNCHES)
        return Judgment("full", said)
    first = _simplest(wrong)
    outside = [run for run in wrong if run.kind in ("outside", "table", "frame", "call")]
    if outside:
        first = _simplest(outside)
        guard = " The kernel has no bounds guard: a thread without a pair continued." if first.in_surplus else ""
        return Judgment("none", f"{said} {first.message()}{guard}", _hint(runs, first))
    groups = {
        "float32": [run for run in runs if run.case.dtype == "float32"],
        "plain shapes": [run for run in runs if run.case.plain],
        "halves": [run for run in runs if not run.case.interleaved],
    }
    right = any(all(run.right for run in group) for group in groups.values())
    skipped = sum(run.kind == "ended" for run in wrong)
    after = f" {skipped} cases after it were not run." if skipped else ""
    return Judgment("partial" if right else "none", f"{said} {first.message()}{after}", _hint(runs, first))


def _simplest(wrong: Sequence[Run]) -> Run:
    """The case that never ended, if there is one, otherwise the smallest that ran."""
    ran = [run for run in wrong if run.kind != "ended"] or wrong
    return min(ran, key=lambda run: (run.kind != "time", np.prod(run.case.shape)))


def _hint(runs: Sequence[Run], first: Run) -> str:
    """Where to look, by the cases that are wrong and those that are right."""
    if first.kind:
        return _GUARD if first.in_surplus else _HINTS[first.kind]
    wrong = [run for run in runs if not run.right and run.kind != "ended"]
    if all(not np.isfinite(run.excess) for run in wrong):
        return "Some numbers of y are never written. Do all threads together cover every pair, also where a size is odd?"
    right = [run for run in runs if run.right]
    for hint, may_fail in _PATTERNS:
        if all(may_fail(run.case) for run in wrong) and any(not may_fail(run.case) for run in right):
            return hint
    if all(run.wrong_first == 0 for run in wrong):
        return "Only y_b is wrong. It needs the old x_a: keep x_a and x_b in variables before you write y_a."
    if all(run.wrong_first == run.wrong for run in wrong):
        return "Only y_a is wrong: y_a = x_a cos - x_b sin."
    return (
        "Every kind of case is wrong. Rotate one head by hand, with the numbers from the tables: "
        "y_a = x_a cos - x_b sin, y_b = x_b cos + x_a sin."
    )


# What is wrong where only such cases are; the more specific ones first.
_PATTERNS: tuple[tuple[str, Callable[[Case], bool]], ...] = (
    (
        "Only small types are wrong: compute in float32 and round once, at the end.",
        lambda case: case.dtype != "float32",
    ),
    (
        "Only interleaved pairs are wrong: there pair i is the numbers 2i and 2i + 1.",
        lambda case: case.interleaved,
    ),
    (
        "Only halves are wrong: there pair i is the numbers i and i + head_size / 2.",
        lambda case: not case.interleaved,
    ),
    (
        "Only odd shapes are wrong: which size did you take for a multiple of another?",
        lambda case: not case.plain,
    ),
    (
        "Right with one head or one position, wrong with several of both: rows count heads first, so the position is "
        "row / heads % sequence.",
        lambda case: case.shape[1] > 1 and case.shape[2] > 1,
    ),
    (
        "Right for the first position, wrong for others: a row of the tables has head_size / 2 numbers.",
        lambda case: case.shape[1] > 1,
    ),
)


def serial(runs: Iterable[Run]) -> str:
    """Why this kernel is not parallel; empty if it is.

    A warp must write y, or one thread for each head, and the threads must be in proportion to the numbers: see `MOST_OF_THREAD`.
    In a case with wrong numbers, threads that wrote nothing count too, so that the mistake is reported.
    """
    ended = [run for run in runs if not run.fault]
    workers = [(run.writers if run.right else run.threads, int(np.prod(run.case.shape[:3]))) for run in ended]
    few = [threads for threads, heads in workers if threads < min(WARP, heads)]
    if few:
        return (
            f"{min(few)} thread(s) wrote all of y: a GPU runs thousands at once, and less than a warp of {WARP} is not a kernel"
        )
    worst = max(ended, key=lambda run: run.in_sequence / _most_of_thread(run.case), default=None)
    if worst is None or worst.in_sequence <= _most_of_thread(worst.case):
        return ""
    written = f"one thread wrote {worst.in_sequence} numbers of y"
    if worst.launches > 1:
        launches = min(worst.launches, MOST_LAUNCHES)
        written = f"one thread in each of {launches} launches wrote {worst.in_sequence} numbers of y in total"
    return f"{written} ({worst.case}); at most {_most_of_thread(worst.case)} are allowed"


def _most_of_thread(case: Case) -> int:
    return max(MOST_OF_THREAD, case.shape[3])


def many_launches(runs: Iterable[Run]) -> str:
    """The case with the most launches, if these are more than permitted; otherwise empty."""
    most = max(runs, key=lambda run: run.launches)
    if most.launches <= MOST_LAUNCHES:
        return ""
    return f"one call of rope_launch made {most.launches} launches ({most.case}); at most {MOST_LAUNCHES} are allowed."


def judge_memory(watched: Mapping[Run, Traffic], compiled: Mapping[str, Mapping[str, int]] | None = None) -> Judgment:
    """Judge by the accesses of a warp's threads and by nvcc's output for them, without a GPU.

    Args:
        watched: for each run with recorded accesses, what its threads accessed.
        compiled: counts by kernel from `course_lib.plugins.ptx.count_accesses`; None without nvcc.
    """
    if many := many_launches(watched):
        return Judgment("none", f"The memory accesses are not graded: {many}", _LAUNCHES)
    worst = min(watched, key=lambda run: watched[run].used / USED[run.case.interleaved])
    narrowest = min(watched, key=lambda run: watched[run].width)
    found, width = watched[worst], watched[narrowest].width
    said = f"{_described(worst.case)}: {100 * found.used:.0f} % of the sectors of x and y that are touched are needed; "
    said += f"{_described(narrowest.case)}: threads ask for {width:.0f} bytes of x and y at a time."
    once = all(one.written_once for one in watched.values())
    if found.used < USED[worst.case.interleaved] or not once:
        if not once:
            return Judgment(
                "none", f"{said} Numbers of y are written more than once.", "Which other thread writes the same number of y?"
            )
        wanted = f"At least {100 * USED[worst.case.interleaved]:.0f} % are required."
        return Judgment(
            "none", f"{said} {wanted}", "Look at the threads of one warp: do neighbors touch neighboring addresses?"
        )
    if (most := max(one.table_reads for one in watched.values())) > MOST_TABLE_READS:
        hint = "Which numbers of cos and sin does a pair need? A thread loads those of its pairs, and no others."
        return Judgment("none", f"{said} Each number of the tables is read {most:.1f} times for each head.", hint)
    if not all(one.read_once for one in watched.values()):
        hint = "A pair needs both of its numbers twice. If one thread makes both results, it loads each number once."
        return Judgment("partial", f"{said} Numbers of x are read more than once.", hint)
    if width < FULL_WIDTH:
        hint = "Let each thread load and store 16 bytes at a time where addresses and head size allow it."
        return Judgment("partial", f"{said} Full points need 16 bytes.", hint)
    if compiled is None:
        return Judgment("full", said + WITHOUT_NVCC)
    if problem := narrowed(compiled):
        return Judgment("partial", f"{said} {problem[0]}", problem[1])
    return Judgment("full", f"{said} nvcc turns them into loads and stores of 16 bytes.")


def narrowed(compiled: Mapping[str, Mapping[str, int]]) -> tuple[str, str] | None:
    """The reason why kernels with accesses of 16 bytes do not move 16 bytes at a time, and a hint; None if they do.

    A kernel that loads or stores 16 bytes keeps its packs in registers, and stores both packs of a thread completely. Another
    kernel, for unaligned addresses, may be narrow. Each number type needs a wide kernel.
    """
    widest: dict[str, int] = {}
    for kernel, counts in compiled.items():
        kind = next((name for mark, name in _MARKS.items() if mark in kernel), "float32")
        stores, narrow = counts.get("st 16", 0), sum(n for what, n in counts.items() if what in _NARROW_STORES)
        widest[kind] = max(widest.get(kind, 0), stores)
        if not stores and not counts.get("ld 16", 0):
            continue
        if counts.get("local", 0):
            return f"But nvcc put an array of the {kind} kernel into local memory, which is not in registers.", _LOCAL
        if narrow and stores < 2:
            return f"But nvcc made of the {kind} kernel {stores} store(s) of 16 bytes and {narrow} narrower ones.", _STORE
    if missing := [kind for kind, stores in widest.items() if not stores] or (not widest and ["any type"]):
        return f"But nvcc made no store of 16 bytes for {', '.join(missing)}.", _STORE
    return None


def _described(case: Case) -> str:
    return f"{case.dtype}, {'interleaved' if case.interleaved else 'halves'}"


def judge_speed(case: Case, yours_s: float, reference_s: float, copy_s: float, hint: str) -> Judgment:
    """Judge the time of a launch on a GPU, compared with the reference's and a copy's."""
    of_reference, of_copy = reference_s / yours_s, copy_s / yours_s
    moved = 2 * int(np.prod(case.shape)) * WIDTHS[case.dtype]
    speeds = f"{of_reference:.2f} of the reference's speed, {of_copy:.2f} of a copy's."
    said = f"{moved / yours_s / 1e12:.2f} TB/s on {case.dtype} {case.shape}: {speeds}"
    if of_reference >= FULL_SPEED and of_copy >= FULL_OF_COPY:
        return Judgment("full", said)
    wanted = f"Full points need {FULL_SPEED:g} and {FULL_OF_COPY:g}."
    if not hint:
        hint = (
            "An array whose index is known only at run time is in memory, not in registers: make the index a template argument."
        )
    return Judgment("partial" if of_reference >= PARTIAL_SPEED else "none", f"{said} {wanted}", hint)
