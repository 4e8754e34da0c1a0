"""The judge's device: memory as a trace allocates it, what every byte holds, what it was meant to hold, and who used it last."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from course_lib.labs.lab09_runtime.judge.order import Work
from course_lib.labs.lab09_runtime.sandboxed.run_loop import MEMORY

NOTHING, COPIED, COMPUTED = 0, 1, 2  # where a byte came from
_MOST_EVER = 16 * MEMORY  # bytes that one trace may allocate in all


class InvalidTrace(Exception):
    """The trace has something that the stand-in never writes."""


class IllegalAccess(Exception):
    """Work touches bytes that are not in one allocation; the message says which."""


@dataclass(frozen=True)
class Access:
    """A piece of work used bytes ``begin`` to ``end`` of a block. `label` says what it was, for a message."""

    begin: int
    end: int
    writes: bool
    work: Work
    label: str

    def conflicts(self, other: Access) -> bool:
        """Whether both use a byte that one of them writes."""
        return (self.writes or other.writes) and self.begin < other.end and other.begin < self.end

    def replaces(self, old: Access) -> bool:
        """Whether all later work that races with `old` also races with this, so that `old` need not be kept."""
        return self.writes and self.begin <= old.begin and old.end <= self.end and self.work.follows(old.work)


@dataclass
class Block:
    """Memory that was allocated at once, on the device or page-locked on the host."""

    size: int
    accesses: list[Access] = field(default_factory=list)

    def use(self, new: Access) -> list[Access]:
        """Note an access, and return the earlier ones that it conflicts with and does not follow."""
        races = [old for old in self.accesses if old.conflicts(new) and not new.work.follows(old.work)]
        self.accesses = [old for old in self.accesses if not new.replaces(old)]
        self.accesses.append(new)
        return races


class Memory:
    """Device memory by address."""

    def __init__(self) -> None:
        self.blocks: dict[int, Block] = {}
        self._bytes: dict[int, np.ndarray] = {}
        # What the bytes would be if no copy had found other ones than when it was called.
        self._meant: dict[int, np.ndarray] = {}
        self._origins: dict[int, np.ndarray] = {}
        self._freed: dict[int, int] = {}
        self._ever = self._now = 0

    def allocate(self, address: int, size: int) -> None:
        """Take `size` bytes, which nothing has written."""
        self._now, self._ever = self._now + size, self._ever + size
        if not size or self._now > MEMORY or self._ever > _MOST_EVER or self._overlaps(address, size):
            raise InvalidTrace
        self.blocks[address] = Block(size)
        self._bytes[address], self._origins[address] = np.full(size, 0xFF, np.uint8), np.zeros(size, np.uint8)
        self._meant[address] = self._bytes[address].copy()

    def free(self, address: int) -> Block:
        """Give a block back."""
        if address not in self.blocks:
            raise InvalidTrace
        block = self.blocks.pop(address)
        del self._bytes[address], self._meant[address], self._origins[address]
        self._freed[address] = block.size
        self._now -= block.size
        return block

    def _overlaps(self, address: int, size: int) -> bool:
        known = [(start, block.size) for start, block in self.blocks.items()] + list(self._freed.items())
        return any(start < address + size and address < start + old for start, old in known)

    def block(self, address: int, size: int) -> tuple[Block, int]:
        """The block that holds these bytes, and their offset in it.

        Raises:
            IllegalAccess: there is none.
        """
        for start, block in self.blocks.items():
            if start <= address < start + block.size:
                if address + size > start + block.size:
                    left = start + block.size - address
                    raise IllegalAccess(f"{size} bytes, and the allocation has {left} bytes from this address on")
                return block, address - start
        if any(start <= address < start + freed for start, freed in self._freed.items()):
            raise IllegalAccess("memory that was freed before")
        raise IllegalAccess("an address that is not device memory")

    def read(self, address: int, size: int) -> tuple[np.ndarray, np.ndarray]:
        """A copy of the bytes, and where each came from."""
        start = self._start(address)
        part = slice(address - start, address - start + size)
        return self._bytes[start][part].copy(), self._origins[start][part].copy()

    def meant(self, address: int, size: int) -> np.ndarray:
        """A copy of the bytes that copies to the device had at their calls."""
        start = self._start(address)
        return self._meant[start][address - start : address - start + size].copy()

    def write(self, address: int, data: np.ndarray, origins: np.ndarray | int, meant: np.ndarray | None = None) -> None:
        """Replace the bytes. `meant`, if it is given, is what they were meant to be."""
        start = self._start(address)
        part = slice(address - start, address - start + len(data))
        self._bytes[start][part], self._origins[start][part] = data, origins
        self._meant[start][part] = data if meant is None else meant

    def _start(self, address: int) -> int:
        return max(start for start in self.blocks if start <= address)
