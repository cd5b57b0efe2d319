"""What wrapping adds to one invoke, in milliseconds, and beside it what MLflow's autolog adds.

One process, one model (a scripted fake that costs nothing), bare and wrapped invokes interleaved
call by call, so that the machine's load falls on all alike. Two graphs: one node, and
`create_agent` with a tool call; sync and async; libraries of 0, 1,000 and 10,000 skills. The
wrapped graph is measured with every task new, with every task new but an embedding that costs
nothing, and with the same task again. Trajectories are stored while it runs, as in real use.

    python benchmarks/overhead.py [--quick]

writes `benchmarks/results/overhead.json` and `.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph

from benchmarks.report import environment, write_results
from benchmarks.retrieval import synthetic, texts
from metaclaw_langgraph import MetaClawConfig, with_metaclaw
from metaclaw_langgraph.ledger import Ledger, NewSkill
from metaclaw_langgraph.skills.embedding import load_embedder, vector_space
from metaclaw_langgraph.types import Skill

COUNTER = itertools.count()
SAME = "please book the small meeting room for tomorrow"


class Instant(BaseChatModel):
    """Calls the tool once, then answers; takes no time."""

    @property
    def _llm_type(self) -> str:
        return "instant"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        if messages[-1].type == "tool" or not any(m.type == "system" for m in messages[:1]):
            answer = AIMessage("done")
        else:
            call = {"name": "add", "args": {"a": 1, "b": 2}, "id": "c1"}
            answer = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=answer)])


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def one_node() -> Any:
    model = Instant()

    def agent(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke([("user", str(state["messages"][-1].content))])]}

    async def aagent(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke([("user", str(state["messages"][-1].content))])]}

    from langgraph._internal._runnable import RunnableCallable

    builder = StateGraph(MessagesState)
    builder.add_node("agent", RunnableCallable(agent, aagent))
    builder.add_edge(START, "agent")
    return builder.compile()


def tool_agent() -> Any:
    return create_agent(Instant(), [add], system_prompt="You add numbers.")


GRAPHS: dict[str, Callable[[], Any]] = {"one node": one_node, "create_agent + tool": tool_agent}


@dataclass(frozen=True)
class Variant:
    name: str
    graph: Any
    fresh_task: bool
    autolog: bool = False


@functools.cache
def lifelike(count: int, seed: int) -> Any:
    """Vectors that lie around those of real skills."""
    base = load_embedder("minilm-int8").embed_documents(texts()[0])
    return synthetic(base, count, np.random.default_rng(seed))


class FreeEmbedder:
    """Costs nothing, so that what is left is everything but the embedding."""

    id = "free"
    dim = 384

    def embed_documents(self, texts: Sequence[str]) -> Any:
        return np.stack([self.embed_query(text) for text in texts])

    def embed_query(self, text: str) -> Any:
        return lifelike(512, 1)[hash(text) % 512]


def fill_library(config: MetaClawConfig, count: int) -> None:
    """A library of `count` skills with synthetic unit vectors: building it is not measured."""
    if not count:
        return
    embedder = load_embedder(config.retrieval.embedder)
    vectors = lifelike(count, 7).astype("<f4")
    ledger = Ledger.open(config.resolved_ledger_url)
    new = [
        NewSkill(
            Skill(f"skill-{n}", f"Synthetic skill {n}", "Do it well.", 1),
            vectors[n].tobytes(),
            vector_space(embedder),
        )
        for n in range(count)
    ]
    for start in range(0, count, 1000):
        ledger.stage_skills(config.namespace, new[start : start + 1000])
    ids = [one.skill.id for one in new]
    ledger.commit_generation(config.namespace, expected=0, add=ids, remove=[], reason="benchmark")
    ledger.close()


def ask(task: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": task}]}


@contextlib.contextmanager
def autologging(on: bool) -> Iterator[None]:
    """MLflow's own tracing of LangChain, on for one call."""
    if not on:
        yield
        return
    mlflow.langchain.autolog(silent=True)
    try:
        yield
    finally:
        mlflow.langchain.autolog(disable=True, silent=True)


def measure(variants: list[Variant], rounds: int, *, use_async: bool) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {variant.name: [] for variant in variants}

    async def one(variant: Variant) -> float:
        task = f"{SAME} at {next(COUNTER)} past ten" if variant.fresh_task else SAME
        with autologging(variant.autolog):
            start = time.perf_counter()
            if use_async:
                await variant.graph.ainvoke(ask(task))
            else:
                variant.graph.invoke(ask(task))
            return (time.perf_counter() - start) * 1e3

    async def loop() -> None:
        for number in range(rounds + 10):
            for variant in variants:
                took = await one(variant)
                if number >= 10:  # the first ones warm up
                    times[variant.name].append(took)
            await asyncio.sleep(0.002)  # room for background work, as between real requests

    asyncio.run(loop())
    return times


def compare(skills: int, rounds: int, results: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        common = {"home": Path(folder), "tracing": False}
        config = MetaClawConfig.load(**common, retrieval={"min_score": -1.0})
        plug = {"min_score": -1.0, "embedder": "benchmarks.overhead:FreeEmbedder"}
        free = MetaClawConfig.load(**common, namespace="free", retrieval=plug)
        fill_library(config, skills)
        fill_library(free, skills)
        for graph_name, build in GRAPHS.items():
            wrapped = with_metaclaw(build(), config)
            ours = [
                Variant("bare", build(), False),
                Variant("wrapped, task seen before", wrapped, False),
                Variant("wrapped, without embedding", with_metaclaw(build(), free), True),
                Variant("wrapped, new task", wrapped, True),
            ]
            # Apart from ours, for autolog's own background writes would fall on all others.
            autolog = [
                Variant("bare", build(), False),
                Variant("mlflow autolog", build(), False, autolog=True),
            ]
            for use_async in (False, True):
                times = measure(ours, rounds, use_async=use_async)
                results += rows(times, graph_name, skills, use_async)
                wrapped.metaclaw.flush(60)
                if not skills:
                    times = measure(autolog, rounds, use_async=use_async)
                    results += rows(times, graph_name, skills, use_async)[1:]
                    mlflow.flush_trace_async_logging()
        missed = sum(i.count for i in wrapped.metaclaw.incidents.total() if i.part == "retrieval")
        print(f"{skills} skills: {missed} look-ups missed the deadline")
        wrapped.metaclaw.close()


def rows(
    times: dict[str, list[float]], graph: str, skills: int, use_async: bool
) -> list[dict[str, Any]]:
    bare = statistics.median(times["bare"])
    found = []
    for name, values in times.items():
        # Paired by round: each difference is between neighbours in time.
        added = statistics.median(v - b for v, b in zip(values, times["bare"], strict=True))
        found.append(
            {
                "graph": graph,
                "api": "async" if use_async else "sync",
                "skills": skills,
                "variant": name,
                "median_ms": round(statistics.median(values), 3),
                "p95_ms": round(float(np.percentile(values, 95)), 3),
                "added_median_ms": round(added, 3),
                "ratio_to_bare": round(statistics.median(values) / bare, 2),
            }
        )
        print(found[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, small libraries")
    quick = parser.parse_args().quick
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
        place = (Path(folder) / "artifacts").as_uri()
        mlflow.set_experiment(experiment_id=mlflow.create_experiment("autolog", place))
        before = environment()
        for skills in (0, 100) if quick else (0, 1_000, 10_000):
            compare(skills, 20 if quick else 300, results)
        mlflow.flush_trace_async_logging(terminate=True)
    write_results(
        "overhead",
        results,
        before,
        title="What wrapping adds to one invoke",
        notes=[
            "Calls interleaved in one process; the model takes no time. Autolog is interleaved "
            "with bare calls of its own, for its background writes would fall on the others.",
            "`added` is the median of the differences to the bare call of the same round.",
            "`task seen before`: answered from memory. `without embedding`: every task is new, "
            "and looked up in Chroma, with an embedding that costs nothing. `new task`: all of it.",
            "The library is synthetic, with vectors around those of real skills; five skills are "
            "injected where there are any.",
        ],
    )


if __name__ == "__main__":
    main()
