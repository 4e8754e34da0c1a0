"""Text from outside, made safe to print: one line without anything that a terminal or a browser would obey."""

from __future__ import annotations

import re
from typing import Any

_REPLACED = "\N{REPLACEMENT CHARACTER}"


def plain(text: Any, most: int = 1000) -> str:
    """One line of printable characters, at most `most` of them.

    White space of every kind becomes one space. Control characters, marks that turn the direction of text, halves of characters and
    unassigned code points are replaced.
    """
    line = " ".join(str(text)[: 4 * most].split())[:most]
    return "".join(one if one.isprintable() else _REPLACED for one in line)


def reason(error: BaseException | str, most: int = 300) -> str:
    """Why a library failed, in one line without the parts before the cause: error codes, places in its source, C++ signatures.

    Only the first line of the message counts, with the next one if the first ends in a colon or has no other content. An error
    without a message gives the name of its class.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = ""
    for line in lines:
        text = _without_places(f"{text} {line}".strip())
        if text and not text.endswith(":"):
            break
    text = text or (error if isinstance(error, str) else type(error).__name__)
    return text if len(text) <= most else f"{text[: most - 3].rpartition(' ')[0] or text[: most - 3]}..."


_CODE = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
_FAILED_NODE = re.compile(r"Non-zero status code returned while running (\S+) node\. Name:'(.*?)' Status Message: ")
_PLACE = (
    re.compile(  # onnxruntime's "model.cc:256 ", OpenVINO's "Exception from src/plugin.cpp:104: " and "failed at src/x.hpp:3: "
        r"(?:(?:Caught exception: )?Exception from |\b(?:In \w+ )?at )?\S+\.(?:cc|cpp|cxx|cu|cuh|h|hpp):\d+(?P<colon>:?)\s*"
    )
)
_PARENTHESES = r"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_SIGNATURE = re.compile(rf"[^()]*(?:{_PARENTHESES})+(?:\s*(?:const\b|noexcept\b|::<lambda{_PARENTHESES}>|\[with [^\]]*\]))*\s*")


def _without_places(line: str) -> str:
    text = _FAILED_NODE.sub(r"\1 node '\2': ", _CODE.sub("", line))
    kept = ""
    while place := _PLACE.search(text):
        kept += text[: place.start()]
        text = text[place.end() :] if place["colon"] else _after_signature(text[place.end() :])
        if place["colon"] and kept.endswith("failed "):
            kept = f"{kept.rstrip()}: "
    return " ".join((kept + text).split())


def _after_signature(text: str) -> str:
    """The message after the name, or after the whole signature, of the C++ function that raised it."""
    if "::" not in text.partition("(")[0]:
        return text.partition(" ")[2]
    signature = _SIGNATURE.match(text)
    return text[signature.end() :] if signature else text
