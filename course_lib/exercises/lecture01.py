"""Exercises of lecture 1: launches, the roofline, and Amdahl's law."""

from __future__ import annotations

import math

from course_lib.exercises.exercise import Case, Exercise

EXERCISES = (
    Exercise(
        id="1.1",
        title="A GPU that waits for launches",
        minutes=12,
        difficulty=2,
        importance=2,
        call="finished_us(launch_us, kernels_us)",
        hint="Draw two rows, the host and the GPU. A kernel starts when it is launched and the kernel before it has finished.",
        cases=(
            Case(
                (5, [2, 2, 20, 2]),
                37,
                {
                    "You added everything. The host launches the next kernel while the GPU still computes.": 46,
                    "You took the larger of the two sums. The GPU also waits at the start, before the third launch.": 26,
                    "You waited for the first launch only. A short kernel is finished before the next one is launched.": 31,
                    "Your last kernel starts although the one before it still runs: a stream runs its kernels in order.": 22,
                    "The first kernel cannot start at 0: its launch takes time too.": 32,
                },
            ),
            Case(
                (5, [2, 2, 2, 2]),
                22,
                {"These kernels are shorter than a launch, so each of them waits for its own launch.": 13},
            ),
            Case((1, [10, 10, 10]), 31, {"These kernels are longer than a launch, so only the first launch is visible.": 33}),
        ),
    ),
    Exercise(
        id="1.2",
        title="The least time of a kernel",
        minutes=6,
        difficulty=1,
        importance=3,
        call="least_time_us(operations, bytes_moved, operations_per_s, bytes_per_s)",
        hint="Compute the time of the arithmetic and the time of the memory traffic. Which of the two is the limit?",
        cases=(
            Case(
                (2e9, 8e6, 1e14, 2e12),
                20.0,
                {
                    "You added the two times. A kernel loads and computes at the same time, so the longer one decides.": 24.0,
                    "You returned the time of the memory traffic. The arithmetic of this kernel takes longer.": 4.0,
                    "That is the time in seconds. Return microseconds.": 2e-5,
                    "That is the arithmetic intensity, operations per byte. Return a time.": 250.0,
                    "That is milliseconds. A second has a million microseconds.": 0.02,
                },
                shown="least_time_us(2e9, 8e6, 1e14, 2e12)",
            ),
            Case(
                (2e6, 16e6, 1e14, 2e12),
                8.0,
                {
                    "You returned the time of the arithmetic. This kernel does little of it, and moves many bytes.": 0.02,
                    "You added the two times, and the shorter one is hidden behind the longer one.": 8.02,
                },
                shown="least_time_us(2e6, 16e6, 1e14, 2e12)",
            ),
        ),
    ),
    Exercise(
        id="1.3",
        title="How much faster must the network be?",
        minutes=10,
        difficulty=2,
        importance=3,
        call="speedup_needed(request_ms, network_ms, target_ms)",
        hint="How many milliseconds of the target are left for the network?",
        cases=(
            Case(
                (40, 30, 20),
                3.0,
                {
                    "That is the factor for the whole request. Only the network becomes faster.": 2.0,
                    "You gave the network the whole target. The rest of the request takes 10 of the 20 ms.": 1.5,
                    "That is the time that is left for the network. Return a factor.": 10.0,
                    "That is the inverse: a faster network has a factor above 1.": 1 / 3,
                },
            ),
            Case(
                (40, 10, 20),
                math.inf,
                {
                    "The rest takes 30 ms, which is more than the target: no factor is large enough. Return `float('inf')`.": -1.0,
                    "A factor of the network cannot bring the rest below 30 ms. Return `float('inf')`.": 2.0,
                    "The target is below the rest of the request, so the answer is not 0. Return `float('inf')`.": 0.0,
                },
            ),
            Case(
                (40, 10, 30),
                math.inf,
                {"The network would have to take no time. Return `float('inf')` here too.": 0.0},
            ),
            Case(
                (40, 10, 50),
                1.0,
                {"The request is fast enough already. A factor below 1 would allow a slower network; return at least 1.": 0.5},
            ),
        ),
    ),
)
