"""Ids that could be mistaken for each other: their scripts, and what a name has in common with those that look like it."""

from __future__ import annotations

import unicodedata

# Scripts of an id's letters, by the first word of their names in Unicode. Others, such as Lisu, have letters of the shapes of these.
# Those of `_TOGETHER` occur in one name, and with Latin.
_TOGETHER = frozenset(["CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"])
_SCRIPTS = _TOGETHER.union(
    ("LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN", "HEBREW", "ARABIC", "ETHIOPIC", "THAI", "LAO", "KHMER", "MYANMAR"),
    ("TIBETAN", "MONGOLIAN", "SINHALA", "THAANA", "DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "ORIYA", "TAMIL", "TELUGU"),
    ("KANNADA", "MALAYALAM"),
)
# Letters by their numbers in Unicode, and the letter of ASCII that each looks like: a selection from `_SCRIPTS`. Four of five are in
# Unicode's table, too: https://www.unicode.org/Public/security/latest/confusables.txt
_CYRILLIC = "430a 435e 43Eo 440p 441c 443y 445x 455s 456i 458j 501d 51Bq 51Dw 4BBh 4CFl 432b 43Ak 43Cm 43Dh 442t 433r 4AFy 4BDe"
_GREEK = "3B1a 3B2b 3B5e 3B6z 3B7h 3B9i 3BAk 3BCm 3BDv 3BFo 3C1p 3C4t 3C5u 3C7x 3C9w 3F2c 3F3j"
_ARMENIAN, _LATIN = "561w 570h 578n 57Du 585o 581g 566q 563q 575j", "131i 237j 251a 261g 269i 28Bv 27Er 1C0l"
_OTHERS = "5D5l 5D8v 5E1o 627l 647o D20o 101Do"
_LOOKS = {chr(int(pair[:-1], 16)): pair[-1] for pair in " ".join((_CYRILLIC, _GREEK, _ARMENIAN, _LATIN, _OTHERS)).split()}
# Letters that look like one of another script or like another one of their own, in pairs, after `casefold` and without their accents.
_PAIRS = "фφ пπ ðđ ロ口 へヘ りリ エ工 カ力 タ夕 ト卜 ニ二 ハ八 オ才 チ千 ー一"
_LOOKS |= {pair[0]: pair[1] for pair in _PAIRS.split()} | {"\N{COMBINING COMMA BELOW}": "\N{COMBINING CEDILLA}"}
_TWO_AS_ONE = {"rn": "m", "vv": "w"}
_SAME = {ord("0"): "o", ord("1"): "l", ord("i"): "l", ord("5"): "s"}  # within ASCII, where a capital i is an l


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


def looks(name: str) -> str:
    """What the ids have in common that could be mistaken for each other, by an instructor or by a file system without upper case.

    >>> looks("ADA") == looks("ada"), looks("ada") == looks("\u0430da"), looks("ada") == looks("ida")
    (True, True, False)
    """
    plain = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", name).casefold())
    look = "".join(map(_look, plain)).translate(_SAME)
    for two, one in _TWO_AS_ONE.items():
        look = look.replace(two, one)
    return look


def _look(one: str) -> str:
    if one.isdecimal():
        return str(unicodedata.decimal(one))
    described = unicodedata.name(one, "")
    if described.startswith("LATIN LETTER SMALL CAPITAL ") and described[-2] == " ":
        return described[-1].lower()
    return "'" if described.startswith("MODIFIER") else _LOOKS.get(one, one)
