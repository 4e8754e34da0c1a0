"""Ids that could be mistaken for each other: their scripts, and what a name has in common with those that look like it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from functools import cache

# Scripts of an id's letters, by the first word of their names in Unicode. Others, such as Lisu, have letters of the shapes of these.
# Those of `_TOGETHER` occur in one name, and with Latin.
_TOGETHER = frozenset(["CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"])
_SCRIPTS = _TOGETHER.union(
    ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN", "HEBREW", "ARABIC", "ETHIOPIC", "THAI", "LAO", "KHMER", "MYANMAR"),
    ("TIBETAN", "MONGOLIAN", "SINHALA", "THAANA", "DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "ORIYA", "TAMIL", "TELUGU"),
    ("KANNADA", "MALAYALAM"),
)
# Pairs that Unicode's table lacks, after `casefold`, and what is alike once there are no capital letters.
_PAIRS = "ĸk фφ пπ ðđ リり オ才 チ千 說説 內内 戶户 曰日"
_OVERLAYS = dict.fromkeys(range(0x335, 0x339), "\N{COMBINING SHORT SOLIDUS OVERLAY}")  # strokes through a letter
_SAME = {"i": "1", "l": "1", "o": "0", "s": "5", "vv": "w"}


def script_problem(name: str) -> str:
    """Why the scripts of a name's letters could make it look like another name, in one line of ASCII; "" if they do not."""
    scripts = {unicodedata.name(one, "").partition(" ")[0] for one in name if _of_a_script(one)}
    if rare := scripts - _SCRIPTS:
        found = min(rare).title() or "unnamed"
        return f"the name has {found} letters, which can look like others: rename the folder with letters of a common script"
    if len(scripts) > 1 and not scripts <= _TOGETHER | {"LATIN"}:
        both = " and ".join(sorted(map(str.title, scripts)))
        return f"the name mixes {both} letters, which can look the same: rename the folder with one alphabet"
    return ""


def _of_a_script(one: str) -> bool:
    """Whether a character is a letter, or a number other than a digit; the modifiers of letters belong to several scripts."""
    if unicodedata.name(one, "").startswith("MODIFIER"):
        return False
    return one.isalpha() or unicodedata.category(one) in ("Nl", "No")


def looks(name: str) -> frozenset[str]:
    """Two ids have one of these in common if an instructor, or a file system without upper case, could mistake one for the other.

    Letters are compared as they are written and without upper case: of some, only the capital looks like another one.

    >>> [bool(looks("ada") & looks(other)) for other in ("ADA", "\u0430da", "ad\u0410", "ida")]
    [True, True, True, False]
    """
    plain = unicodedata.normalize("NFKC", name)
    return frozenset(_look(one) for one in (_replaced(plain), plain))


def _look(name: str) -> str:
    look = _replaced(unicodedata.normalize("NFD", name.casefold())).casefold()
    for one, same in _SAME.items():
        look = look.replace(one, same)
    return look.translate(_OVERLAYS)


def _replaced(name: str) -> str:
    return "".join(_looks_of_letters().get(one, one) for one in map(_usual, name))


def _usual(one: str) -> str:
    """A small capital's letter, or the character itself."""
    described = unicodedata.name(one, "")
    return described[-1].lower() if re.fullmatch("LATIN LETTER SMALL CAPITAL .", described) else one


@cache
def _looks_of_letters() -> Mapping[str, str]:
    """One of the texts that a character looks like, the same for all of them.

    Source:
        https://www.unicode.org/Public/security/latest/confusables.txt
    """
    from confusable_homoglyphs.confusables import confusables_data

    alike = [(text, other["c"]) for text, others in confusables_data.items() for other in others]
    alike += [(pair[0], pair[1]) for pair in _PAIRS.split()]
    groups: dict[str, set[str]] = {}
    for pair in alike:
        # The package writes marks of direction around letters from right to left.
        one, other = (unicodedata.normalize("NFD", text.replace("\N{LEFT-TO-RIGHT MARK}", "")) for text in pair)
        joined = groups.get(one, {one}) | groups.get(other, {other})
        groups |= dict.fromkeys(joined, joined)
    return {
        written: min(group, key=lambda one: (not one.isascii(), -len(one), one))
        for text, group in groups.items()
        for written in {text, unicodedata.normalize("NFC", text)}
        if len(written) == 1
    }
