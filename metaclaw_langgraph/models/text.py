"""Text in and out of a local model: messages to the template's form, tokens back to text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from metaclaw_langgraph.errors import ConfigError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["TextStream", "template_messages", "without_markers"]

_ROLES: tuple[tuple[type[BaseMessage], str], ...] = (
    (SystemMessage, "system"),
    (HumanMessage, "user"),
    (AIMessage, "assistant"),
    (ToolMessage, "tool"),
)


def template_messages(messages: Sequence[BaseMessage]) -> list[dict[str, str]]:
    """The messages as a chat template takes them: role and text."""
    return [{"role": _role(message), "content": _content(message)} for message in messages]


def without_markers(text: str, markers: Sequence[str]) -> str:
    """Text in which the template's own markers are only text.

    Else a tool's result or a skill that holds `<|im_start|>` could begin a turn of its own.
    """
    for marker in markers:
        text = text.replace(marker, f"{marker[:1]}\u200b{marker[1:]}")
    return text


def _role(message: BaseMessage) -> str:
    if isinstance(message, ChatMessage):
        return message.role
    for kind, role in _ROLES:
        if isinstance(message, kind):
            return role
    raise ConfigError(
        f"a local model cannot read a {type(message).__name__}; "
        "use system, human, AI or tool messages"
    )


def _content(message: BaseMessage) -> str:
    if isinstance(message.content, str):
        return message.content
    return "".join(_block_texts(message.content))


def _block_texts(blocks: Sequence[str | dict[object, object]]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, str):
            yield block
        elif block.get("type") == "text":
            yield str(block.get("text", ""))
        else:
            raise ConfigError(
                f"a local model reads text only; remove the {block.get('type')!r} block "
                "from the message"
            )


class TextStream:
    """Turns tokens into text as they come.

    A character whose bytes are spread over several tokens is given out when it is whole, and
    text that may be the beginning of a stop word is held back until that is decided.
    """

    def __init__(self, tokenizer: Tokenizer, stop: Sequence[str]) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer = tokenizer
        self._decoder = DecodeStream(skip_special_tokens=True)
        self._stop = tuple(word for word in stop if word)
        self._ids: list[int] = []
        self._decoded = ""
        self._held = ""
        self.stopped = False
        """True once a stop word was seen; what follows it is dropped."""

    def push(self, token: int) -> str:
        """The text that this token completes; often one word, sometimes nothing yet."""
        self._ids.append(token)
        return self._give(self._decoder.step(self._tokenizer, token) or "")

    def finish(self) -> str:
        """What is left: text held back, and a replacement mark for an unfinished character."""
        if self.stopped:
            return ""
        whole: str = self._tokenizer.decode(self._ids, skip_special_tokens=True)
        rest = self._give(whole[len(self._decoded) :])
        return rest if self.stopped else rest + self._held

    def _give(self, piece: str) -> str:
        if self.stopped:
            return ""
        self._decoded += piece
        text = self._held + piece
        found = [at for word in self._stop if (at := text.find(word)) >= 0]
        if found:
            self.stopped = True
            return text[: min(found)]
        keep = self._undecided(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _undecided(self, text: str) -> int:
        """How many characters at the end may begin a stop word."""
        return max(
            (
                size
                for word in self._stop
                for size in range(1, min(len(word), len(text) + 1))
                if text.endswith(word[:size])
            ),
            default=0,
        )
