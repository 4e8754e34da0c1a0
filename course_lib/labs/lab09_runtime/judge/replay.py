"""A trace, replayed on the judge's device: what each copy brought home, the mistakes in the order of the calls, and what is left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from course_lib.errors import EngineError
from course_lib.labs.lab09_runtime import network
from course_lib.labs.lab09_runtime.judge import mistakes
from course_lib.labs.lab09_runtime.judge.device import (
    COMPUTED,
    COPIED,
    NOTHING,
    Access,
    Block,
    IllegalAccess,
    InvalidTrace,
    Memory,
)
from course_lib.labs.lab09_runtime.judge.mistakes import Mistake
from course_lib.labs.lab09_runtime.judge.order import DEFAULT, Order, Work
from course_lib.labs.lab09_runtime.judge.recorded import Step
from course_lib.labs.lab09_runtime.requests import fits
from course_lib.labs.lab09_runtime.sandboxed.run_loop import ASKED

TAKEN = {  # what is taken and given back, by the kinds of both steps
    "device memory": ("allocate", "free"),
    "pinned host memory": ("pin", "unpin"),
    "streams": ("stream", "stream_gone"),
    "events": ("event", "event_gone"),
    "engines": ("engine", "engine_gone"),
    "contexts": ("context", "context_gone"),
}
_WORK = ("in", "out", "within", "profile", "run")
_NEW_WORK = ("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cudaMemcpyAsync", "enqueueV3", "cuMemAlloc")
_OF_ROW = 4 * network.COLUMNS, 4 * network.SCORES  # bytes of a row of features and of scores


@dataclass(frozen=True)
class Home:
    """What one copy brought from the device: bytes, and whether a run computed all of them."""

    data: np.ndarray
    computed: bool


@dataclass
class Replay:
    """What a trace did.

    Attributes:
        homes: what the copies brought home, in order.
        mistakes: in the order of the calls.
        left: how many of each kind in `TAKEN` remain at the end.
        rows: of all runs together.
        runs: their number.
        ahead: the most requests that were taken and had no run yet when the loop asked for another one.
        in_flight: copies and runs that the host had not waited for when the loop asked for the last time.
    """

    homes: list[Home] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)
    left: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0
    runs: int = 0
    ahead: int = 0
    in_flight: int = 0


@dataclass
class _Context:
    engine: int
    profile: int = 0
    last_profile: Work | None = None
    runs: list[Work] = field(default_factory=list)


def replayed(steps: Sequence[Step], requests: Sequence[np.ndarray], plan: bytes) -> Replay:
    """Replay a trace.

    Args:
        requests: the requests of the scene, to name them.
        plan: the plan that the loop was given.

    Raises:
        EngineError: the trace has something that the stand-in never writes.
    """
    replaying = _Replaying(requests, mistakes.digest(plan))
    try:
        for step in steps:
            replaying.step(step)
    except IllegalAccess:  # the device is lost, and the rest of the trace has no meaning
        replaying.lose()
        if later := [step.call for step in steps if step.kind == "after_loss" and step.call in _NEW_WORK]:
            replaying.found.mistakes.append(mistakes.after_loss(later[0]))
    except (InvalidTrace, KeyError, IndexError, ValueError):
        raise EngineError("its process sent a trace that the stand-in does not write") from None
    return replaying.end(steps)


class _Replaying:
    def __init__(self, requests: Sequence[np.ndarray], digest: str) -> None:
        self._coming = [
            request.tobytes() if fits(request) else b"" for request in requests
        ]  # no run answers one that does not fit
        self._asked, self._early = 0, set[int]()  # how many it asked for, and what a run computed before
        self._waiting: dict[int, bytes] = {}  # requests that were taken and have no run yet
        self._names = {request.tobytes(): index for index, request in enumerate(requests) if request.size}
        self._digest = digest
        self._order, self._memory = Order(), Memory()
        self._pinned: dict[int, Block] = {}
        self._streams: dict[int, str] = {DEFAULT: "the default stream"}
        self._engines: dict[int, str] = {}
        self._contexts: dict[int, _Context] = {}
        self._works: dict[tuple[int, int], tuple[Work, str]] = {}
        self.found = Replay()

    def step(self, step: Step) -> None:
        if step.kind in _WORK:
            if step.stream not in self._streams:
                raise InvalidTrace
            getattr(self, f"_{step.kind}")(step, self._order.enqueued(step.stream))
        elif step.kind == ASKED:
            self._ask(step)
        elif step.kind in ("allocate", "free", "pin", "unpin", "stream", "engine", "context"):
            getattr(self, f"_{step.kind}")(step)
        else:
            self._order.read(step)

    def lose(self) -> None:
        """Forget the work in flight: a lost device has none."""
        self._works.clear()

    def end(self, steps: Sequence[Step]) -> Replay:
        named: dict[str, set[int]] = defaultdict(set)  # addresses and handles, by the kind of step
        for step in steps:
            if any(step.kind in kinds for kinds in TAKEN.values()):
                named[step.kind].add(next(iter(step.fields.values())))
        self.found.ahead = max(
            self.found.ahead, len([number for number in self._early if number >= self._asked])
        )  # never asked for
        self.found.left = {name: len(named[taken] - named[given]) for name, (taken, given) in TAKEN.items()}
        running = [label for work, label in self._works.values() if not self._order.ended(work)]
        if running:
            self._mistake(mistakes.still_running(running[0], len(running)))
        return self.found

    # ---- requests

    def _ask(self, step: Step) -> None:
        """The loop asks for a request, which it receives at once."""
        if step.number != self._asked or step.number > len(self._coming):
            raise InvalidTrace
        self.found.ahead = max(self.found.ahead, len(self._waiting))
        self.found.in_flight = sum(not self._order.ended(work) for work, _ in self._works.values())
        if step.number < len(self._coming) and self._coming[step.number]:
            self._waiting[step.number] = self._coming[step.number]
        self._asked += 1

    def _computes(self, features: bytes, meant: bytes) -> None:
        """Note which requests a run computes. A batch can have several. One that is still to come answers nobody.

        A request whose pinned memory was overwritten too early has a run as well, although this run computes other numbers.
        """
        self._waiting = {number: data for number, data in self._waiting.items() if data not in features and data not in meant}
        self._early |= {
            number
            for number in range(self._asked, len(self._coming))
            if self._coming[number] and self._coming[number] in features
        }

    # ---- what is taken and given back

    def _allocate(self, step: Step) -> None:
        self._memory.allocate(step.address, step.size)

    def _free(self, step: Step) -> None:
        block = self._memory.free(step.address)
        if using := [one.label for one in block.accesses if not self._order.ended(one.work)]:
            self._mistake(mistakes.freed_in_flight(using[-1]))

    def _pin(self, step: Step) -> None:
        self._pinned[step.block] = Block(step.size)

    def _unpin(self, step: Step) -> None:
        self._pinned.pop(step.block, None)

    def _stream(self, step: Step) -> None:
        self._streams[step.stream] = f"stream {len(self._streams)}"

    def _engine(self, step: Step) -> None:
        self._engines[step.engine] = step.digest

    def _context(self, step: Step) -> None:
        self._contexts[step.context] = _Context(step.engine)

    # ---- work

    def _in(self, step: Step, work: Work) -> None:
        label = f"the copy of {self._name(step.called)} to the device on {self._streams[step.stream]}"
        self._host(step, work, label, writes=False)
        if step.changed or step.called != step.data:
            self._mistake(mistakes.host_overwritten(self._streams[step.stream]))
        self._use(step.address, step.size, work, label, writes=True)
        found, meant = (np.frombuffer(data, np.uint8) for data in (step.data, step.called))
        self._memory.write(step.address, found, COPIED, meant)

    def _out(self, step: Step, work: Work) -> None:
        label = f"the copy to the host on {self._streams[step.stream]}"
        self._use(step.address, step.size, work, label, writes=False)
        self._host(step, work, label, writes=True)
        data, origins = self._memory.read(step.address, step.size)
        self.found.homes.append(Home(data, bool((origins == COMPUTED).all())))

    def _within(self, step: Step, work: Work) -> None:
        label = f"the copy on the device on {self._streams[step.stream]}"
        self._use(step.source, step.size, work, label, writes=False)
        self._use(step.target, step.size, work, label, writes=True)
        meant = self._memory.meant(step.source, step.size)
        self._memory.write(step.target, *self._memory.read(step.source, step.size), meant)

    def _profile(self, step: Step, work: Work) -> None:
        context = self._contexts[step.context]
        if not all(work.follows(run) for run in context.runs):
            self._mistake(mistakes.profile_in_flight(step.index, self._streams[step.stream]))
        if step.index >= len(network.PROFILES):
            raise InvalidTrace
        context.profile, context.last_profile = step.index, work
        self._note(work, f"the switch to profile {step.index}")

    def _run(self, step: Step, work: Work) -> None:
        context, stream = self._contexts[step.context], self._streams[step.stream]
        low, _, high = network.PROFILES[step.profile]
        rows, columns = step.shapes[network.INPUT]
        if step.profile != context.profile or columns != network.COLUMNS or not low <= rows <= high:
            raise InvalidTrace
        if self._engines[context.engine] != self._digest:
            self._mistake(mistakes.another_plan())
        if network.OUTPUT not in step.addresses:
            raise EngineError(
                f"it gives {network.OUTPUT} to an output allocator, which the grader does not replay: set an address"
            )
        features, scores = (step.addresses[name] for name in (network.INPUT, network.OUTPUT))
        sizes = [rows * size for size in _OF_ROW]
        name = self._name_at(features, sizes[0])
        label = f"the run of {name} on {stream}"
        if any(not work.follows(run) for run in context.runs):
            self._mistake(mistakes.context_shared(label))
        if context.last_profile and not work.follows(context.last_profile):
            self._mistake(mistakes.profile_not_arrived(label))
        context.runs = [run for run in context.runs if not work.follows(run)] + [work]
        self._use(features, sizes[0], work, label, writes=False)
        self._use(scores, sizes[1], work, label, writes=True)
        data, origins = self._memory.read(features, sizes[0])
        if (origins == NOTHING).any():
            self._mistake(mistakes.unwritten(label))
        self._computes(data.tobytes(), self._memory.meant(features, sizes[0]).tobytes())
        computed = network.scores(data.view(np.float32).reshape(rows, columns))
        copied = COMPUTED if (origins == COPIED).all() else NOTHING
        self._memory.write(scores, computed.reshape(-1).view(np.uint8), copied)
        self.found.rows += rows
        self.found.runs += 1

    def _use(self, address: int, size: int, work: Work, label: str, *, writes: bool) -> None:
        """Note an access to device memory, and the mistakes in it."""
        try:
            block, offset = self._memory.block(address, size)
        except IllegalAccess as access:
            self._mistake(mistakes.illegal(label, str(access)))
            raise
        self._races(block, Access(offset, offset + size, writes, work, label))

    def _host(self, step: Step, work: Work, label: str, *, writes: bool) -> None:
        """Note an access to page-locked memory. Ordinary memory is copied before the call returns."""
        if step.block:
            block = self._pinned[step.block]
            if step.offset + step.size > block.size:
                raise InvalidTrace
            access = Access(step.offset, step.offset + step.size, writes, work, label)
            # The host can read rows only between the end of a copy home and the call of the next one to the same bytes.
            unread = writes and any(
                old.writes and old.conflicts(access) and not self._order.ended(old.work) for old in block.accesses
            )
            self._races(block, access)
            if unread:
                self._mistake(mistakes.never_read(label))
        self._note(work, label)

    def _races(self, block: Block, access: Access) -> None:
        if races := block.use(access):
            self._mistake(mistakes.race(races[-1].label, races[-1].writes, access.label, access.writes))
        self._note(access.work, access.label)

    def _note(self, work: Work, label: str) -> None:
        self._works[work.stream, work.number] = work, label

    # ---- words

    def _mistake(self, mistake: Mistake) -> None:
        self.found.mistakes.append(mistake)

    def _name(self, data: bytes) -> str:
        index = self._names.get(data)
        return "rows" if index is None else f"request {index}"

    def _name_at(self, address: int, size: int) -> str:
        """What lies at an address, as far as it lies in one allocation."""
        try:
            self._memory.block(address, size)
        except IllegalAccess:
            return "a request"
        return self._name(self._memory.meant(address, size).tobytes())
