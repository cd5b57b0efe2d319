"""Descriptions and names: which of them only say what a skill is about, and which make claims.

Both get into prompts, so an order in them is as good as one in the body. But nearly all of them
repeat the words of the task, which are a user's; that alone must not make a draft wait.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from metaclaw_langgraph.evolving.grounding_text import Sentence, sentences, words
from metaclaw_langgraph.evolving.offline import topic
from metaclaw_langgraph.ledger.values import Failure

__all__ = ["claims", "is_made_of", "is_offline_description", "is_offline_name", "topics"]

# Set while looking at tests/evolving/data.
_RULING = re.compile(
    r"\b(?:always|never|must|should|shall|ought|treat(?:ed)?|regard(?:ed)?|considered|counts?"
    r"|approved|automatic(?:ally)?|immediately|instantly|already|at once|right away|straight away"
    r"|unnecessary|unconditionally|regardless|waived|exempt|permitted|allowed|entitled|without|needless"
    r"|no(?: \w+){1,3} (?:is |are )?(?:needed|required|necessary)|do not|don'?t|cannot|instead)\b",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"\s*(?:and |then |so |just |please |simply )*(?:accept|allow|approve|assume|avoid|charge"
    r"|confirm|consider|exempt|forward|give|grant|honou?r|ignore|let|mark|offer|omit|pay|promise"
    r"|quote|recommend|refund|reject|release|say|send|ship|skip|suggest|tell|transfer|trust|waive"
    r"|add|bypass|call|claim|credit|deny|direct|disable|drop|hand|include|issue|name|open|order"
    r"|point|post|put|refer|remove|share|stop|warn)\b",
    re.IGNORECASE,
)
_LEAD = re.compile(r"\s*(?:use (?:this |it )?)?(?:when|whenever|if|for|before|after|while)\b", re.I)
_REST = re.compile(r"\s*(?::|--|\s[–—-]\s)\s*|,\s+")  # noqa: RUF001
_COLON = re.compile(r"\s*(?::|--|\s[–—-]\s)\s*")  # noqa: RUF001
_LIST_WORDS = 4
_FEWEST = 3
_LISTED = re.compile(r"(?:,\s|\bor\b|\band\b)", re.IGNORECASE)

_PLAIN_WORDS = """\
    a an the and or of to in on for with about at by from as is are be been was were has have when
    whenever if while how what which who whose where this that these those such it its their they
    them his her he she i my our your you user users customer customers guest guests client clients
    somebody someone people person asks ask asked asking wants want need needs question questions
    request requests task tasks topic topics matter matters advice guidance correction corrections
    lesson lessons learned note notes tip tips answer answers answering reply replies replying
    respond responding use using handle handling similar kind kinds case cases regarding concerning
    related s"""
_PLAIN = frozenset(_PLAIN_WORDS.split())


def claims(text: str) -> list[str]:
    """The parts of a description that say more than what it is about: a sentence that rules, or
    what follows after "When …," or a colon, with what goes before if it is short."""
    found: list[str] = []
    for one in sentences(text):
        head, rest = _parted(one.text)
        if _RULING.search(head) or _ORDER.match(head):
            found.append(one.text)
        elif rest:
            found.append(rest if len(Sentence(rest).content) >= _FEWEST else one.text)
    return found


def topics(text: str) -> list[str]:
    """The parts that only say what it is about."""
    heads = [_parted(one.text)[0] for one in sentences(text)]
    return [head for head in heads if not (_RULING.search(head) or _ORDER.match(head))]


def _parted(sentence: str) -> tuple[str, str]:
    if sentence.lower().startswith("corrections on:"):
        return sentence.replace(":", "", 1), ""
    ends = _REST if _LEAD.match(sentence) else _COLON
    head, *rest = ends.split(sentence, maxsplit=1)
    tail = rest[0] if rest else ""
    # "When a user asks for tea, coffee or milk" goes on with its list.
    listed = _LISTED.search(tail) and len(words(tail)) <= _LIST_WORDS
    if listed and not (_RULING.search(tail) or _ORDER.match(tail)):
        return sentence, ""
    return head, tail


def is_made_of(text: str, known: Collection[str]) -> bool:
    """Whether a text is a topic in words that are known, or that say nothing."""
    return not claims(text) and all(one in known or one in _PLAIN for one in words(text))


def is_offline_description(text: str, failures: Sequence[Failure]) -> bool:
    """Whether it is what the offline evolver makes of a task: its words, and no sentence."""
    return any(text == f"Corrections on: {', '.join(one)}" for one in _topics_of(failures))


def is_offline_name(name: str, failures: Sequence[Failure]) -> bool:
    slugs = (re.sub(r"[^a-z0-9]+", "-", "-".join(one)).strip("-") for one in _topics_of(failures))
    return any(slug.startswith(name) for slug in slugs)


def _topics_of(failures: Sequence[Failure]) -> list[list[str]]:
    return [topic(one.trajectory.task or "") for one in failures]
