"""What secrets look like: patterns, each with words that a text must hold for it to be tried.

The words make it fast: most texts hold none of them, and then no pattern runs. From
`detect-secrets` come the patterns; its own search is not used, because for several tokens it
yields only their prefix, and for private keys only the first line.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from typing import TypeAlias

__all__ = ["Rule", "RuleSet", "Span", "rules"]

Span: TypeAlias = tuple[int, int, str]
"""Where a secret begins, where it ends, and its kind."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of secret."""

    kind: str
    pattern: re.Pattern[str]
    words: tuple[str, ...] = ()
    """Lower-case; one of them must be in the text. None: always try."""
    group: int = 0
    """The part of the match that is the secret."""
    accept: Callable[[str], bool] | None = None
    """A last look at the secret itself."""
    folded: bool = False
    """Match the lower-case text: many times faster than a pattern that ignores case."""
    token: bool = False
    """All that the pattern matches is one piece without blanks, of 20 characters or more."""

    def spans(self, text: str, lowered: str) -> Iterator[tuple[int, int]]:
        for match in self.pattern.finditer(lowered if self.folded else text):
            start, stop = match.span(self.group)
            if stop > start and (self.accept is None or self.accept(text[start:stop])):
                yield start, stop


class RuleSet:
    """Rules with an index from words to the rules that they call for."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rules)
        # Keys come again and again; values do not.
        self.key = lru_cache(maxsize=4096)(self._key)
        self._always = {order for order, rule in enumerate(self._rules) if not rule.words}
        self._calls = self._index(token=False)
        self._token_calls = self._index(token=True)

    def spans(self, text: str) -> list[Span]:
        """Where secrets are, in order; overlapping ones become one, named by its first rule."""
        lowered = _fold(text)
        found = sorted(
            (start, order, stop)
            for order in self._called(lowered)
            for start, stop in self._rules[order].spans(text, lowered)
        )
        return list(_merged((start, stop, self._rules[order].kind) for start, order, stop in found))

    def _index(self, token: bool) -> dict[str, list[int]]:
        calls: dict[str, list[int]] = {}
        for order, rule in enumerate(self._rules):
            for word in rule.words if rule.token is token else ():
                calls.setdefault(word, []).append(order)
        return calls

    def _called(self, lowered: str) -> set[int]:
        """The rules worth trying. Most of them ask for tokens, and few pieces are that long."""
        calls = [orders for word, orders in self._calls.items() if word in lowered]
        long = " ".join([piece for piece in lowered.split() if len(piece) >= 20])
        if long:
            calls += [orders for word, orders in self._token_calls.items() if word in long]
        return self._always.union(*calls)

    def redact(self, text: str) -> str:
        """The text with every secret replaced."""
        parts, end = [], 0
        for start, stop, kind in self.spans(text):
            parts += [text[end:start], f"[redacted:{kind}]"]
            end = stop
        return "".join([*parts, text[end:]]) if parts else text

    def _key(self, key: str) -> tuple[str, Callable[[str], bool] | None]:
        """A mapping's key, redacted, and how to tell that a text under it is a secret."""
        match = _SECRET_KEY.search(key)
        if match is None:
            return self.redact(key), None
        return self.redact(key), _is_password if match["password"] else looks_random


def _fold(text: str) -> str:
    lowered = text.lower()
    # A few letters change their length in lower case; positions must stay the same.
    return lowered if len(lowered) == len(text) else text.translate(_ASCII_LOWER)


_ASCII_LOWER = {ord(upper): upper.lower() for upper in string.ascii_uppercase}


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
    last: Span | None = None
    for span in spans:
        if last is not None and span[0] < last[1]:
            last = (last[0], max(last[1], span[1]), last[2])
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def looks_random(value: str) -> bool:
    """One long piece of mixed letters and digits: not words, an identifier or a placeholder."""
    return (
        len(value) >= 8
        and not _PLACEHOLDER.search(value)
        and not _WORDS.fullmatch(value)
        and any(c.isdigit() for c in value)
        and any(c.isalpha() for c in value)
    )


def _looks_chosen(value: str) -> bool:
    """What a person may have chosen as a password."""
    return not _PLACEHOLDER.search(value) and any(c.isdigit() for c in value)


_PLACEHOLDER = re.compile(r"[\s<>{}()\[\]$*]|\.\.\.|redacted|xxxx|your[_-]|example", re.I)
# `utf8`, `api_key_v2`, `claude-3-5`: words and short numbers joined by punctuation.
_WORDS = re.compile(r"(?:[A-Za-z]+\d{0,2}|\d{1,4})(?:[._:/@+=-]+(?:[A-Za-z]+\d{0,2}|\d{1,4}))*")


def _not_a_sample(value: str) -> bool:
    """Manuals are full of `user:password@host`."""
    return not _PLACEHOLDER.search(value) and value.lower() not in _SAMPLES


_SAMPLES = ("password", "passwd", "pass", "pwd", "pw", "secret", "token", "key")


def _is_password(value: str) -> bool:
    """Any value of a field that is called password, unless it only holds the place of one."""
    return len(value) >= 4 and not _TEMPLATE.fullmatch(value)


_TEMPLATE = re.compile(r"\*+|<.*>|\$?\{.*\}|\[redacted:.*\]", re.DOTALL)


_SECRET_KEY = re.compile(
    r"(?:^|[_\-. ])(?:(?P<password>password|passwd|passphrase)|api[_-]?key|authorization"
    r"|credentials|(?:client[_-]?)?secret(?:[_-]?(?:access[_-]?)?key)?|(?:private|access)[_-]?key"
    r"|(?:access|auth|bearer|refresh|session|api|bot|secret)[_-]?token)$",
    re.I,
)


def _ending(word: str, *before: str) -> str:
    """A pattern for `word` after one of `before`. It begins with the word: that is fast to find."""
    whole = (f"(?<={first}{joint}{word})" for first in before for joint in ("", "_", "-"))
    return f"{word}(?:{'|'.join(whole)})"


# Detectors of detect-secrets: module, class, words, the group that is the secret (where a pattern
# has groups). Left out are entropy, keywords and bearer-like rules that take plain words for
# secrets, public IP addresses, and those for which there is a better rule of ours.
_DETECTORS: tuple[tuple[str, str, tuple[str, ...], int], ...] = (
    ("aws", "AWSKeyDetector", ("a3t", "abia", "acca", "akia", "asia", "aws"), 1),
    ("azure_storage_key", "AzureStorageKeyDetector", ("accountkey=",), 0),
    ("cloudant", "CloudantDetector", ("cloudant",), 1),
    ("discord", "DiscordBotTokenDetector", (".",), 0),
    ("gitlab_token", "GitLabTokenDetector", ("gl", "gr1348941"), 0),
    ("ibm_cos_hmac", "IbmCosHmacDetector", ("secret",), 1),
    ("mailchimp", "MailchimpDetector", ("-us",), 0),
    ("pypi_token", "PypiTokenDetector", ("pypi-",), 0),
    ("sendgrid", "SendGridDetector", ("sg.",), 0),
    ("softlayer", "SoftlayerDetector", ("softlayer",), 1),
    ("square_oauth", "SquareOAuthDetector", ("sq0csp-",), 0),
    ("stripe", "StripeDetector", ("k_live_",), 0),
    ("twilio", "TwilioKeyDetector", ("ac", "sk"), 0),
)

_VALUE = r"[^\s\"'`,;&<>{}()\[\]\\]"
_TOKENS = ("access", "auth", "bearer", "refresh", "session", "api", "bot", "secret")
_ASSIGN = r"\\?[\"']?\s{0,3}(?:=>|:=|[:=])\s{0,3}\\?[\"']?"

# The beginning of a word; in a JSON text that may be right after an escaped line end.
_START = r"(?:(?<![\w-])|(?<=\\[nrt]))"

_OURS = (
    Rule(
        "private key",
        re.compile(
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:(?!-----)[\s\S]){0,300}?"
            r"[A-Za-z0-9+/=]{32,}(?:(?:\s|\\[nr])+[A-Za-z0-9+/=]+)*"
            r"(?:(?:\s|\\[nr])*-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)?"
        ),
        ("private key",),
    ),
    Rule(
        "JSON web token",
        re.compile(_START + r"eyJ[\w-]{8,}+\.eyJ[\w-]{8,}+\.[\w-]*"),
        ("eyj",),
        token=True,
    ),
    Rule(
        "GitHub token",
        re.compile(r"gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_\w{22,255}"),
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        token=True,
    ),
    Rule(
        "model API key",
        re.compile(_START + r"sk-(?:ant-[\w-]{20,}|[\w-]*?[A-Za-z0-9]{20,}[\w-]*)"),
        ("sk-",),
        accept=looks_random,
        token=True,
    ),
    Rule(
        "Slack token",
        re.compile(
            r"xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{10,}"
            r"|https://hooks\.slack\.com/(?:services|workflows)/[\w/]{20,}"
        ),
        ("xox", "xapp-", "hooks.slack.com"),
    ),
    Rule(
        "Google key",
        re.compile(r"AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{28}"),
        ("aiza", "ya29.", "gocspx-"),
        token=True,
    ),
    Rule(
        "service token",
        re.compile(
            _START + r"(?:hf_[A-Za-z0-9]{30,}|gsk_[A-Za-z0-9]{40,}|npm_[A-Za-z0-9]{36}"
            r"|lsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}|tvly-[\w-]{20,}|xai-[A-Za-z0-9]{40,}"
            r"|pplx-[A-Za-z0-9]{40,}|r8_[A-Za-z0-9]{30,}|dapi[a-f0-9]{32}|dckr_pat_[\w-]{20,}"
            r"|tml-[A-Za-z0-9]{20,}|[rs]k_test_[A-Za-z0-9]{24,}|AKC[A-Za-z0-9]{20,})"
        ),
        (
            *("hf_", "gsk_", "npm_", "lsv2_", "tvly-", "xai-", "pplx-", "r8_", "dapi"),
            *("dckr_pat_", "tml-", "k_test_", "akc"),
        ),
        token=True,
    ),
    Rule(
        "password in a URL",
        re.compile(r"://[^\s/?#@:\"'<>]{0,100}:([^\s/?#@\"'<>]+)@"),
        ("://",),
        group=1,
        accept=_not_a_sample,
    ),
    Rule("npm token", re.compile(r":_authToken=\s{0,3}([\w-]{20,})"), ("_authtoken=",), group=1),
    # The number before the colon is the bot's name.
    Rule(
        "Telegram bot token",
        re.compile(r":(?<=\d{8}:)[\w-]{35}(?![\w-])"),
        (":",),
        token=True,
    ),
    *(
        Rule(
            "authorization",
            re.compile(scheme + r"\s{1,3}([\w.~+/=-]{16,})"),
            (scheme,),
            group=1,
            accept=looks_random,
            folded=True,
        )
        for scheme in ("bearer", "basic")
    ),
    *(
        Rule(
            "keyword",
            re.compile(rf"{pattern}{_ASSIGN}({_VALUE}{{8,}}+)(?![(\[])"),
            (word,),
            group=1,
            accept=looks_random,
            folded=True,
        )
        for word, pattern in (
            ("key", _ending("key", "api", "private", "access", "secret")),
            ("secret", "secret"),
            ("token", _ending("token", *_TOKENS)),
        )
    ),
    *(
        Rule(
            "keyword",
            re.compile(rf"{word}{_ASSIGN}({_VALUE}{{6,}}+)(?![(\[])"),
            (word,),
            group=1,
            accept=_looks_chosen,
            folded=True,
        )
        for word in ("password", "passwd", "passphrase")
    ),
    Rule(
        "keyword",
        re.compile(
            r"\b[A-Z][A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|PASS|CREDENTIALS)=[\"']?"
            rf"({_VALUE}{{8,}}+)(?![(\[])"
        ),
        ("key=", "token=", "secret=", "password=", "pass=", "credentials="),
        group=1,
        accept=looks_random,
    ),
)


@cache
def rules() -> tuple[Rule, ...]:
    """All rules, in the order in which they name what they find. Built at the first use."""
    return (*_OURS, *(rule for entry in _DETECTORS for rule in _from_library(*entry)))


def _from_library(module: str, name: str, words: tuple[str, ...], group: int) -> list[Rule]:
    detector = getattr(import_module(f"detect_secrets.plugins.{module}"), name)
    return [
        # Where a group is the secret, the pattern also covers what is around it, with blanks.
        Rule(
            detector.secret_type,
            pattern,
            words,
            group=min(group, pattern.groups),
            token=pattern.groups < group or group == 0,
        )
        for pattern in detector.denylist
    ]
