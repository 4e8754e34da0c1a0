"""The reference of lab 08: a kernel whose threads move 16 bytes each, and a plugin around it."""

from __future__ import annotations

from pathlib import Path

KERNEL = Path(__file__).with_name("rotary.cu").read_text(encoding="utf-8")
# Text to be written, not a module of the course.
PLUGIN = Path(__file__).with_name("rotary_plugin.txt").read_text(encoding="utf-8")


def write(folder: Path) -> None:
    """Both files."""
    (folder / "rotary.cu").write_text(KERNEL)
    (folder / "rotary_plugin.py").write_text(PLUGIN)
