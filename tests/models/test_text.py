"""Text in and out: no character is broken, no stop word shows, whatever the tokens are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from metaclaw_langgraph.errors import ConfigError
from metaclaw_langgraph.models.text import TextStream, template_messages


def byte_tokenizer() -> Tokenizer:
    """One token for each byte, and a few of several: every text can be cut anywhere."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {char: number for number, char in enumerate(alphabet)}
    for word in ("ab", "abc", "st", "op"):
        vocabulary[word] = len(vocabulary)
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


TOKENIZER = byte_tokenizer()
IDS = st.lists(st.integers(0, TOKENIZER.get_vocab_size() - 1), max_size=30)
WORDS = st.lists(st.text("abcst é", min_size=1, max_size=4), max_size=3)


def pieces(ids: list[int], stop: list[str]) -> tuple[list[str], TextStream]:
    stream = TextStream(TOKENIZER, stop)
    return [*(stream.push(token) for token in ids), stream.finish()], stream


@given(ids=IDS)
def test_the_pieces_add_up_to_the_text(ids: list[int]) -> None:
    assert "".join(pieces(ids, [])[0]) == TOKENIZER.decode(ids)


@given(text=st.text())
def test_characters_are_given_out_whole(text: str) -> None:
    found, _ = pieces(TOKENIZER.encode(text).ids, [])
    assert "".join(found) == text
    assert text.count("\ufffd") == "".join(found).count("\ufffd")


@given(ids=st.lists(st.sampled_from(TOKENIZER.encode("abcst é").ids), max_size=30), stop=WORDS)
def test_the_text_ends_before_a_stop_word(ids: list[int], stop: list[str]) -> None:
    whole = TOKENIZER.decode(ids)
    found, stream = pieces(ids, stop)
    text = "".join(found)
    assert stream.stopped == any(word in whole for word in stop)
    assert whole.startswith(text)
    assert not any(word in text for word in stop)
    if stream.stopped:
        assert any(whole.startswith(word, len(text)) for word in stop)
    else:
        assert text == whole


def test_what_cannot_be_a_stop_word_any_more_is_given_out_at_once() -> None:
    stream = TextStream(TOKENIZER, ["stop"])
    given_out = [stream.push(token) for token in TOKENIZER.encode("a st b").ids]
    assert given_out == ["a", " ", "", "", "st ", "b"]


def test_messages_become_roles_and_texts() -> None:
    blocks = ["one ", {"type": "text", "text": "two"}]
    messages = [
        SystemMessage("s"),
        HumanMessage(blocks),
        AIMessage("a"),
        ToolMessage("t", tool_call_id="1"),
        ChatMessage("c", role="critic"),
    ]
    assert [(m["role"], m["content"]) for m in template_messages(messages)] == [
        ("system", "s"),
        ("user", "one two"),
        ("assistant", "a"),
        ("tool", "t"),
        ("critic", "c"),
    ]


def test_what_the_model_cannot_read_is_refused() -> None:
    picture = HumanMessage([{"type": "image_url", "image_url": {"url": "data:,"}}])
    with pytest.raises(ConfigError, match=r"text only; remove the 'image_url' block"):
        template_messages([picture])
    with pytest.raises(ConfigError, match="RemoveMessage"):
        template_messages([RemoveMessage(id="1")])
