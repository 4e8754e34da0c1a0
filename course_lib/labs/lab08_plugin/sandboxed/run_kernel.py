"""The process that becomes a compiled program: its size and the program on standard input, then whatever the program reads."""

from __future__ import annotations

import os


def main() -> None:
    """Read exactly the program's bytes, so that the program can read the rest."""
    size, program = int(os.read(0, 20)), os.memfd_create("program")
    while size:
        part = os.read(0, min(size, 1 << 20))
        size -= os.write(program, part)
    os.execve(program, ["program"], dict(os.environ))


if __name__ == "__main__":
    main()
