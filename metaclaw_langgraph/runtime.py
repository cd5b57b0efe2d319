"""The runtime of a wrapped graph: `agent.metaclaw`.

One per process and configuration, kept here: `langgraph dev` executes a user's module once for
each graph in it, and all of them must share one queue and one index. Parts that are out of order
are counted, never raised into a run; the ledger is opened again when it can be.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from concurrent.futures import Future
from importlib import import_module
from typing import TYPE_CHECKING, Any

from metaclaw_langgraph.config import MetaClawConfig
from metaclaw_langgraph.errors import ConfigError
from metaclaw_langgraph.incidents import Incidents
from metaclaw_langgraph.redaction import Redactor
from metaclaw_langgraph.types import Retrieved, Role
from metaclaw_langgraph.wrapping.pool import LookupPool
from metaclaw_langgraph.wrapping.run import Run
from metaclaw_langgraph.wrapping.task import TaskFunction, task_of_input

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

    from metaclaw_langgraph.learning.learner import Pass
    from metaclaw_langgraph.learning.parts import Parts
    from metaclaw_langgraph.learning.store import LearningStore
    from metaclaw_langgraph.learning.work import LearningWork
    from metaclaw_langgraph.status import Status

__all__ = ["Runtime", "runtime_for"]

_LOOKUP_THREADS = 4
_LOCAL_SECONDS = 30.0


class Runtime:
    """What learns, for one namespace. Made by `with_metaclaw`; thread-safe."""

    _warming: threading.Thread | None

    def __init__(self, config: MetaClawConfig) -> None:
        self.config = config
        self.namespace = config.namespace
        self.deadline = config.retrieval.deadline
        self.skilled_classes: dict[type, Any] = {}
        """The model classes that `metaclaw_model` made, by the class they were made from."""
        self._parts: Parts | None = None
        self._given: dict[str, Any] = {}
        self._work: LearningWork | None = None
        self._begun = False
        self._start()

    def status(self) -> Status:
        """What this namespace holds, and what is broken or was lost."""
        from metaclaw_langgraph.status import gather_status

        return gather_status(self.config, runtime=self)

    def flush(self, timeout: float | None = 10.0, *, traces: bool = False) -> bool:
        """Wait until finished runs are stored; False when time ran out.

        With `traces`, wait until they are in MLflow as well.
        """
        self._own_threads()
        give_up = None if timeout is None else time.monotonic() + timeout
        stored = self._recorder.flush(timeout)
        while stored and traces and self.config.tracing and self._store.traces_pending():
            if give_up is not None and time.monotonic() > give_up:
                return False
            self._store.start_exporter()
            time.sleep(0.1)
        return stored

    def feedback(
        self,
        reward: float | bool,
        reason: str = "",
        *,
        trajectory_id: str | None = None,
        run_id: str | None = None,
        thread_id: str | None = None,
        author: str | None = None,
    ) -> Role:
        """Give a person's verdict on a run; the role that its trajectory has now.

        Args:
            reward: From -1 (wrong) to 1 (right); True and False stand for 1 and -1.
            reason: What was wrong or right, in words.
            trajectory_id: The trajectory; else it is found by one of the next two.
            run_id: The `run_id` that the run had in its config.
            thread_id: The latest run of this thread. With none of the three: the latest run.
            author: Who says so.
        """
        from metaclaw_langgraph.learning.feedback import give_feedback

        self._own_threads()
        self._recorder.flush(10.0)
        _, role = give_feedback(
            self._store.ledger(),
            self.namespace,
            reward,
            reason,
            trajectory_id=trajectory_id,
            run_id=run_id,
            thread_id=thread_id,
            author=author,
        )
        self._wake_learner()
        return role

    def learn(self, timeout: float | None = 60.0) -> bool:
        """Store, judge and evolve now what there is, without waiting for more failures.

        Normally this happens by itself. False when time ran out or learning failed; `status()`
        says why.
        """
        self._own_threads()
        give_up = None if timeout is None else time.monotonic() + timeout
        if not self._recorder.flush(timeout):
            return False
        return self._learner.learn(None if give_up is None else give_up - time.monotonic())

    def learn_with(self, **parts: Any) -> None:
        """Say who judges, who writes skills and how runs are replayed; see `with_metaclaw`.

        What is not named stays as it was. Graphs that share their settings share these too.
        """
        from metaclaw_langgraph.learning.parts import parts_for

        given = {**self._given, **{name: one for name, one in parts.items() if one is not None}}
        found = parts_for(self.config, **given)
        with self._setting_up:
            self._given, self._parts, self._work = given, found, None
        self._wake_learner()

    def begin_learning(self) -> None:
        """From now on learn in the background. Not before it is known who judges and writes: what
        an earlier process left is for them."""
        # Not in the learner's thread: a fork during an import leaves the child half a module.
        import_module("metaclaw_langgraph.learning.work")
        if self._parts is None and self.config.learns_with_models:
            self.learn_with()
        self._begun = True
        self._wake_learner()

    def learning_graph(self) -> CompiledStateGraph[Any, Any, Any, Any]:
        """The graph that learns in the background, to be run or drawn by itself."""
        return self._open_work().graph

    def close(self, timeout: float = 5.0) -> None:
        """Store what is waiting and stop; the graph goes on answering, unobserved."""
        self._closed = True
        self._recorder.close(timeout)
        self._timed.stop()
        self._end_threads(timeout)
        with _lock:
            for key in [key for key, runtime in _runtimes.items() if runtime is self]:
                del _runtimes[key]

    def _end_threads(self, timeout: float) -> None:
        """Wait for what learns and retrieves: a thread that is inside a native library (the
        embedding model, Chroma) when the interpreter ends aborts the process.

        What is local comes to an end, however busy the machine is; a server or somebody's own
        embedder may hang.
        """
        if "torch" in sys.modules:  # a judge, an evolver or a replay may be inside it
            self._timed.join(max(timeout, _LOCAL_SECONDS))
        local = not self.config.chroma_url and self.config.retrieval.embedder == "minilm-int8"
        give_up = time.monotonic() + (max(timeout, _LOCAL_SECONDS) if local else timeout)
        self._learner.close(give_up - time.monotonic())
        self._pool.close(give_up - time.monotonic())
        self._store.close(give_up - time.monotonic())
        if self._warming is not None:
            self._warming.join(max(0.0, give_up - time.monotonic()))

    @property
    def waiting(self) -> int:
        """How many finished runs are not stored yet."""
        return self._recorder.waiting()

    @property
    def incidents(self) -> Incidents:
        """What went wrong in this process."""
        return self._incidents

    def new_run(self, find_task: TaskFunction = task_of_input) -> Run:
        """A run to watch."""
        self._own_threads()
        return Run(self, find_task)

    def look_up(self, task: str | None) -> Future[Retrieved]:
        """Start a look-up of skills."""
        return self._pool.submit(lambda: self._store.retrieve(task))

    def record(self, run: Run) -> None:
        """Take over a finished run."""
        if not self._closed:
            self._recorder.put(run)

    def incident(self, part: str, kind: str, error: BaseException | str) -> None:
        """Count something that went wrong; nothing does once it is closed."""
        if not self._closed:
            self._incidents.add(part, kind, error)

    def warm(self, seconds: float) -> None:
        """Load what retrieval needs, in the background.

        Waits for it at most so long, so that the first run has its skills; not at all if there
        are no skills yet.
        """
        ready = threading.Event()
        self._warming = threading.Thread(
            target=self._warm, args=(ready,), name="metaclaw-warm", daemon=True
        )
        self._warming.start()
        if not ready.wait(seconds) and seconds:
            self.incident("retrieval", "slow start", f"still loading after {seconds:g} s")

    def _warm(self, ready: threading.Event) -> None:
        try:
            self._store.warm(when_empty=ready.set)
        except Exception as error:
            # At the end of a short program its imports fail half-way: no failure of ours.
            if threading.main_thread().is_alive():
                self.incident("retrieval", "failed", error)
        finally:
            ready.set()

    def _own_threads(self) -> None:
        if self._pid != os.getpid():
            self._start()  # after a fork the threads and locks of the parent are gone

    def _wake_learner(self) -> None:
        if self._begun:
            self._learner.wake()

    def _start(self) -> None:
        from metaclaw_langgraph._timed import Timed
        from metaclaw_langgraph.learning.learner import Learner
        from metaclaw_langgraph.learning.recorder import Recorder
        from metaclaw_langgraph.learning.store import LearningStore

        self._pid = os.getpid()
        self._closed = False
        self._warming = None
        self._incidents = Incidents(Redactor(self.config.redact))
        self._store: LearningStore = LearningStore(self.config, self._incidents)
        self._timed = Timed()
        self._learner = Learner(self._learn, self._incidents)
        self._setting_up = threading.Lock()
        self._work = None
        self._pool: LookupPool[Retrieved] = LookupPool(
            "metaclaw-lookup", threads=_LOOKUP_THREADS, stuck_after=self.deadline
        )
        self._recorder = Recorder(
            self._store,
            self._incidents,
            self.config.home / "spool",
            queue_size=self.config.learning.queue_size,
            flush_interval=self.config.learning.flush_interval,
            stored=self._wake_learner,
        )
        self._recorder.take_in_spool()

    def _learn(self, at_once: bool) -> Pass:
        self._store.look_for_feedback()
        self._store.tend()
        return self._open_work()(at_once)

    def _open_work(self) -> LearningWork:
        """In the learner's thread: what it needs is slow to open."""
        from metaclaw_langgraph.learning.lessons import NamespaceLessons
        from metaclaw_langgraph.learning.parts import parts_for
        from metaclaw_langgraph.learning.work import LearningWork

        while (work := self._work) is None:
            given = self._parts
            parts = given or parts_for(self.config)
            ledger, retriever = self._store.ledger(), self._store.retriever()
            lessons = NamespaceLessons(
                self.config, ledger, retriever, parts, self._incidents, self._timed
            )
            work = LearningWork(ledger, self.namespace, lessons, self._store.show)
            with self._setting_up:
                if self._parts is given:  # nobody has given others meanwhile
                    self._parts, self._work = parts, work
        return work


_lock = threading.Lock()
_runtimes: dict[str, Runtime] = {}


def runtime_for(
    config: MetaClawConfig | None = None, *, begin: bool = True, **settings: Any
) -> Runtime:
    """The process's runtime for these settings, started on first use.

    Without `begin`, the caller calls `begin_learning`.
    """
    if config is not None and settings:
        names = ", ".join(sorted(settings))
        raise ConfigError(f"give either config or single settings, not both: {names}")
    config = config or MetaClawConfig.load(**settings)
    key = config.model_dump_json()
    with _lock:
        found = _runtimes.get(key)
        runtime = _runtimes[key] = found or Runtime(config)
    if found is None:
        runtime.warm(config.retrieval.warmup)
    if begin:
        runtime.begin_learning()
    return runtime


def _close_all() -> None:
    """At exit: daemon threads stop without warning, so what waits is stored first."""
    for runtime in list(_runtimes.values()):
        if runtime._pid == os.getpid():
            runtime.close()


atexit.register(_close_all)
