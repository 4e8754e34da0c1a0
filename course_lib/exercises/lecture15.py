"""Exercises of lecture 15: the size of a cache, continuous batching, sampling, and the length of a draft."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from course_lib.exercises.exercise import Case, Exercise

_LLAMA = SimpleNamespace(layers=32, heads=32, kv_heads=8, head_size=128, parameters=8.03e9)  # Llama 3.1 8B
_ANSWERS = [3, 9, 2, 4, 8, 2, 3, 5]
_CHANCE = np.array([0.1, 0.5, 0.15, 0.25])

EXERCISES = (
    Exercise(
        id="15.1",
        title="The bytes of a cache",
        minutes=8,
        difficulty=1,
        importance=3,
        call="cache_bytes(size, tokens, bytes_per_number=2)",
        hint="Count in this order: layers, KV heads, features of each head, tokens, and then the bytes of a number.",
        cases=(
            Case(
                (_LLAMA, 1000, 1),
                65_536_000,
                {
                    "You counted the query heads. Several query heads share one KV head.": 262_144_000,
                    "That is the size of the keys. The cache holds a value for each key.": 32_768_000,
                    "The numbers in this call have 1 byte: use `bytes_per_number`, not 2.": 131_072_000,
                    "That is one layer. Each layer of the network has its own keys and values.": 2_048_000,
                    "That is one token. The cache grows with `tokens`.": 65_536,
                },
                shown="cache_bytes(llama, 1000, 1)",
            ),
            Case(
                (_LLAMA, 1),
                131_072,
                {"The default of `bytes_per_number` is 2, for FP16.": 65_536},
                shown="cache_bytes(llama, 1)",
            ),
        ),
    ),
    Exercise(
        id="15.2",
        title="Steps of continuous batching",
        minutes=12,
        difficulty=2,
        importance=3,
        call="continuous_steps(answers, slots)",
        hint="Follow one batch slot by hand: at which step does it become free, and which answer does it get then?",
        cases=(
            Case(
                (_ANSWERS, 4),
                10,
                {
                    "That is static batching: you wait for the longest answer of each group before the next group starts.": 17,
                    "That is the sum divided by the batch slots. It assumes that two batch slots can share one answer.": 9,
                    "You deal the answers to the batch slots in turn. A new answer belongs to the batch slot that is free first.": 11,
                    "At this time, the first batch slot is free and stays free. The batch ends when the last batch slot becomes free.": 7,
                    "You put every answer on the same batch slot: update `free_at` before you look for the next batch slot.": 36,
                },
            ),
            Case(
                ([1, 1, 4], 2),
                5,
                {"You sorted the answers. A service does not know their lengths in advance: keep the order of arrival.": 4},
            ),
            Case(([7], 3), 7, {"One answer keeps one batch slot busy, however many batch slots are empty.": 3}),
        ),
    ),
    Exercise(
        id="15.3",
        title="Top-p sampling",
        minutes=15,
        difficulty=2,
        importance=1,
        call="top_p(chance, p)",
        hint="Sort by probability, and ask for each token how much probability lies before it. Then restore the order of the vocabulary.",
        cases=(
            Case(
                (_CHANCE, 0.7),
                np.array([0, 2 / 3, 0, 1 / 3]),
                {
                    "The kept probabilities must sum to 1: divide them by their sum.": np.array([0, 0.5, 0, 0.25]),
                    "You dropped the token that reaches `p`. Without it the sum is below `p`.": np.array([0, 1, 0, 0]),
                    "Your result is sorted. Entry i must belong to token i.": np.array([2 / 3, 1 / 3, 0, 0]),
                    "You kept every token. `np.argsort` puts the least likely token first: reverse it.": _CHANCE,
                    "You compared each probability with `p`. Top-p compares their running sum.": np.zeros(4),
                },
            ),
            Case(
                (_CHANCE, 0.4),
                np.array([0, 1.0, 0, 0]),
                {
                    "The first token alone exceeds `p`, and you dropped it: at least one token must remain.": np.full(
                        4, np.nan
                    ),
                    "The first token alone exceeds `p`: the second is not needed.": np.array([0, 2 / 3, 0, 1 / 3]),
                },
            ),
            Case(
                (np.array([0.5, 0.25, 0.125, 0.125]), 0.5),
                np.array([1.0, 0, 0, 0]),
                {
                    "The first token reaches `p` exactly, which is enough: compare with `<`, not `<=`.": np.array(
                        [2 / 3, 1 / 3, 0, 0]
                    )
                },
            ),
        ),
    ),
    Exercise(
        id="15.4",
        title="How many tokens to draft",
        minutes=10,
        difficulty=2,
        importance=2,
        call="best_draft(p, draft_cost, longest)",
        hint="Print the speed for each k: `1 + p + p**2 + ...` tokens in a time of `1 + draft_cost * k`.",
        cases=(
            Case(
                (0.7, 0.1, 16),
                4,
                {
                    "A longer draft always gives more tokens per check, but it also takes longer. Divide by the time.": 16,
                    "You did not count the token that the large model adds to each check. The sum begins with 1, not with `p`.": 5,
                },
            ),
            Case(
                (0.05, 0.2, 8),
                0,
                {"A draft of one token is slower than decode here: 1.05 tokens in 1.2 times the time. Return 0.": 1},
            ),
            Case(
                (0.9, 0.02, 8),
                8,
                {"`longest` itself is allowed: `range(longest)` ends one too early.": 7},
            ),
        ),
    ),
)
