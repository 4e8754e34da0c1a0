"""What makes a page hard to read, found in a browser: clipped, overlapping, crossed or faint text, and a page that scrolls sideways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_SCRIPT = Path(__file__).with_suffix(".js")


def faults(page: Any) -> list[str]:
    """What is hard to read on a page, in words. The window is made as tall as the page first, so that nothing is out of sight."""
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": page.viewport_size["width"], "height": int(height) + 1})
    page.wait_for_timeout(200)  # a view draws again in the new window
    found: list[str] = page.evaluate(_SCRIPT.read_text(encoding="utf-8"))
    return found
