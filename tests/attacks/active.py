"""What a browser would run, load or follow if it opened a page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

_RUNS = {"script", "iframe", "frame", "object", "embed", "applet", "base", "link", "form", "portal"}
_LOADS = {"src", "href", "srcset", "data", "action", "formaction", "poster", "xlink:href", "background", "srcdoc"}
_HARMLESS = re.compile(
    r"(?!//|[\w\s.+-]*:)|data:image/(png|jpeg);base64,"
)  # no address of another place, and no script; pixels


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._inside = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._inside = tag
        if tag in _RUNS or (tag == "meta" and "http-equiv" in dict(attributes)):
            self.found.add(f"<{tag} {sorted((name, value or '') for name, value in attributes)}>")
        for name, value in attributes:
            if name.startswith("on") or (name in _LOADS and not _HARMLESS.match((value or "").strip())):
                self.found.add(f"{tag} {name}={value}")

    def handle_data(self, data: str) -> None:
        if self._inside == "script" and data.strip():
            self.found.add(f"script: {data.strip()}")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


def active_content(page: Path) -> set[str]:
    """Scripts, handlers of events, frames, and addresses that lead elsewhere."""
    reader = _Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    return reader.found
