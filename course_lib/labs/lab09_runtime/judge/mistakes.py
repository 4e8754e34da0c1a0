"""The mistakes in the order of a loop's calls: what each is, and where to look."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """A mistake, in a sentence, and a hint that does not give the solution away."""

    said: str
    hint: str
    rank: int = 1  # of several mistakes, one with the lowest rank is shown: others often follow from it


def digest(plan: bytes) -> str:
    """How a trace names a plan."""
    return hashlib.sha256(plan).hexdigest()


def race(earlier: str, earlier_writes: bool, later: str, later_writes: bool) -> Mistake:
    """Two pieces of work use the same bytes, and nothing makes one wait for the other."""
    if earlier_writes and not later_writes:
        return Mistake(
            f"A wait is missing: {later} reads bytes that {earlier} may not have written yet.",
            "Work on one stream runs in order. Which call makes a stream wait for an event of another stream?",
        )
    return Mistake(
        f"A buffer is used again too early: {later} overwrites bytes that {earlier} may still {'write' if earlier_writes else 'read'}.",
        "When is a buffer free again? Wait for the work that used it, or give the next request a buffer of its own.",
    )


def host_overwritten(stream: str) -> Mistake:
    """The source of a copy changed before the copy ran."""
    return Mistake(
        f"Pinned memory was overwritten while a copy from it was in flight on {stream}, so the GPU copied other bytes.",
        "The GPU reads pinned memory when the copy runs, and not at the call. Wait for the copy before you write the next request there.",
    )


def never_read(label: str) -> Mistake:
    """A copy home overwrites rows that the host had no safe moment to read."""
    return Mistake(
        f"{label[0].upper()}{label[1:]} overwrites pinned bytes of an earlier copy that the host had not waited for.",
        "The host may read an answer only after a wait, and before the next copy to the same bytes. Wait and take the rows first.",
    )


def freed_in_flight(label: str) -> Mistake:
    """Memory was freed while work that uses it was in flight."""
    return Mistake(
        f"Device memory was freed while {label} may still use it.",
        "Before `free`, wait for the stream. If an error leaves your loop, its local variables are freed too: what waits then?",
    )


def illegal(label: str, access: str) -> Mistake:
    """Work touches what is not its memory."""
    if "freed" in access:
        hint = (
            "Which address does the context still have? Set the addresses after you allocate, and free only when the loop ends."
        )
    elif "allocation has" in access:
        hint = "Count the bytes: rows times columns times 4. Is each buffer large enough for the largest profile?"
    else:
        hint = "`set_tensor_address` needs the address of device memory, `int(allocation)`, and not of an array on the host."
    return Mistake(f"The device was lost: {label} touches {access}.", hint)


def after_loss(call: str) -> Mistake:
    """A call on a lost device."""
    return Mistake(
        f"{call} was called after the device was lost. Each call on a lost device fails.",
        "Let the first error leave your loop. Only a new process gets a working device.",
    )


def context_shared(label: str) -> Mistake:
    """Two runs of one context at once."""
    return Mistake(
        f"A context runs twice at once: {label} may begin before the previous run has ended.",
        "A context has one set of scratch memory. Give each stream its own context, or wait between its runs.",
        rank=0,
    )


def profile_in_flight(index: int, stream: str) -> Mistake:
    """A switch of the profile while a run may be in flight."""
    return Mistake(
        f"The switch to profile {index} on {stream} may come before an earlier run of the same context has ended.",
        "Switch on the stream that runs the context, or wait for the run first.",
    )


def profile_not_arrived(label: str) -> Mistake:
    """A run that does not wait for the switch of its profile."""
    return Mistake(
        f"The profile was switched on another stream, and {label} does not wait for the switch.",
        "`set_optimization_profile_async` copies to the device. Give it the stream that runs the context.",
    )


def unwritten(label: str) -> Mistake:
    """A run reads what no copy wrote."""
    return Mistake(
        f"{label[0].upper()}{label[1:]} reads features that no copy has written.",
        "Which copy comes before the run, and how many bytes does it copy? Does the run have the shape of this request?",
    )


def another_plan() -> Mistake:
    """A context of an engine that was not given."""
    return Mistake("A context runs another engine than the given plan's.", "Deserialize the bytes that `serve` receives.")


def still_running(label: str, count: int) -> Mistake:
    """The loop returned or raised while work was in flight."""
    more = f", and {count - 1} more" if count > 1 else ""
    return Mistake(
        f"When `serve` ended, the host had not waited for {label}{more}.",
        "Wait for every stream before you return, and also before an error leaves the loop.",
    )
