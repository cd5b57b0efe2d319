"""Whether a user's next message says that the last answer was good or bad, by its words alone.

English only, and careful: most messages are new requests and say nothing, "no" is often the answer
to a question, and thanks alone are politeness. What is not clear is None.
"""

from __future__ import annotations

import re

__all__ = ["score_of_turn"]

_LOOK = 400
_OPENER = (
    r"(?:(?:no|nope|nah|sorry|hm+|wait|but|actually|well|ok|okay|oh|ugh|hey|um|uh|yes|"
    r"thanks|thank you|great|nice|good|fine|perfect)[\s,.;:!…-]+)*"
)
_IT = r"(?:that|this|it|(?:the|your|this|that) (?:answer|reply|response|result|solution|code))"
_IS = r"(?:'s| is| was)(?: (?:just|still|simply|completely|totally|plain|clearly|also))?"
_ISNT = r"(?:'s not| is not| isn't| was not| wasn't)"
_END = r"(?=$|[,;:\u2026-]| (?:again|because|since|too|and|i|the|you|for me)\b)"
_SOMETHING = r"(?: (?:the|a|an|my|one|some|something|half|part|to|this|that|it|what|which)\b|$)"
_YOU = r"you(?:'ve| have)?(?: just| still| also| again)?"
_BAD = (
    rf"{_IT}{_IS} (?:wrong|incorrect|not (?:right|correct|true)){_END}",
    rf"{_IT}{_ISNT} (?:right|correct|true){_END}",
    rf"{_IT} (?:still )?(?:doesn't|does not|didn't|did not) work(?: either)?$",
    r"(?:still )?(?:wrong|incorrect)(?: (?:again|answer|one))?$",
    r"(?:(?:that|it|this)(?:'s| is| was) )?not what i (?:asked|meant|wanted|said|need|needed)\b",
    rf"{_IT}{_ISNT} what i (?:asked|meant|wanted|said|need|needed)\b",
    rf"{_YOU} (?:forgot|forgotten|missed|misread|ignored){_SOMETHING}",
    rf"{_YOU} (?:misunderstood|got (?:it|that|this) wrong|made (?:a mistake|an error))",
    r"you (?:didn't|did not) (?:answer|follow|include|read|listen|do what)\b",
    r"i (?:meant|said|asked|wanted|told you)\b[^,]*, not\b",
)
_AFTER_NO = (
    r"i (?:meant|said|asked|wanted|told you)\b(?! to (?:thank|say))",
    r"not (?:that|this|like that|the \w+)$",
    r"it should (?:have been|be)",
)
_NEGATIVE = re.compile(rf"{_OPENER}(?:{'|'.join(_BAD)})")
_NO = re.compile(rf"(?:no|nope|nah)[\s,.;:!…-]+{_OPENER}(?:{'|'.join(_AFTER_NO)})")

_THANKS = r"(?:(?:many )?thanks|thank you|thx)(?: (?:so|very) much| a lot| again)?"
_PRAISE = re.compile(
    r"(?:absolutely |just |simply |that's |that is |that was |this is |it's |yes |wow )*"
    r"(?:perfect|excellent|awesome|brilliant|fantastic|wonderful|amazing|spot on|well done|"
    r"(?:great|good|nice) (?:job|work|answer)|exactly right|"
    r"(?:exactly )?what i (?:needed|wanted|meant|asked for|was looking for))"
    r"|(?:it|that|this) works(?: now| perfectly| great| fine)?|works (?:perfectly|great|now)"
)
_PIECES = re.compile(r"[,.;:!\n…]+|\s+[-\u2013\u2014]\s+")
_SPOILED = re.compile(
    r"\b(?:but|however|although|though|except|only|still|yet|unfortunately|not|no|never|cannot|"
    r"wrong|incorrect|error|errors|fail|fails|failed|broken|broke|bug|again|forgot|missing|missed|"
    r"instead|problem|sarcas\w*)\b|n't\b|\?"
)


def score_of_turn(turn: str) -> int | None:
    """1 for praise, -1 for a correction or a complaint, None for all else."""
    text = " ".join(turn[:_LOOK].lower().replace("\u2019", "'").split(" ")).strip()
    for sentence, end in _sentences(text)[:2]:
        if end != "?" and (_NEGATIVE.match(sentence) or _NO.match(sentence)):
            return -1
    return 1 if _praises(text) else None


def _sentences(text: str) -> list[tuple[str, str]]:
    """The sentences, each with the sign that ends it."""
    parts = re.split(r"([.!?\n]+)(?:\s+|$)", text)
    return [
        (parts[i].strip(), (parts[i + 1 : i + 2] or [""])[0][:1]) for i in range(0, len(parts), 2)
    ]


def _praises(text: str) -> bool:
    """Whether it begins with praise, thanks before it allowed, and nothing takes it back."""
    if _SPOILED.search(text):
        return False
    pieces = [piece.strip() for piece in _PIECES.split(text) if piece and piece.strip()]
    while pieces and re.fullmatch(_THANKS, pieces[0]):
        pieces.pop(0)
    first = re.sub(rf"^{_THANKS} |\s+{_THANKS}$", "", pieces[0]) if pieces else ""
    return bool(_PRAISE.fullmatch(first))
