"""A second process for the tests: reads one command a line, answers one line of JSON.

It uses the home and the word embedder of the tests. `die` ends it as a power cut would.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from metaclaw_langgraph.config import RetrievalConfig
from metaclaw_langgraph.ledger import Ledger
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.skills.index import open_index
from metaclaw_langgraph.skills.library import SkillLibrary
from metaclaw_langgraph.skills.retrieval import SkillRetriever
from tests.skills.conftest import NAMESPACE, WordEmbedder, put, skill


class Worker:
    def __init__(self, home: Path, url: str | None) -> None:
        self.ledger = Ledger.open(f"sqlite:///{home / 'ledger.db'}")
        self.embedder = WordEmbedder()
        self.retriever = SkillRetriever(
            self.ledger,
            lambda: self.embedder,
            lambda model: open_index(self.ledger, model, NAMESPACE, home, url),
            RetrievalConfig(min_score=0.2, deadline=30, top_k=3),
            NAMESPACE,
        )

    def library(self) -> SkillLibrary:
        return SkillLibrary(
            self.ledger,
            lambda: self.embedder,
            NAMESPACE,
            redactor=Redactor(),
            index=self.retriever.index,
        )

    def retrieve(self, task: str) -> dict[str, object]:
        found = self.retriever.retrieve(task)
        index = self.retriever.index
        return {
            "generation": found.generation,
            "ids": [hit.id for hit in found.hits],
            "kind": index.kind if index else None,
        }

    def put(self, *names: str) -> int:
        return put(self.library(), *(skill(name) for name in names))

    def rollback(self, to: str) -> int:
        return self.library().rollback(int(to))

    def die_before_commit(self, *names: str) -> None:
        def die(*arguments: object, **named: object) -> int:
            os.kill(os.getpid(), signal.SIGKILL)
            return 0

        self.ledger.commit_generation = die  # type: ignore[method-assign]
        self.put(*names)

    def rows(self) -> list[str]:
        index = self.retriever.index
        assert index is not None
        assert index._store is not None
        return sorted(index._store.ids())

    def close(self) -> None:
        self.retriever.close()


def main() -> None:
    worker = Worker(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        print(json.dumps(getattr(worker, verb)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
