"""What learning costs: from a verdict to a skill in force, and what users notice meanwhile.

1. From the verdict to the skill being retrievable, with 10,000 skills in a real ledger and a real
   embedded Chroma: a person's correction, by the offline evolver; and a failure, by a stand-in for
   an LLM that answers at once, so that its own time does not count. The peer in the same run is the
   least that anybody could do: embed the text, put it into Chroma, look it up.
2. Runs served while the agent evolves without pause, against the same agent without evolving, in
   turns: failures, and the 95th percentile of the latency. The stand-in for the LLM takes 0.5 s.

    python -m benchmarks.evolution [--quick]
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import START, MessagesState, StateGraph

from benchmarks.report import environment, write_results
from benchmarks.retrieval import synthetic, texts
from metaclaw_langgraph import with_metaclaw
from metaclaw_langgraph.ledger import Ledger, NewSkill
from metaclaw_langgraph.skills.embedding import MiniLMInt8, vector_space
from metaclaw_langgraph.types import Skill

NAMESPACE = "bench"
WORDS = (
    *("invoice", "refund", "parcel", "printer", "meeting", "contract", "backup", "password"),
    *("holiday", "server", "budget", "survey", "ticket", "warehouse", "translation", "ledger"),
    *("visa", "recipe", "concert", "garden", "bicycle", "telescope", "orchard", "harbour"),
)


class Writer(BaseChatModel):
    """Stands in for the LLM of the evolver: a valid answer, after a pause."""

    pause: float = 0.0

    @property
    def _llm_type(self) -> str:
        return "writer"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        time.sleep(self.pause)
        asked = " ".join(str(message.content) for message in messages)
        topic = re.findall(r"see to the ([a-z ]+)", asked)[-1]
        skill = {
            "name": f"handle {topic}",
            "description": f"What to do about {topic}",
            "body": f"Name the {topic} in the first sentence.",
            "why": "it was left out",
        }
        text = json.dumps({"skills": [skill]})
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])


class Talker(BaseChatModel):
    """Answers after a few milliseconds, as a quick model would."""

    @property
    def _llm_type(self) -> str:
        return "talker"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        time.sleep(0.02)
        return ChatResult(generations=[ChatGeneration(message=AIMessage("As you wish."))])


def topics() -> Iterator[str]:
    """Topics that are not alike, so that each becomes a skill of its own."""
    rng = np.random.default_rng(7)
    while True:
        yield " ".join(rng.choice(WORDS, size=4, replace=False))


def fill(home: Path, count: int) -> None:
    """A ledger with this many skills around the meaning of real ones."""
    model = MiniLMInt8()
    vectors = synthetic(
        model.embed_documents([one for some in texts() for one in some]),
        count,
        np.random.default_rng(1),
    )
    body = "1. Look at the facts first.\n2. Do the smallest thing that works.\n3. Check it. " * 4
    with Ledger.open(f"sqlite:///{(home / 'ledger.db').as_posix()}") as ledger:
        new = [
            NewSkill(
                Skill(f"skill-{n}", f"How to do thing number {n}", body, 1),
                row.astype("<f4").tobytes(),
                vector_space(model),
            )
            for n, row in enumerate(vectors)
        ]
        ledger.stage_skills(NAMESPACE, new)
        ids = [one.skill.id for one in new]
        ledger.commit_generation(NAMESPACE, expected=0, add=ids, reason="benchmark")


@contextmanager
def agent_on(home: Path, evolver: Writer | None) -> Iterator[Any]:
    """A wrapped agent that evolves from each failure at once."""

    def answer(state: MessagesState) -> dict[str, Any]:
        return {"messages": [Talker().invoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer")
    quick = {"support_size": 1, "support_wait": 0.0, "thread_debounce": 0.0}
    agent = with_metaclaw(
        graph,
        home=home,
        namespace=NAMESPACE,
        tracing=False,
        evolver=evolver,
        retrieval={"warmup": 300.0, "deadline": 5.0},
        evolving={**quick, "library_limit": 1_000_000},
    )
    try:
        agent.metaclaw._store.retriever().warm()
        yield agent
    finally:
        agent.metaclaw.close()


def run(agent: Any, task: str, thread: str = "other") -> None:
    agent.invoke({"messages": [("user", task)]}, {"configurable": {"thread_id": thread}})


def latencies(home: Path, evolver: Writer | None, rounds: int) -> list[float]:
    """Milliseconds from the call of `feedback` until a look-up finds the new skill."""
    found = []
    with agent_on(home, evolver) as agent:
        ledger, retriever = agent.metaclaw._store.ledger(), agent.metaclaw._store.retriever()
        for topic in itertools.islice(topics(), rounds):
            task = f"Please see to the {topic}"
            run(agent, task)
            agent.metaclaw.flush()
            generation = ledger.generation(NAMESPACE)
            start = time.perf_counter()
            agent.metaclaw.feedback(False, f"Name the {topic} in the first sentence.")
            while ledger.generation(NAMESPACE) == generation:
                assert time.perf_counter() < start + 30, ledger.drafts(NAMESPACE, limit=1)
                time.sleep(0.002)
            hits = retriever.retrieve(task).hits
            found.append((time.perf_counter() - start) * 1e3)
            newest = ledger.generations(NAMESPACE, 1)[0].added
            assert set(newest) & {hit.id for hit in hits}, (task, newest, hits)
    return found


def least(home: Path, rounds: int) -> list[float]:
    """The peer: embed, put into Chroma, look up; nothing is recorded, checked or versioned."""
    import chromadb

    model = MiniLMInt8()
    client = chromadb.PersistentClient(str(home / "peer"))
    collection = client.get_or_create_collection("peer", metadata={"hnsw:space": "cosine"})
    vectors = synthetic(
        model.embed_documents([one for some in texts() for one in some]),
        10_000,
        np.random.default_rng(1),
    )
    for start in range(0, len(vectors), 5000):
        some = vectors[start : start + 5000]
        collection.upsert([f"s{start + n}" for n in range(len(some))], embeddings=some)
    found = []
    for number, topic in enumerate(itertools.islice(topics(), rounds)):
        start_at = time.perf_counter()
        row = model.embed_documents([f"handle {topic}. What to do about {topic}"])
        collection.upsert([f"new-{number}"], embeddings=row)
        query = model.embed_query(f"Please see to the {topic}")
        hits = collection.query(query_embeddings=query[None, :], n_results=20)
        found.append((time.perf_counter() - start_at) * 1e3)
        assert f"new-{number}" in hits["ids"][0]
    return found


def served(agent: Any, seconds: float, threads: int) -> tuple[list[float], int]:
    """Latencies in ms of runs from several threads for a while, and how many failed."""
    times: list[float] = []
    failed = [0]
    end = time.perf_counter() + seconds

    def client(number: int) -> None:
        tasks = (f"Client {number} asks about {topic}" for topic in topics())
        while time.perf_counter() < end:
            start = time.perf_counter()
            try:
                run(agent, next(tasks))
            except Exception:
                failed[0] += 1
            times.append((time.perf_counter() - start) * 1e3)
            time.sleep(0.02)

    workers = [threading.Thread(target=client, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return times, failed[0]


@contextmanager
def evolving(agent: Any, about: Iterator[str]) -> Iterator[Callable[[], int]]:
    """Failures without pause, in the background; how many generations came of it."""
    ledger = agent.metaclaw._store.ledger()
    before, stop = ledger.generation(NAMESPACE), threading.Event()

    def fail() -> None:
        for topic in about:
            if stop.is_set():
                return
            run(agent, f"Please see to the {topic}", thread="failing")
            agent.metaclaw.flush()
            generation = ledger.generation(NAMESPACE)
            agent.metaclaw.feedback(False, f"Name the {topic}.", thread_id="failing")
            while ledger.generation(NAMESPACE) == generation and not stop.wait(0.05):
                pass

    worker = threading.Thread(target=fail)
    worker.start()
    try:
        yield lambda: ledger.generation(NAMESPACE) - before
    finally:
        stop.set()
        worker.join()


def serving(home: Path, seconds: float, turns: int) -> dict[str, Any]:
    """Turns with and without evolving, in one process."""
    quiet: list[float] = []
    busy: list[float] = []
    failed = generations = 0
    about = topics()
    with agent_on(home, Writer(pause=0.5)) as agent:
        served(agent, 2.0, 4)
        for _ in range(turns):
            times, bad = served(agent, seconds, 4)
            quiet += times
            failed += bad
            with evolving(agent, about) as made:
                times, bad = served(agent, seconds, 4)
                busy += times
                failed += bad
                generations += made()
    return {"quiet": quiet, "busy": busy, "failed": failed, "generations": generations}


def shape(times: list[float]) -> dict[str, float]:
    return {
        "n": len(times),
        **{f"p{q}_ms": round(float(np.percentile(times, q)), 1) for q in (50, 95, 99)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small numbers, to try it")
    quick = parser.parse_args().quick
    count, rounds, seconds, turns = (500, 5, 3.0, 1) if quick else (10_000, 60, 15.0, 4)
    before = environment()
    with tempfile.TemporaryDirectory() as folder:
        filled = Path(folder) / "filled"
        filled.mkdir()
        fill(filled, count)
        homes = [Path(shutil.copytree(filled, Path(folder) / name)) for name in "abc"]
        corrected = latencies(homes[0], None, rounds)
        written = latencies(homes[1], Writer(), rounds)
        peer = least(Path(folder), rounds)
        load = serving(homes[2], seconds, turns)
    floor = shape(peer)["p50_ms"]
    ratio = shape(load["busy"])["p95_ms"] / shape(load["quiet"])["p95_ms"]
    rows = [
        {"what": "embed, upsert, query (peer)", **shape(peer), "ratio": 1.0},
        {
            "what": "correction to skill, offline evolver",
            **shape(corrected),
            "ratio": round(shape(corrected)["p50_ms"] / floor, 2),
        },
        {
            "what": "failure to skill, LLM stand-in of 0 s",
            **shape(written),
            "ratio": round(shape(written)["p50_ms"] / floor, 2),
        },
        {"what": "runs served, not evolving (peer)", **shape(load["quiet"]), "ratio": 1.0},
        {
            "what": "runs served while evolving",
            **shape(load["busy"]),
            "ratio": round(ratio, 2),
        },
    ]
    notes = [
        f"{count} skills; ratios at the median for the first three rows, at p95 for the last two.",
        f"While evolving, {load['generations']} generations were made; "
        f"{load['failed']} runs failed in all turns.",
        "The model of the agent takes 20 ms, four clients, each pauses 20 ms between runs.",
    ]
    write_results("evolution", rows, before, title="What learning costs", notes=notes)
    for row in rows:
        print(row)
    for note in notes:
        print(note)


if __name__ == "__main__":
    main()
