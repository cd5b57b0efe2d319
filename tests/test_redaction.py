"""Secrets are found wherever they are; everything else stays as it was."""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import textwrap
import time
import uuid
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.types import Json


@dataclass(frozen=True)
class Settings:
    env: bool = True
    patterns: tuple[str, ...] = ()


def mixed(length: int, alphabet: str = "aB3xY9kQ2mZ7") -> str:
    """Something like a random token. Put together here, so that no file holds one."""
    return (alphabet * (length // len(alphabet) + 1))[:length]


HEX = "0a1b2c3d4e5f"
LOWER = "a1b2c3d4e5"
BODY = "\n".join(mixed(64) for _ in range(4))
JWT = ".".join(["eyJ" + mixed(30), "eyJ" + mixed(40), mixed(43)])

# The part that must vanish, and how it stands in a text.
SECRETS: dict[str, tuple[str, str]] = {
    "github": ("ghp_" + mixed(36), "token {}"),
    "github fine-grained": ("github_pat_" + mixed(82), "export T={}"),
    "gitlab": ("glpat-" + mixed(20), "use {} now"),
    "openai": ("sk-" + mixed(20) + "T3BlbkFJ" + mixed(20), "key: {}."),
    "openai project": ("sk-proj-" + mixed(60), "{}"),
    "anthropic": ("sk-ant-api03-" + mixed(90), "({})"),
    "after an escaped line end": ("sk-" + mixed(48), r'{{"text": "hello\n{}\n"}}'),
    "aws id": ("AKIA" + mixed(16, "ABC123XYZ"), "id={}"),
    "aws secret": (mixed(40), "aws_secret_access_key = '{}'"),
    "google": ("AIza" + mixed(35), "?key={}&x=1"),
    "slack": ("xoxb-" + "1234567890-" * 2 + LOWER, "{}"),
    "slack hook": ("hooks.slack.com/services/T" + mixed(9) + "/B" + mixed(9), "https://{}/abc"),
    "stripe": ("sk_live_" + mixed(24), "{}"),
    "hugging face": ("hf_" + mixed(34), "HF {}"),
    "langsmith": ("lsv2_pt_" + mixed(32, HEX) + "_" + mixed(10, HEX), "{}"),
    "npm": ("npm_" + mixed(36), "//registry/:_authToken={}"),
    "pypi": ("pypi-AgEIcHlwaS5vcmc" + mixed(80), "{}"),
    "sendgrid": ("SG." + mixed(22) + "." + mixed(43), "{}"),
    "telegram": (mixed(35), "bot12345678:{}"),
    "twilio": ("SK" + mixed(32, HEX), "{}"),
    "jwt": (JWT, "cookie={}; path=/"),
    "bearer": (mixed(40), "Authorization: Bearer {}"),
    "url": ("hunter2!", "postgresql://me:{}@db:5432/x"),
    "url without a user": ("hunter2!", "redis://:{}@cache"),
    "private key": (
        f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----",
        "my key\n{}\nis here",
    ),
    "private key cut off": (f"-----BEGIN PRIVATE KEY-----\n{BODY}", "{}"),
    "private key in json": (BODY.replace("\n", r"\n"), r'"-----BEGIN PRIVATE KEY-----\n{}\n"'),
    "dotenv": (mixed(24), "OPENWEATHER_KEY={}"),
    "yaml": (mixed(20), "api_key: {}"),
    "python": (mixed(20), 'client = Client(api_key="{}")'),
    "json text": (mixed(20), r"{{\"client_secret\": \"{}\"}}"),
    "password": ("hunter22", 'login(password="{}")'),
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_replaced(name: str) -> None:
    secret, place = SECRETS[name]
    text = place.format(secret)
    found = Redactor(Settings(env=False)).text(text)
    assert secret not in found
    assert "[redacted:" in found
    # Nothing of it is left, not even its end.
    assert not any(secret[at : at + 12] in found for at in range(max(1, len(secret) - 12)))


@pytest.mark.parametrize("name", SECRETS)
def test_what_is_around_a_secret_stays(name: str) -> None:
    secret, place = SECRETS[name]
    redactor = Redactor(Settings(env=False))
    once = redactor.text(f"before it\n{place.format(secret)}\nafter it")
    assert once.startswith("before it\n")
    assert once.endswith("\nafter it") or name == "private key cut off"
    assert redactor.text(once) == once


@given(
    before=st.text(max_size=40),
    after=st.text(max_size=40),
    secret=st.sampled_from([JWT, "ghp_" + mixed(36), "xoxb-" + "1234567890-" * 2 + LOWER]),
)
def test_a_secret_is_found_in_any_text(before: str, after: str, secret: str) -> None:
    text = Redactor(Settings(env=False)).text(f"{before} {secret} {after}")
    assert secret not in text


PLAIN = {
    "prose": "The password must be changed. Your API key: ask the admin. A token is a word. " * 3,
    "code": inspect.getsource(json.decoder) + inspect.getsource(textwrap) + inspect.getsource(uuid),
    "assignments": "token = tokenizer.encode1(text)\npassword = get_password1(user)\n"
    "api_key=os.environ['KEY_1']\nsecret = settings.secret_v2\napi_key = api_key_v2\n"
    "api_key: ${OPENAI_API_KEY}\npassword: <your-password-1>\npassword: {{ password1 }}\n"
    "key = sorted(items1)\nmax_tokens=1024\nnext_token: page_2",
    "ids": f"{uuid.UUID(int=7**40)} {hashlib.sha256(b'x').hexdigest()} "
    f"{hashlib.md5(b'x').hexdigest()} {hashlib.sha1(b'x').hexdigest()}",
    "image": "data:image/png;base64,"
    + base64.b64encode(hashlib.shake_256(b"x").digest(60_000)).decode(),
    "dates": "2026-03-01T12:00:00.000001+00:00 12:30:59 1.2.3-rc1 20260301T120000Z",
    "links": "https://example.com/a/b?x=1&y=2#top http://user@host/ see https://docs.python.org:443/3",
    "sample links": "postgresql://user:password@localhost/db amqp://<user>:<password>@host",
    "task words": "task-based-evaluation-of-models-2026 disk-usage sk-learn risk-averse-agents-v2",
    "models": "claude-3-5-sonnet-20241022 gpt-4o-2024-08-06 Qwen2.5-0.5B-Instruct",
    "pem in prose": "A file begins with -----BEGIN PRIVATE KEY----- and is kept by its owner.",
    "unicode": "\u0130stanbul \U0001f600 na\u00efve \ud800 \x00",
}


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_no_secret_stays(name: str) -> None:
    redactor = Redactor(Settings(env=False))
    assert redactor.find(PLAIN[name]) == []
    assert redactor.text(PLAIN[name]) is PLAIN[name]


@given(st.lists(st.from_regex(r"[A-Za-z]{1,12}[.,;:!?]?|\d{1,6}", fullmatch=True), max_size=60))
def test_words_and_numbers_stay(words: list[str]) -> None:
    text = " ".join(words)
    assert Redactor(Settings(env=False)).text(text) == text


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=20,
)


@given(values)
def test_json_without_secrets_stays(value: Json) -> None:
    assert Redactor(Settings(env=False)).json(value) == value


def test_json_keeps_its_shape() -> None:
    secret = "ghp_" + mixed(36)
    value = {"a": [1, None, True, 2.5, {"b": f"x {secret}"}], secret: "under", "t": ("u", "v")}
    assert Redactor(Settings(env=False)).json(value) == {
        "a": [1, None, True, 2.5, {"b": "x [redacted:GitHub token]"}],
        "[redacted:GitHub token]": "under",
        "t": ["u", "v"],
    }


def test_keys_that_become_equal_do_not_lose_values() -> None:
    value: Json = {"ghp_" + mixed(36): 1, "ghp_" + mixed(37): 2}
    found = Redactor(Settings(env=False)).json(value)
    assert isinstance(found, dict)
    assert sorted(found.values()) == [1, 2]


def test_a_value_is_a_secret_by_its_key() -> None:
    value = {
        "password": "correct horse",
        "db_password": "correcthorse",
        "X-Api-Key": mixed(16),
        "client_secret": mixed(16),
        "secret": "santa",
        "token": "tokenizer2",
        "api_key": None,
        "old_password": "<password>",
        "new_password": "{password}",
        "properties": {"password": {"type": "string"}},
        "required": ["password", "api_key"],
    }
    assert Redactor(Settings(env=False)).json(value) == {
        **value,
        "password": "[redacted:keyword]",
        "db_password": "[redacted:keyword]",
        "X-Api-Key": "[redacted:keyword]",
        "client_secret": "[redacted:keyword]",
    }


def test_what_json_cannot_hold_is_read_too() -> None:
    secret = "ghp_" + mixed(36)

    class Odd:
        def __str__(self) -> str:
            return f"odd {secret}"

    value: list[object] = [Odd(), {1: b"x"}, frozenset(["y"])]
    found = Redactor(Settings(env=False)).json(value)  # type: ignore[arg-type]
    assert found == ["odd [redacted:GitHub token]", {"1": "b'x'"}, ["y"]]


def test_the_environment_is_read_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    redactor = Redactor(Settings())
    quiet = Redactor(Settings(env=False))
    for name in ("MY_KEY", "MY_TOKEN", "MY_SECRET", "MY_PASSWORD", "MY_CREDENTIALS", "my_pass"):
        value = f'value "of" {name}'
        text = f"it is {value}, and as JSON {json.dumps(value)}"
        assert redactor.text(text) == text
        monkeypatch.setenv(name, value)
        assert (
            redactor.text(text)
            == 'it is [redacted:environment], and as JSON "[redacted:environment]"'
        )
        assert quiet.text(text) == text
    monkeypatch.setenv("SHORT_KEY", "seven77")
    monkeypatch.setenv("MONKEY_NAME", "a long value")
    assert redactor.text("seven77 and a long value") == "seven77 and a long value"


def test_own_patterns_are_used() -> None:
    redactor = Redactor(Settings(patterns=(r"ACME-\d{4}", "x{3}")))
    assert redactor.text("ACME-1234, ACME-12") == "[redacted:pattern], ACME-12"
    assert redactor.text("xxx") == "[redacted:pattern]"


def test_find_says_line_and_kind() -> None:
    text = "one\ntwo ghp_" + mixed(36) + "\n\nAKIA" + mixed(16, "ABC123XYZ")
    assert Redactor(Settings(env=False)).find(text) == [(2, "GitHub token"), (4, "AWS Access Key")]


def test_secrets_that_overlap_are_one() -> None:
    redactor = Redactor(Settings(env=False, patterns=("left-mid", "mid-right")))
    assert redactor.text("a left-mid-right b") == "a [redacted:pattern] b"


HOSTILE = (
    *("a", "A", "1", "key=", "api_key=", "://", "://a:", "eyJ", "eyJaaaaaaaaa.", "sk-", "aws key "),
    *("-----BEGIN PRIVATE KEY-----", "bearer ", "password: ", "//a/:_authToken=npm_", "A_", "KEY"),
    *(
        "xoxb-",
        "SG.",
        "github_pat_",
        "cloudant key ",
        "https://a",
        "M",
        "\n",
        "\u0130",
        "password ",
    ),
)


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_text_makes_it_slow(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    redactor = Redactor(Settings(env=False))
    redactor.text("warm up")
    began = time.process_time()
    redactor.text(text)
    # Some 0.1 s; a pattern that backtracks without bounds takes minutes.
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("API_KEY_OPENAI", True),
        ("SECRET_KEY_BASE", True),
        ("GITHUB_PAT", True),
        ("MYSQL_PWD", True),
        ("APIKEY", True),
        ("PWD", False),
        ("OLDPWD", False),
        ("KEYBOARD_LAYOUT", False),
        ("PATH", False),
        ("TOKENIZERS_PARALLELISM", False),
    ],
)
def test_which_variables_hold_secrets(
    name: str, secret: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "marmalade-sunrise-7")
    assert (Redactor().text("it is marmalade-sunrise-7") != "it is marmalade-sunrise-7") is secret
