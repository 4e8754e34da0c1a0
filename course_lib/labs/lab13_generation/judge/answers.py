"""The answers of a submission's decoder: to secret prompts on an empty cache, and to requests that follow others in the same buffers."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from course_lib.errors import EngineError
from course_lib.labs.framework.criteria import ALL, HALF, Criterion
from course_lib.labs.lab13_generation.judge import faults, truth
from course_lib.labs.lab13_generation.judge.decoders import HostedDecoder
from course_lib.labs.lab13_generation.judge.truth import MOST_ERROR, Request
from course_lib.labs.lab13_generation.network import CACHES, LENGTH

COUNT = 24  # new tokens of each request
MOST_S = 60.0  # that the decoder may take for all secret prompts; the reference takes 0.1 s, and recomputing 3 s
# Part of the right keys and values that is not a linear function of the cache's entries. Measured: 5e-7 in right answers, 0.18 and more
# where what a block reads is wrong, and 0.96 in a cache of the tokens' numbers.
MOST_MISSING = 0.05
GARBAGE = 100.0  # size of the numbers in slots that hold nothing; keys and values of the network are below 10


@dataclass(frozen=True)
class Answers:
    """What was found on an empty cache.

    Attributes:
        wrong, total: tokens that are not the reference's, and all of them.
        first_wrong, prompts: first tokens after a prompt that are wrong, and the number of prompts.
        error: the largest relative error of the logits.
        prompt_error: the same of the logits after a prompt alone.
        missing: part of the right keys and values that the cache does not hold after a prompt, 0 to 1, of the cache with most.
        exchanged_error: the largest relative error of the logits after entries of two prompts were exchanged.
        place: the first wrong token, in words.
        fault: the mistake that gives these logits, None if it is not known.
    """

    wrong: int
    total: int
    first_wrong: int
    prompts: int
    error: float
    prompt_error: float
    missing: float
    exchanged_error: float
    place: str = ""
    fault: faults.Fault | None = None

    @property
    def right(self) -> bool:
        """Whether every answer is the reference's."""
        return not self.wrong and max(self.error, self.exchanged_error) <= MOST_ERROR and self.missing <= MOST_MISSING

    def criteria(self) -> tuple[list[Criterion], list[Criterion]]:
        """For all points, and for half of them."""
        full = [
            _equal("tokens equal to the reference's", self.wrong, self.total, ALL),
            _close("largest relative error of the logits", self.error, ALL),
            _holds(self.missing, ALL),
            _close("largest relative error after entries of two prompts were exchanged", self.exchanged_error, ALL),
        ]
        half = [
            _equal("first tokens after a prompt equal to the reference's", self.first_wrong, self.prompts, HALF),
            _close("largest relative error of the logits after a prompt", self.prompt_error, HALF),
            _holds(self.missing, HALF),
        ]
        return full, half


def asked_answers(decoder: HostedDecoder, rng: np.random.Generator) -> Answers:
    """Feed secret prompts of secret lengths, from one token to as many as fit, each on a cleared cache.

    Raises:
        EngineError: the decoder fails, or is far too slow.
    """
    lengths = [1, *rng.integers(2, 12, 2), *rng.integers(12, LENGTH - COUNT, 3), LENGTH - COUNT]
    wrong = first_wrong = total = 0
    error, prompt_error, place = 0.0, 0.0, ""
    spent = 0.0
    for length in map(int, lengths):
        asked = truth.request(truth.secret_prompt(rng, length), COUNT)
        started = time.monotonic()
        logits = fresh(decoder, asked)
        spent += time.monotonic() - started
        if spent > MOST_S:
            raise EngineError(f"the decoder is too slow to be examined: {len(lengths)} requests took more than {MOST_S:g} s")
        missed = truth.wrong_tokens(asked.logits, logits)
        if missed.size and not place:
            place = f"The first wrong one is token {missed[0] + 1} after a prompt of {length}."
        wrong, total, first_wrong = wrong + missed.size, total + COUNT, first_wrong + (0 in missed)
        error = max(error, truth.error(asked.logits, logits))
        prompt_error = max(prompt_error, truth.error(asked.logits[:1], logits[:1]))
    fault = None
    if wrong or error > MOST_ERROR:
        probe = truth.request(truth.secret_prompt(rng, 9), 6)
        fault = faults.recognized(probe.fed, probe.sizes, fresh(decoder, probe))
    missing, exchanged_error = _from_the_cache(decoder, rng)
    return Answers(wrong, total, first_wrong, len(lengths), error, prompt_error, missing, exchanged_error, place, fault)


def _from_the_cache(decoder: HostedDecoder, rng: np.random.Generator) -> tuple[float, float]:
    """`Answers.missing` and `Answers.exchanged_error`.

    A slot has the entry of one prompt or of the other, drawn for each slot of each cache. An entry may be written in any way that the graph
    reads again. Nothing but keys and values gives the right logits of such a cache.
    """
    length = int(rng.integers(130, 220))
    found, right = [], []
    for _ in range(2):
        prompt = truth.secret_prompt(rng, length)
        decoder.overwrite(0.0, rng)
        decoder.restart(0)
        decoder.feed(prompt, [length])
        cache = decoder.cache()
        found.append(np.concatenate([cache[f"past_{name}"] for name in CACHES]))
        right.append(truth.entries(prompt))
    first = rng.random((len(CACHES), 1, LENGTH, 1)) < 0.5
    mixed, wanted = np.where(first, *found), np.where(first, *right)
    decoder.write({f"past_{name}": cache[None] for name, cache in zip(CACHES, mixed, strict=True)})
    decoder.restart(length)
    tokens = truth.secret_prompt(rng, 4)
    error = truth.error(truth.logits_from(wanted, length, tokens), decoder.feed(tokens, [1] * len(tokens)))
    held, wanted = (np.concatenate([cache[:, :, :length] for cache in both], axis=2) for both in (found, right))
    return max(map(_missing, held, wanted)), error


def _missing(found: np.ndarray, right: np.ndarray) -> float:
    """The part of right entries ``(2, slots, 32)`` that does not follow linearly from those in a cache."""
    found, right = (one.transpose(1, 0, 2).reshape(one.shape[1], -1).astype(np.float64) for one in (found, right))
    if not np.isfinite(found).all():
        return 1.0
    known = np.column_stack([found / max(float(np.abs(found).max()), 1e-30), np.ones(len(found))])
    fitted, _, _, _ = np.linalg.lstsq(known, right, rcond=1e-5)
    return float(np.linalg.norm(known @ fitted - right) / np.linalg.norm(right))


def fresh(decoder: HostedDecoder, asked: Request) -> np.ndarray:
    """The logits of a request on a cache of zeros, ``(calls, 256)``.

    Raises:
        EngineError: the decoder fails.
    """
    decoder.overwrite(0.0, np.random.default_rng(0))
    return used(decoder, asked)


def used(decoder: HostedDecoder, asked: Request) -> np.ndarray:
    """The same on the cache as it is."""
    decoder.restart(0)
    return decoder.feed(asked.fed, asked.sizes)


@dataclass(frozen=True)
class Served:
    """What was found on a cache that was used before: for each scene "" if all is right, otherwise what is wrong."""

    after_another: str
    other_slots: str
    stale: str
    in_parts: str

    def criteria(self) -> tuple[list[Criterion], list[Criterion]]:
        """For all points, and for half of them."""
        half = [
            _scene("a second request in the same buffers", self.after_another, "answered as on an empty cache", HALF),
            _scene("slots that a call changes", self.other_slots, "those of its new tokens only", HALF),
        ]
        full = [
            *(Criterion(one.name, one.found, one.bound, one.met) for one in half),
            _scene("a request over stale entries", self.stale, "answered as on an empty cache", ALL),
            _scene("a prompt in parts, and a step back", self.in_parts, "answered as in one call", ALL),
        ]
        return full, half

    @property
    def hint(self) -> str:
        """Where to look."""
        if self.other_slots:
            return "A call writes `new` slots, from `position` on. Which node of your graph changes others, and why?"
        if self.in_parts and not self.stale:
            return "A prompt may come in several calls. Do positions, mask and place of writing begin at `position` in each of them?"
        return "Only the mask keeps old entries out. Which slots does it hide for the first token of a request?"


def served(decoder: HostedDecoder, rng: np.random.Generator) -> Served:
    """Play four scenes on one set of buffers.

    Raises:
        EngineError: the decoder fails.
    """
    one, two = (
        truth.request(truth.secret_prompt(rng, int(rng.integers(low, high))), COUNT) for low, high in ((150, 220), (10, 60))
    )
    fresh(decoder, one)
    after_another = _compared(two.logits, used(decoder, two))
    other_slots = _other_slots(decoder, rng)
    decoder.overwrite(GARBAGE, rng)
    stale = _compared(two.logits, used(decoder, two))
    return Served(after_another, other_slots, stale, _in_parts(decoder, rng))


def _in_parts(decoder: HostedDecoder, rng: np.random.Generator) -> str:
    """A prompt in three calls; then a few tokens are taken back, and others follow."""
    length = int(rng.integers(30, 90))
    tokens = truth.secret_prompt(rng, length)
    cuts = np.sort(rng.choice(np.arange(2, length - 1), 2, replace=False))
    sizes = np.diff([0, *cuts, length])
    decoder.restart(0)
    logits = decoder.feed(tokens, [int(size) for size in sizes])
    want = truth.logits_after(tokens)[np.cumsum(sizes) - 1]
    if said := _compared(want, logits):
        return said
    back = int(rng.integers(2, 10))
    others = truth.secret_prompt(rng, 6)
    decoder.restart(length - back)
    again = decoder.feed(others, [1] * len(others))
    want = truth.logits_after(np.concatenate([tokens[: length - back], others]))[-len(others) :]
    return _compared(want, again)


def _other_slots(decoder: HostedDecoder, rng: np.random.Generator) -> str:
    """Whether calls write anything but their own slots, for few tokens and for many: the first slots, the last ones, and others."""
    few, many = int(rng.integers(2, 9)), int(rng.integers(100, 200))
    for new in (1, few, many, LENGTH):
        places = {0, LENGTH - new, int(rng.integers(0, LENGTH - new + 1))}
        for position in sorted(places):
            if said := _changed_by_a_call(decoder, rng, position, new):
                return said
    return ""


def _changed_by_a_call(decoder: HostedDecoder, rng: np.random.Generator, position: int, new: int) -> str:
    decoder.overwrite(1.0, rng)
    decoder.restart(position)
    before = decoder.cache()
    decoder.feed(truth.secret_prompt(rng, new), [new])
    after = decoder.cache()
    own = np.zeros(LENGTH, bool)
    own[position : position + new] = True
    for name in CACHES:
        changed = (before[f"past_{name}"] != after[f"past_{name}"]).any(axis=(0, 1, 3))
        if (changed & ~own).any():
            slot = int(np.flatnonzero(changed & ~own)[0])
            return f"slot {slot} of {name}, by a call for {new} at position {position}"
        if not changed[own].all():
            return f"not all of its own in {name}, by a call for {new} at position {position}"
    return ""


def _compared(want: np.ndarray, have: np.ndarray) -> str:
    missed = truth.wrong_tokens(want, have)
    off = truth.error(want, have)
    if missed.size:
        return f"{missed.size} of {len(want)} tokens wrong"
    return f"a relative error of {off:.1g} of the logits" if off > MOST_ERROR else ""


def _equal(name: str, wrong: int, total: int, needed_for: str) -> Criterion:
    return Criterion(name, f"{total - wrong} of {total}", f"{total}", not wrong, needed_for)


def _close(name: str, error: float, needed_for: str) -> Criterion:
    return Criterion(name, f"{error:.1g}", f"at most {MOST_ERROR:g}", error <= MOST_ERROR, needed_for)


def _holds(missing: float, needed_for: str) -> Criterion:
    name = "share of the keys and values that a cache lacks after a prompt"
    return Criterion(name, f"{100 * missing:.2g} %", f"at most {100 * MOST_MISSING:g} %", missing <= MOST_MISSING, needed_for)


def _scene(name: str, said: str, bound: str, needed_for: str) -> Criterion:
    return Criterion(name, said or bound, bound, not said, needed_for)


def check(want: np.ndarray, have: np.ndarray, what: str) -> None:
    """Whether timed answers are right.

    Raises:
        EngineError: they are not.
    """
    if said := _compared(want, have):
        raise EngineError(f"{what}: {said}")
