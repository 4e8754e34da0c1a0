"""The right answer of lab 10's first task."""

from __future__ import annotations

# Each suspect, and the range that holds what it costs and nothing else.
RANGES = {
    "batch": "infer",
    "compression": "decode",
    "conversion": "hand over",
    "engine": "open engine",
    "lock": "lock",
    "logging": "log",
    "pixels": "normalize",
    "self-test": "self-test",
}
GUILTY = ("batch", "conversion", "engine", "pixels")
