"""Text as a reader sees it, and the ways in which text can hide from a reader.

`plain_text` undoes look-alikes, so that the guard's patterns see one spelling; what it undoes is
mostly reported as well (`hidden`), since honest advice does not need it.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

__all__ = ["disguises", "hidden", "plain_text"]

# Letters of other alphabets that look like Latin ones.
_LOOKALIKES = str.maketrans(
    dict(
        zip(
            "\u0430\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0456\u0457\u0458\u0455\u0501\u04bb\u051b\u051d\u0475\u04cf"
            "\u03b1\u03b5\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u03b7",
            "aekmhopctyxiijsdhqwvlaeikvoptuxn",
            strict=True,
        )
    )
)
_LEET = str.maketrans("013457@$!|", "oieastasil")
_LEET_WORD = re.compile(r"(?=[\w@$!|]{0,24}[a-z])[a-z013457@$!|]{3,24}")
_ACCENTS = re.compile("[\u0300-\u036f]")
_UNUSUAL = re.compile(r"[^\x20-\x7e\n\t]")
_BREAKS = re.compile("[\u0085\u2028\u2029\x0b\x0c\r]")


def plain_text(text: str) -> str:
    """Folded case, no accents, nothing invisible, look-alike letters as Latin; lines stay lines."""
    if text.isascii() and not _UNUSUAL.search(text):
        return text.lower()  # most texts, and all of the above is done
    text = _BREAKS.sub(" ", text)
    text = "".join(c for c in text if not _invisible(c))
    text = _ACCENTS.sub("", unicodedata.normalize("NFKD", text))
    text = unicodedata.normalize("NFC", text).casefold()
    text = text.replace("\u2019", "'").replace("\u2018", "'")
    return _LETTERS.sub(_as_latin, text) if _FOREIGN.search(text) else text


_LETTERS = re.compile(r"[^\W\d_]+")
_FOREIGN = re.compile("[\u0370-\u052f]")  # Greek and Cyrillic


def _as_latin(match: re.Match[str]) -> str:
    """The word in Latin letters when all of it looks Latin; else it is a word of its language."""
    word = match[0].translate(_LOOKALIKES)
    return word if word.isascii() else match[0]


def disguises(plain: str) -> Iterator[tuple[str, str]]:
    """Other ways to read a plain text, each with its name; lines stay lines."""
    yield "leetspeak", _LEET_WORD.sub(lambda match: match[0].translate(_LEET), plain)
    yield "rot13", codecs.encode(plain, "rot13")
    yield "backwards", "\n".join(line[::-1] for line in plain.split("\n"))


def hidden(text: str) -> Iterator[tuple[int, str]]:
    """What a reader cannot see or tell apart: (line from 1, what), one for each kind and line."""
    for number, line in enumerate(_BREAKS.sub(" ", text).split("\n"), 1):
        found = (_invisible_in(line), _mixed(line), _styled(line), _blob(line))
        yield from ((number, what) for what in found if what)


def _invisible_in(line: str) -> str | None:
    if line.isascii():
        return None
    for place, char in enumerate(line):
        if _invisible(char) and not _natural(line, place):
            return f"invisible character U+{ord(char):04X}"
    marks = max((len(match[0]) for match in _MARKS.finditer(line)), default=0)
    return "piled up accents" if marks > 3 else None


_MARKS = re.compile("[\u0300-\u036f\u0483-\u0489\u20d0-\u20ff]{1,50}")
_FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0"


@lru_cache(maxsize=4096)
def _invisible(char: str) -> bool:
    if char.isascii():
        return False
    code = ord(char)
    selectors = 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF or 0x180B <= code <= 0x180F
    return selectors or char in _FILLERS or unicodedata.category(char) in ("Cf", "Co", "Cn", "Cs")


def _natural(line: str, place: int) -> bool:
    """Whether an invisible character stands where writing needs it: in an emoji, in Persian…"""
    char, before = line[place], line[place - 1 : place]
    after = line[place + 1 : place + 2]
    if char in "\ufe0e\ufe0f":
        return before != "" and (
            unicodedata.category(before) in ("So", "Sm", "Po") or before in "0123456789"
        )
    if char == "\u200d" and unicodedata.category(before or " ") in ("So", "Sk", "Mn", "Cf"):
        return unicodedata.category(after or " ") == "So"
    if char in "\u200c\u200d":
        return all(_joining(one) for one in (before, after))
    return False


def _joining(char: str) -> bool:
    """Whether the script of a letter joins letters: Arabic, Syriac, those of India."""
    return char != "" and 0x0600 <= ord(char) <= 0x0DFF


def _mixed(line: str) -> str | None:
    """A word of Latin letters and others that look like them."""
    if line.isascii():
        return None
    for word in _LETTERS.findall(line):
        if any(map(_pretends, word)) and any("LATIN" in unicodedata.name(c, "") for c in word):
            return "a word of two alphabets"
    return None


def _pretends(char: str) -> bool:
    """A letter that passes for Latin: of Greek only some, since μm, kΩ and Δt are honest."""
    code = ord(char)
    if 0x0400 <= code <= 0x052F:
        return True
    return 0x0370 <= code <= 0x03FF and char in "αορντικυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧ"


_STYLED = re.compile("[\U0001d400-\U0001d7ff\u24b6-\u24e9\U0001f130-\U0001f189]{4}")


def _styled(line: str) -> str | None:
    return "letters in disguise" if _STYLED.search(line) else None


_BLOB = re.compile(r"[A-Za-z0-9+/_=-]{24,}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){12,}")
_LONGEST_HASH = 64


def _blob(line: str) -> str | None:
    """Encoded text, or a long piece that nobody can read."""
    for match in _BLOB.finditer(line[:100_000]):
        piece = match[0]
        if _HEX.fullmatch(piece):
            if len(piece) > _LONGEST_HASH or _readable(binascii.unhexlify(piece)):
                return "encoded text (hex)"
        elif _readable(_decoded(piece)) or _random(piece):
            return "encoded text (base64)"
    return None


def _decoded(piece: str) -> bytes:
    text = piece.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text[: len(text) // 4 * 4])
    except (ValueError, binascii.Error):
        return b""


def _readable(data: bytes) -> bool:
    """Whether it is text: words of ASCII, with blanks between them or letters only."""
    printable = sum(32 <= byte < 127 or byte in (9, 10, 13) for byte in data)
    return len(data) >= 12 and printable >= 0.95 * len(data)


def _random(piece: str) -> bool:
    longest = max(len(part) for part in re.split(r"[/_=-]", piece))
    mixed = (str.islower, str.isupper, str.isdigit)
    return len(piece) >= 64 and longest >= 24 and all(any(map(is_, piece)) for is_ in mixed)
