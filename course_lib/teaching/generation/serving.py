"""A simulation of text that is generated for several requests at once: static and continuous batching.

Source: Yu et al., Orca: A Distributed Serving System for Transformer-Based Generative Models (OSDI 2022).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course_lib.teaching.generation.arithmetic import AtThePeaks


@dataclass(frozen=True)
class Trace:
    """Requests in the order of their arrival, each array of shape ``(n,)``.

    Attributes:
        arrived_s: time of arrival in seconds, ascending.
        prompt, answer: number of tokens, each at least 1.
    """

    arrived_s: np.ndarray
    prompt: np.ndarray
    answer: np.ndarray


def conversations(seed: int, *, count: int, per_second: float) -> Trace:
    """Generated traffic: independent arrivals, a few long answers among many short ones.

    Prompts have a median of 300 tokens and answers one of 120, both log-normal, between 1 and 2000.

    Args:
        seed: the same seed gives the same requests, and the same order at another rate.
        count: number of requests.
        per_second: mean rate of arrivals.
    """
    rng = np.random.default_rng(seed)
    arrived = np.cumsum(rng.exponential(1.0, count)) / per_second
    prompt, answer = (
        np.clip(rng.lognormal(np.log(median), spread, count), 1, 2000).astype(int)
        for median, spread in ((300, 0.7), (120, 1.0))
    )
    return Trace(arrived, prompt, answer)


@dataclass(frozen=True)
class Served:
    """What became of each request; arrays of shape ``(n,)``, times in seconds from the same zero.

    Attributes:
        trace: the requests.
        slot: its row of the batch.
        joined_s, first_s, finished_s: when it got its batch slot, its first token, and its last one.
        freed_s: when its batch slot was free again.
    """

    trace: Trace
    slot: np.ndarray
    joined_s: np.ndarray
    first_s: np.ndarray
    finished_s: np.ndarray
    freed_s: np.ndarray

    @property
    def to_first_token_s(self) -> np.ndarray:
        """Seconds from the arrival of each request to its first token."""
        return self.first_s - self.trace.arrived_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens of all answers per second, from the first arrival to the last token."""
        return float(self.trace.answer.sum() / (self.finished_s.max() - self.trace.arrived_s[0]))


def serve(trace: Trace, cost: AtThePeaks, *, slots: int, continuous: bool) -> Served:
    """Run a trace with a batch of at most `slots` requests. Requests join in the order of their arrival.

    With static batching a batch begins when the one before has ended, takes those that wait, and ends with its longest answer. A row
    whose answer is complete is computed until then. With continuous batching a request leaves after its last token, and another
    may join before the next step. Either way a prompt is one call, in which the other rows wait.
    """
    count = len(trace.arrived_s)
    row, joined, first, finished, freed = np.zeros(count, int), *(np.zeros(count) for _ in range(4))
    made = np.zeros(count, int)
    held: dict[int, int] = {}  # request by slot
    clock, coming = 0.0, 0
    while coming < count or held:
        done = [slot for slot, one in held.items() if made[one] == trace.answer[one]]
        if continuous or len(done) == len(held):
            for slot in done:
                freed[held.pop(slot)] = clock
        if not held and coming < count:
            clock = max(clock, float(trace.arrived_s[coming]))
        free = [slot for slot in range(slots) if slot not in held] if continuous or not held else []
        now = clock
        while free and coming < count and trace.arrived_s[coming] <= now:
            row[coming], joined[coming] = free.pop(0), clock
            held[int(row[coming])] = coming
            clock += cost.prefill_s(int(trace.prompt[coming]))
            made[coming], first[coming], finished[coming] = 1, clock, clock  # a prompt gives the first token
            coming += 1
        inside = list(held.values())
        active = [one for one in inside if made[one] < trace.answer[one]]
        if active:
            clock += cost.step_s(len(inside), int(trace.prompt[inside].sum() + made[inside].sum()))
            made[active] += 1
            finished[active] = clock
    return Served(trace, row, joined, first, finished, freed)
