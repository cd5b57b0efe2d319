"""The skill library for the subcommands, with its index brought along where that can be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import typer

from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.errors import StoreError
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.skills import chroma
from metaclaw_langgraph.skills.embedding import Embedder, load_embedder
from metaclaw_langgraph.skills.index import SkillIndex, open_index
from metaclaw_langgraph.skills.library import SkillLibrary

__all__ = ["indexed_library", "library_of"]


def library_of(
    config: MetaClawConfig, ledger: Ledger, index: SkillIndex | None = None
) -> SkillLibrary:
    """The library of the configured namespace; the embedding model is loaded when needed."""

    def embedder() -> Embedder:
        return _embedder(config.retrieval.embedder)

    redactor = Redactor(config.redact)
    return SkillLibrary(ledger, embedder, config.namespace, redactor=redactor, index=index)


@contextmanager
def indexed_library(config: MetaClawConfig, ledger: Ledger) -> Iterator[SkillLibrary]:
    """A library that also brings the index along, if this process can hold it."""
    index = _index(config, ledger)
    try:
        yield library_of(config, ledger, index)
    finally:
        if index is not None:
            index.close()


def _index(config: MetaClawConfig, ledger: Ledger) -> SkillIndex | None:
    """The index, up to date; None when a running agent holds it (it follows the ledger itself)."""
    home, url = config.home, config.chroma_url
    try:
        held = None if url else chroma.open_folder(home)
        if held is None and not url:
            return None
        embedder = _embedder(config.retrieval.embedder)
        index = open_index(ledger, embedder, config.namespace, home, url)
        index.sync(ledger.generation(config.namespace))
    except StoreError as error:
        typer.echo(f"the index cannot be brought along: {error}", err=True)
        return None
    if held is not None:
        held.close()
    return index


@cache
def _embedder(spec: str) -> Embedder:
    return load_embedder(spec)
