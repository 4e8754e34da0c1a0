"""Whether a host's calls are those that a request needs, and its answer what the decoder says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from course_lib.labs.lab13_generation.calls import SERVICE, STOP, Asked, Call, Reply
from course_lib.labs.lab13_generation.judge import truth
from course_lib.labs.lab13_generation.network import LENGTH


@dataclass(frozen=True)
class Mistake:
    """What is wrong with a reply, and where to look. `wasteful`: the answer is right, and its calls cost more than necessary."""

    message: str
    hint: str
    wasteful: bool = False


def judged(replies: Sequence[Reply]) -> list[Mistake]:
    """The first mistake of each request of the service, none if all is right."""
    if len(replies) != len(SERVICE):
        return [
            Mistake(
                f"{len(replies)} requests are recorded, expected the {len(SERVICE)} of SERVICE",
                "End each request with recorder.answer(...), and save the recorder once.",
            )
        ]
    found = [(number, _mistake(asked, reply)) for number, (asked, reply) in enumerate(zip(SERVICE, replies, strict=True), 1)]
    return [Mistake(f"Request {number}: {one.message}", one.hint, one.wasteful) for number, one in found if one]


def _mistake(asked: Asked, reply: Reply) -> Mistake | None:
    return _answer(asked, reply.answer) or _calls(asked, reply)


def _answer(asked: Asked, answer: bytes) -> Mistake | None:
    stop = answer.find(STOP) + 1
    if stop and stop < len(answer):
        return Mistake(
            f"the answer goes on after the newline at byte {stop}",
            "The newline is the last byte of an answer: test for it before the next call.",
        )
    if len(answer) > asked.most:
        return Mistake(
            f"the answer has {len(answer)} bytes, at most {asked.most} are allowed",
            f"An answer has at most `count` bytes, and no call may go beyond slot {LENGTH - 1}.",
        )
    tokens = np.frombuffer(asked.prompt + answer, np.uint8).astype(np.int64)
    if answer:
        logits = truth.logits_after(tokens[:-1])[len(asked.prompt) - 1 :]
        chosen = np.frombuffer(answer, np.uint8)
        missed = np.flatnonzero(logits.max(1) - logits[np.arange(len(chosen)), chosen] > truth.TIE)
        if missed.size:
            return Mistake(
                f"byte {missed[0] + 1} of the answer is not the most likely one",
                "Does lab.check('answers') pass? Then look at the position of the call before this byte.",
            )
    if len(answer) < asked.most and not stop:
        return Mistake(
            f"the answer ends after {len(answer)} bytes without a newline, expected {asked.most}",
            "The last byte is not fed, so it needs no slot: how many calls fit into the cache after the prompt?"
            if asked.most < asked.count
            else "An answer has `count` bytes, unless a newline or the end of the cache ends it.",
        )
    return None


def _calls(asked: Asked, reply: Reply) -> Mistake | None:
    prompt = tuple(asked.prompt)
    needed = (Call(0, prompt), *(Call(len(prompt) + n, (token,)) for n, token in enumerate(reply.answer[:-1])))
    if reply.calls == needed:
        return None
    first = reply.calls[0] if reply.calls else Call(0, ())
    if first.position != 0:
        return Mistake(
            f"its first call is at position {first.position}, expected 0",
            "A new request begins with an empty cache. What the slots hold from before does not matter, so nothing has to be cleared.",
        )
    if first.tokens != prompt:
        return Mistake(
            f"its first call has {len(first.tokens)} tokens, expected the whole prompt of {len(prompt)}",
            "One call for the prompt reads the weights once. A call for each of its bytes reads them each time.",
            wasteful=True,
        )
    for number, (found, right) in enumerate(zip(reply.calls, needed, strict=False), 1):
        if found.position != right.position:
            return Mistake(
                f"call {number} is at position {found.position}, expected {right.position}",
                "`position` counts the tokens in the cache: the prompt's, and one for each byte that was fed.",
            )
        if found.tokens != right.tokens:
            return Mistake(
                f"call {number} feeds {list(found.tokens[:4])}, expected the byte before it, {list(right.tokens)}",
                "A decode call has one token: the byte that was chosen last.",
                wasteful=True,
            )
    return Mistake(
        f"it has {len(reply.calls)} calls for {len(reply.answer)} bytes, expected {len(needed)}",
        "The logits of a call give the next byte. Nothing reads the logits after the last byte, so it is not fed.",
        wasteful=True,
    )
