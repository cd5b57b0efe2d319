"""Failures that nothing can be learned from.

A skill that was written because a server was down teaches the agent to give up: "the search does
not work". So failures whose cause lies outside the agent (time-outs, credentials, programs that are
not there, quotas, the network, a full disk, a cancelled run) are recognised here and consumed
without a skill. Errors that are not recognised are learned from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from metaclaw_langgraph.evolving.grounding_trust import is_trusted
from metaclaw_langgraph.ledger.values import Failure
from metaclaw_langgraph.types import Json, ModelCall, ToolCall, Trajectory, Verdict

__all__ = ["do_not_learn", "transient"]

_LONGEST = 160


def do_not_learn(failure: Failure) -> str | None:
    """Why nothing can be learned from this failure; None when something can.

    What a person says is always learned from. A verifier is a program: it may pass on what an
    outage did to the run, or what it ran into itself. A run that raised is looked at by the error
    that ended it; one that somebody did not like, by the errors that it did not recover from.
    """
    verdict, run = failure.verdict, failure.trajectory
    if verdict.source == "human" and is_trusted(verdict) and verdict.reason.strip():
        return None
    if run.outcome == "cancelled":
        return "cancelled"
    found = (transient(text) for text in (*_reported(verdict), *_failing_errors(run)))
    return next((reason for reason in found if reason is not None), None)


def transient(text: str) -> str | None:
    """What kind of passing trouble an error text (`TypeName: message`) tells of, or None."""
    text = text[:4000]
    name, message = _split(text)
    kind = _kind_of_type(name, message) or _embedded_kind(message)
    if kind is None and name not in _MISTAKES:
        kind = _kind_of_status(message) or _kind_of_message(message)
    return f"{kind}: {_first_line(text)}" if kind else None


def _reported(verdict: Verdict) -> Iterator[str]:
    """The reason of a verifier that is nothing but an error; advice may speak of any."""
    if verdict.source == "verifier":
        reason = _ERROR_LABEL.sub("", verdict.reason, count=1)
        bare = len(reason.split()) <= _BARE_WORDS and not _ADVICE.search(reason)
        if bare or _TYPED.match(reason) or _kind_of_type(*_split(reason)):
            yield reason


def _failing_errors(run: Trajectory) -> Iterator[str]:
    """The errors that made the run fail, the run's own first."""
    if run.error and _split(run.error)[0] == "GraphRecursionError":
        return
    if run.error:
        yield run.error
    both: list[ModelCall | ToolCall] = [*run.calls, *run.tools]
    steps = sorted(both, key=lambda step: step.ended_at)
    if run.outcome == "failed":
        # The step that raised is the last one; what it raised may have been wrapped on its way up.
        steps = steps[-1:]
    for step in steps:
        error = _error_of(step)
        if error and not _recovered(step, run):
            yield error


def _recovered(step: ModelCall | ToolCall, run: Trajectory) -> bool:
    """Whether the same thing, or another tool, worked afterwards."""
    later = run.tools if isinstance(step, ToolCall) else run.calls
    return any(one.started_at >= step.ended_at and not _error_of(one) for one in later)


def _error_of(step: ModelCall | ToolCall) -> str | None:
    if step.error or isinstance(step, ModelCall):
        return step.error
    return _reported_error(step.output)


def _reported_error(output: Json) -> str | None:
    """An error that a tool returned instead of raising it."""
    if isinstance(output, Mapping):
        data = output.get("data")
        fields = data if isinstance(data, Mapping) else output
        content = fields.get("content")
        if isinstance(content, str) and fields.get("status") == "error":
            return _ERROR_WORD.sub("", content, count=1)
        return _reported_error(content) if isinstance(content, str) else None
    if isinstance(output, str) and _ERROR_WORD.match(output):
        return _ERROR_WORD.sub("", output, count=1)
    return output if isinstance(output, str) and _TYPED.match(output) else None


_ERROR_WORD = re.compile(r"\s*(?:tool )?error[:!]\s*", re.IGNORECASE)
_ERROR_LABEL = re.compile(
    r"\s*(?:(?:[\w-]{1,30} ){0,4}(?:failed|raised|crashed)(?:: | with )|(?:\w{1,30} )?error: )\s*",
    re.IGNORECASE,
)
_BARE_WORDS = 12
_ADVICE = re.compile(
    r"\b(?:must|should|expected|answers?|answered|says?|said|mention\w{0,3}|use|when|if|after|retry"
    r"|instead|missing|wrong|not|never|always|claims?|customers?|users?)\b",
    re.IGNORECASE,
)
_TYPED = re.compile(r"\s*[A-Za-z_.]{0,80}(?:Error|Exception|Timeout)\b[:(]")
_NAME = re.compile(r"\s*((?:[A-Za-z_]\w{0,80}\.){0,8}([A-Za-z_]\w{0,80}))(?:\Z|:(?:\s|\Z)|\()")


def _split(text: str) -> tuple[str, str]:
    """The type's name without its module, and the message."""
    match = _NAME.match(text)
    return (match[2], text[match.end() :]) if match else ("", text)


# What the caller got wrong: only the type says so, the message may mention anything.
_MISTAKE_NAMES = """\
    TypeError AttributeError NameError SyntaxError IndexError AssertionError ZeroDivisionError
    KeyError UnicodeDecodeError ValidationError OutputParserException JSONDecodeError
    NotImplementedError RecursionError GraphRecursionError InvalidUpdateError"""
_MISTAKES = frozenset(_MISTAKE_NAMES.split())

_TYPES = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("cancelled", r"CancelledError|Cancelled|KeyboardInterrupt"),
        ("time-out", r"\w{0,40}Time(?:d)?[oO]ut\w{0,40}|DeadlineExceeded\w{0,20}"),
        (
            "rate limit",
            r"\w{0,40}RateLimit\w{0,40}|TooManyRequests\w{0,20}|ResourceExhausted|Quota\w{0,40}"
            r"|Throttl\w{0,40}|\w{0,20}OverloadedError",
        ),
        (
            "credentials",
            r"Authentication\w{0,20}|Unauthori[sz]ed\w{0,20}|Forbidden\w{0,20}|Unauthenticated"
            r"|PermissionDenied\w{0,20}|\w{0,40}Credentials?(?:NotFound|Retrieval)?Error"
            r"|InvalidApiKey\w{0,20}|ExpiredToken\w{0,20}",
        ),
        ("missing program", r"ModuleNotFoundError|ImportError|MissingExtraError"),
        (
            "network",
            r"\w{0,40}Connection\w{0,20}Error|ConnectError|ClientConnector\w{0,20}|ReadError"
            r"|WriteError|\w{0,20}ProtocolError|gaierror|herror|SSL\w{0,40}|MaxRetryError"
            r"|BrokenPipeError|ServerDisconnectedError|IncompleteRead|InternalServerError"
            r"|ServiceUnavailable\w{0,20}|BadGateway\w{0,20}|NameResolutionError",
        ),
        ("resources", r"MemoryError|\w{0,20}OutOfMemory\w{0,20}"),
    )
)


def _kind_of_type(name: str, message: str) -> str | None:
    if name == "FileNotFoundError":
        return "missing program" if _PROGRAM.search(message) else None
    if name == "KeyError":
        return "credentials" if _SECRET_VARIABLE.search(message) else None
    return next((kind for kind, pattern in _TYPES if pattern.fullmatch(name)), None)


# A name without a folder and an ending (a document would have one), or one in a folder of programs.
_PROGRAM = re.compile(
    r"No such file or directory: '(?:/[^']{0,200}/s?bin/[^'/]{1,80}|[^'/.]{1,80})'"
)
_SECRET_VARIABLE = re.compile(r"\A'[A-Z0-9_]{0,60}(?:KEY|TOKEN|SECRET|PASSWORD)'\Z")
_TYPE_IN_TEXT = re.compile(r"\b([A-Z]\w{2,80}(?:Error|Exception|Timeout|Exhausted))(?=[:(])")


def _embedded_kind(message: str) -> str | None:
    """The kind of an error that another one wraps: `RuntimeError: failed: ReadTimeout: …`."""
    for match in _TYPE_IN_TEXT.finditer(message):
        kind = _kind_of_type(match[1], message[match.end() :].lstrip(":( "))
        if kind is not None:
            return kind
    return None


_STATUS = re.compile(
    r"\b(?:error code|status[ _]?code|http(?:/\d(?:\.\d)?)?(?: error| status)?"
    r"|(?:client|server) error|response code)\W{0,4}([45]\d\d)\b"
    r"|\b([45]\d\d) (?:unauthorized|forbidden|proxy auth|request time|too many|internal server"
    r"|bad gateway|service (?:temporarily )?unavailable|gateway time|overloaded)",
    re.IGNORECASE,
)
_BY_STATUS = {
    **dict.fromkeys(("401", "403", "407"), "credentials"),
    **dict.fromkeys(("408", "504", "524"), "time-out"),
    **dict.fromkeys(("429", "529"), "rate limit"),
}


def _kind_of_status(message: str) -> str | None:
    for match in _STATUS.finditer(message):
        code = match[1] or match[2]
        kind = _BY_STATUS.get(code, "network" if code.startswith("5") else None)
        if kind is not None:
            return kind
    return None


_MESSAGES = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (
            "rate limit",
            r"\brate[ _-]?limit(?:s|ed)? (?:was |is |has been )?(?:exceeded|reached|hit|error)"
            r"|\b(?:are|been|being) rate[ -]limited|\btoo many requests\b|\binsufficient_quota\b"
            r"|\bquota (?:was |is |has been )?(?:exceeded|exhausted|reached)"
            r"|\bexceeded your (?:current )?quota|\boverloaded_error\b"
            r"|\b(?:model|server|engine|service|api) is (?:currently )?overloaded",
        ),
        (
            "time-out",
            r"\btimed[ -]out\b|\bdeadline (?:was )?exceeded"
            r"|\b(?:read|request|connection|connect|gateway|operation|tool|response) time-?out\b"
            r"(?! ?=)|\btime-?out (?:after|expired|exceeded|was reached|while|waiting)\b",
        ),
        (
            "credentials",
            r"\b(?:no|missing|invalid|incorrect|wrong|expired|bad|revoked) (?:\w{1,20} ){0,2}"
            r"(?:api[ _-]?key|(?:access |auth )?token|credentials?)\b(?! \w{0,20}column)"
            r"|\bapi[ _-]?key\b.{0,60}\b(?:not (?:set|found|provided|valid)|missing|must be set"
            r"|is (?:required|invalid)|expired)"
            r"|\bdid not find \w{0,40}_(?:api_)?(?:key|token)\b"
            r"|\b[A-Z0-9_]{0,40}_(?:API_KEY|TOKEN|SECRET)\b.{0,60}\b(?:not set|missing|required)"
            r"|\bunable to locate credentials\b|\bnot logged in\b|\bauthentication failed\b",
        ),
        (
            "missing program",
            r"\bcommand not found\b|\bno module named\b|\bexit (?:code|status) 127\b"
            r"|\bnot recognized as an internal or external command\b"
            r"|\bexecutable (?:\S{1,60} )?(?:was )?not found\b"
            r"|\b(?:please|you can|to) install\b.{0,60}\b(?:pip|apt|brew|conda|npm)\b"
            r"|\b(?:pip|apt|apt-get|brew|conda|npm) install\b",
        ),
        (
            "network",
            r"\bconnection (?:was |has been )?(?:refused|reset|aborted|closed|lost|error)\b"
            r"|\bfailed to (?:establish a new connection|resolve)\b|\bdns\b.{0,30}\bfail"
            r"|\bname or service not known\b|\btemporary failure in name resolution\b"
            r"|\bgetaddrinfo failed\b|\bnodename nor servname\b|\bno route to host\b"
            r"|\bnetwork is (?:unreachable|down)\b|\bcertificate[ _]verify[ _]failed\b"
            r"|\b(?:ssl|tls)\b.{0,40}\b(?:handshake|eof|wrong version)\b|\bbroken pipe\b"
            r"|\bserver disconnected\b|\bremote end closed connection\b"
            r"|\bservice (?:is )?(?:temporarily )?unavailable\b|\bbad gateway\b",
        ),
        (
            "resources",
            r"\bno space left on device\b|\bdisk quota exceeded\b|\bdatabase or disk is full\b"
            r"|\bout of memory\b|\bcannot allocate memory\b|\btoo many open files\b",
        ),
    )
)


def _kind_of_message(message: str) -> str | None:
    return next((kind for kind, pattern in _MESSAGES if pattern.search(message)), None)


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
