"""What nothing can be learned from is told apart from what only sounds like it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclaw_langgraph.evolving.rules import do_not_learn, transient
from metaclaw_langgraph.judging.feedback import NEXT_TURN
from metaclaw_langgraph.ledger.values import Failure
from metaclaw_langgraph.types import Verdict, VerdictSource
from tests.evolving.runs import call, failure, tool, trajectory

SOURCES: tuple[VerdictSource, ...] = ("human", "verifier", "judge")
PASSING: dict[str, tuple[str, ...]] = {
    "time-out": (
        "TimeoutError: ",
        "TimeoutError",
        "ReadTimeout: The read operation timed out",
        "APITimeoutError: Request timed out.",
        "TimeoutExpired: Command '['make']' timed out after 30 seconds",
        "httpx.ConnectTimeout: ",
        "DeadlineExceeded: 504 Deadline Exceeded",
        "RuntimeError: the tool failed: ReadTimeout: no answer",
        "HTTPStatusError: Server error '504 Gateway Timeout' for the request",
        "ToolException: request timeout, try later",
        "Exception: timeout after 20 s",
    ),
    "rate limit": (
        "RateLimitError: Error code: 429 - {'error': {'message': 'slow down'}}",
        "ResourceExhausted: 429 You exceeded your current quota",
        "HTTPStatusError: Client error '429 Too Many Requests' for url",
        "OverloadedError: Overloaded",
        "APIStatusError: {'type': 'error', 'error': {'type': 'overloaded_error'}}",
        "ThrottlingException: Rate exceeded",
        "ValueError: rate limit exceeded, retry in 20s",
        "RuntimeError: you are being rate limited",
        "ToolException: the server is currently overloaded",
    ),
    "credentials": (
        "AuthenticationError: Error code: 401 - Incorrect API key provided",
        "PermissionDeniedError: Error code: 403 - not allowed",
        "HTTPError: 401 Client Error: Unauthorized; 401 unauthorized for url",
        "HTTPError: HTTP Error 403: Forbidden",
        "ValidationException(credentials): NoCredentialsError: Unable to locate credentials",
        "OpenAIError: The api_key client option must be set",
        "ValueError: Did not find tavily_api_key, please add an environment variable",
        "ValueError: API key is not set",
        "RuntimeError: SEARCH_API_KEY is not set",
        "KeyError: 'OPENAI_API_KEY'",
        "DefaultCredentialsError: Your default credentials were not found.",
        "ToolException: missing credentials for the calendar",
    ),
    "missing program": (
        "ModuleNotFoundError: No module named 'pandas'",
        "ImportError: cannot import name 'x' from 'y'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/usr/bin/pdftotext'",
        "ToolException: bash: line 1: jq: command not found",
        "CalledProcessError: Command 'x' returned non-zero exit status 127.",
        "RuntimeError: Could not import tesseract. Please install it with `pip install tesseract`.",
        "OSError: 'git' is not recognized as an internal or external command",
    ),
    "network": (
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "APIConnectionError: Connection error.",
        "gaierror: [Errno -2] Name or service not known",
        "SSLError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
        "InternalServerError: Error code: 500",
        "HTTPStatusError: Server error '503 Service Unavailable' for url",
        "HTTPError: 502 Server Error: Bad Gateway",
        "ClientConnectorError: Cannot connect to host db:443",
        "RemoteProtocolError: Server disconnected without sending a response.",
        "OSError: [Errno 101] Network is unreachable",
        "OperationalError: could not connect to server: Connection refused",
        "RuntimeError: node failed (ConnectError(all attempts failed))",
    ),
    "resources": (
        "OSError: [Errno 28] No space left on device",
        "MemoryError: ",
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "OperationalError: database or disk is full",
        "OSError: [Errno 12] Cannot allocate memory",
        "OSError: [Errno 24] Too many open files: 'x'",
    ),
    "cancelled": ("CancelledError: ", "KeyboardInterrupt: "),
}

NEAR_MISSES = (
    "TypeError: search() got an unexpected keyword argument 'timeout'",
    "ValueError: timeout=30 is the wrong argument",
    "ValueError: read timeout=30 must be a string",
    "ValueError: the user was rate-limited by policy",
    "ValueError: unknown key 'total'",
    "KeyError: 'total'",
    "KeyError: 'key'",
    "ValueError: the api key column must hold text",
    "AssertionError: expected TimeoutError to be raised",
    "AssertionError: Error code: 429",
    "FileNotFoundError: [Errno 2] No such file or directory: 'report.csv'",
    "FileNotFoundError: [Errno 2] No such file or directory: 'out/report'",
    "ValueError: the query returned 500 rows, at most 100 are allowed",
    "ValueError: 403 is not a prime number",
    "HTTPStatusError: Client error '404 Not Found' for url",
    "HTTPStatusError: Client error '422 Unprocessable Entity' for url",
    "BadRequestError: Error code: 400 - context length exceeded",
    "GraphRecursionError: Recursion limit of 25 reached without hitting a stop condition",
    "GraphRecursionError: Recursion limit of 25 reached; the last tool said: connection refused",
    "ToolException: order 429 is already shipped",
    "ValidationError: 1 validation error for Search: timeout: Input should be a valid integer",
    "ValueError: the customer's connection flight leaves at 5:03",
    "ToolException: the memory of the conversation is empty",
    "ZeroDivisionError: division by zero",
    "PermissionError: [Errno 13] Permission denied: 'report.csv'",
    "ValueError: the network diagram has no edges",
    "",
    "wrong answer",
)


@pytest.mark.parametrize(("kind", "text"), [(k, t) for k, texts in PASSING.items() for t in texts])
def test_passing_trouble_is_recognised(kind: str, text: str) -> None:
    reason = transient(text)
    assert reason is not None
    assert reason.startswith(f"{kind}: ")


@pytest.mark.parametrize("text", NEAR_MISSES)
def test_what_only_sounds_like_it_is_learned_from(text: str) -> None:
    assert transient(text) is None
    assert do_not_learn(failure(trajectory(outcome="failed", error=text), "run", text)) is None


def test_the_reason_is_one_short_line() -> None:
    reason = transient("TimeoutError: first\nsecond" + "x" * 500)
    assert reason == "time-out: TimeoutError: first"
    assert len(transient("TimeoutError: " + "x" * 5000) or "") < 200


def test_what_a_person_says_is_always_learned_from() -> None:
    run = trajectory(outcome="failed", error="TimeoutError: ")
    assert do_not_learn(failure(run, "human", "Use the short query.")) is None
    for unspoken in SOURCES:
        assert do_not_learn(failure(run, unspoken, "  ")) == "time-out: TimeoutError:"
    for told in SOURCES[1:]:
        assert do_not_learn(failure(run, told, "Use the short query.")) is not None


def test_a_users_next_message_is_not_what_a_person_says_of_a_run() -> None:
    run = trajectory(outcome="failed", error="TimeoutError: ")
    turn = Verdict(-1.0, "human", "That did not work.", author=NEXT_TURN, origin=NEXT_TURN)
    assert do_not_learn(Failure(run, turn)) == "time-out: TimeoutError:"


def test_a_verifiers_words_do_not_make_a_lesson_of_an_outage() -> None:
    reason = "The answer must hold a price."
    timed_out = "TimeoutError: the price service timed out"
    lost = trajectory(tools=[tool(1), tool(2, timed_out)], calls=[call(0), call(3)])
    assert do_not_learn(failure(lost, "verifier", reason)) == f"time-out: {timed_out}"
    recovered = trajectory(tools=[tool(1, timed_out), tool(2)], calls=[call(0), call(3)])
    assert do_not_learn(failure(recovered, "verifier", reason)) is None
    mistaken = trajectory(tools=[tool(1, "KeyError: 'price'")])
    assert do_not_learn(failure(mistaken, "verifier", reason)) is None
    assert do_not_learn(failure(trajectory(outcome="cancelled"), "verifier", reason)) == "cancelled"


@pytest.mark.parametrize(
    "reason",
    [
        "TimeoutError: the price service timed out",
        "TimeoutError",
        "httpx.ConnectTimeout: ",
        "check failed: TimeoutError: the price service timed out",
        "the price check crashed with ConnectionError: refused",
        "Error: connection refused",
        "Request timed out.",
        "429 Too Many Requests",
    ],
)
def test_a_verifier_that_ran_into_an_outage_teaches_nothing(reason: str) -> None:
    assert do_not_learn(failure(trajectory(), "verifier", reason)) is not None


@pytest.mark.parametrize(
    "reason",
    [
        "The answer must say that the request timed out.",
        "When the connection was refused, the agent should have said so.",
        "expected TimeoutError, got ValueError",
        "AssertionError: expected TimeoutError to be raised",
        "Error: the answer should name the bad gateway.",
        "the answer claims that no route to host exists",
        "missing price",
        "The customer was told that the service is unavailable, although it answered; look twice.",
    ],
)
def test_a_verifiers_advice_may_speak_of_outages(reason: str) -> None:
    assert do_not_learn(failure(trajectory(), "verifier", reason)) is None


def test_an_error_that_the_agent_recovered_from_is_no_reason() -> None:
    refused = "ConnectionError: refused"
    recovered = trajectory(tools=[tool(1, refused), tool(2)])
    elsewhere = trajectory(tools=[tool(1, refused), tool(2, name="other")])
    assert do_not_learn(failure(recovered)) is None
    assert do_not_learn(failure(elsewhere)) is None
    model = trajectory(calls=[call(1, "RateLimitError: slow"), call(2)])
    assert do_not_learn(failure(model)) is None


def test_an_error_that_it_did_not_recover_from_is_one() -> None:
    refused = "ConnectionError: refused"
    answered = trajectory(tools=[tool(1), tool(2, refused)], calls=[call(0), call(3)])
    beside = trajectory(tools=[tool(1, refused), tool(1, name="other")])
    again = trajectory(tools=[tool(1, refused), tool(2, refused)])
    for run in (answered, beside, again):
        assert do_not_learn(failure(run)) == f"network: {refused}"
    model = trajectory(calls=[call(1), call(2, "RateLimitError: slow")])
    assert do_not_learn(failure(model)) == "rate limit: RateLimitError: slow"


def test_a_run_that_raised_is_looked_at_by_what_ended_it() -> None:
    early = trajectory(
        outcome="failed",
        error="ValueError: no such order",
        tools=[tool(1, "ConnectionError: refused")],
        calls=[call(2)],
    )
    assert do_not_learn(failure(early, "run", "ValueError: no such order")) is None
    wrapped = trajectory(
        outcome="failed",
        error="RuntimeError: the search node failed",
        calls=[call(1)],
        tools=[tool(2, "ConnectionError: refused")],
    )
    assert do_not_learn(failure(wrapped, "run")) == "network: ConnectionError: refused"


def test_a_recursion_limit_is_learned_from_whatever_its_tools_said() -> None:
    error = "GraphRecursionError: Recursion limit of 25 reached"
    run = trajectory(outcome="failed", error=error, tools=[tool(1, "ConnectionError: refused")])
    assert do_not_learn(failure(run, "run", error)) is None


def test_a_cancelled_run_teaches_nothing() -> None:
    assert do_not_learn(failure(trajectory(outcome="cancelled"), "run")) == "cancelled"


@pytest.mark.parametrize(
    "output",
    [
        "Error: ConnectionError: refused",
        "ConnectionError: refused",
        "error: connection refused",
        {"type": "tool", "data": {"content": "connection refused", "status": "error"}},
        {"type": "tool", "data": {"content": "Error: connection refused", "status": "success"}},
    ],
)
def test_an_error_that_a_tool_returned_counts_as_one(output: object) -> None:
    run = trajectory(tools=[tool(1, output=output)])  # type: ignore[arg-type]
    assert (do_not_learn(failure(run)) or "").startswith("network: ")


@pytest.mark.parametrize(
    "output",
    [
        "The article says that the connection refused to close.",
        {"type": "tool", "data": {"content": "connection refused", "status": "success"}},
        {"rows": 3},
        None,
    ],
)
def test_what_a_tool_returned_as_its_answer_is_no_error(output: object) -> None:
    run = trajectory(tools=[tool(1, output=output)])  # type: ignore[arg-type]
    assert do_not_learn(failure(run)) is None


@given(st.text(max_size=300), st.sampled_from(["", "ValueError: ", "Error: "]))
def test_any_text_gives_an_answer(text: str, before: str) -> None:
    reason = transient(before + text)
    assert reason is None or ("\n" not in reason and len(reason) < 200)
