"""The main program of a test's worker: `perago start` with a chosen observer, if wanted on an engine without a JVM."""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TypeVar

from perago.assembly import assemble_worker, on_spark, prepare_executors
from perago.backend import Embedded, Real
from perago.declare.discovery import load_tasks
from perago.runtime.observe.logs import logging_to
from perago.runtime.worker.hosted.engine import Endpoint, JobContext, JobLost
from perago.runtime.worker.hosted.link import Hosted
from perago.runtime.worker.plan import WorkerPlan, check_lake, register_missing_taskdefs
from perago.runtime.worker.supervisor import Supervisor
from perago.settings import load_settings
from tests.support.processes.fork_server import Forked, ForkServer, Launch

TASKS = Path(__file__).parents[1] / "tasks"
RERUNS = ("rerun", "reruns")


def main(root: str, slots: str, local: str, observer: str) -> int:
    target = str(TASKS / os.environ.get("TEST_TASKS", "steps.py"))
    settings = load_settings(os.environ, root=Path(root))
    servers = Embedded(settings) if local == "local" else Real(settings)
    engine = os.environ.get("TEST_ENGINE", "")
    # Before any thread starts, as the worker's own fork server.
    fork_server = ForkServer.of_this_process() if engine.endswith(RERUNS) else None
    prepare_executors(servers)
    tasks = load_tasks([target])
    observe = pickle.loads(bytes.fromhex(observer)) if observer else None
    plan = assemble_worker(servers, [target], tasks, slots=int(slots), observe=observe)
    with plan.spec.servers.opened() as (lake, orchestrator), logging_to(settings, name="supervisor"):
        check_lake(lake)
        register_missing_taskdefs(orchestrator, tasks)
        plan = with_engine(plan, engine, fork_server)
        return Supervisor(plan, orchestrator, lake).run()


def with_engine(plan: WorkerPlan, engine: str, fork_server: ForkServer | None) -> WorkerPlan:
    """Put the worker on Spark, or on jobs in processes; "2 reruns" means that a lost job is run again twice."""
    if engine == "spark":
        return on_spark(plan)
    if fork_server is None:
        return plan
    scratch = plan.settings.root / "scratch"
    hosted = Hosted(
        ProcessJobs(fork_server, scratch, reruns=int(engine.split()[0])), plan.spec, name="processes"
    )
    hosted.check()
    return replace(plan, engine=hosted)


# --- an engine without a JVM -------------------------------------------------------------------------------------------


T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Place:
    """A process that runs one job after the other."""

    process: Forked
    pipe: Connection


@dataclass(slots=True, eq=False)
class ProcessJobs:
    """Runs jobs in processes of this machine, which are reused and may be killed.

    `reruns` is how often a job is run again after its process died, as some engines do unasked.
    """

    fork_server: ForkServer
    scratch: Path
    reruns: int = 0
    endpoint: Endpoint = field(default_factory=lambda: Endpoint("127.0.0.1", "127.0.0.1"))
    running: dict[str, int] = field(default_factory=dict)
    """The process of each job that runs."""
    cancelled: list[str] = field(default_factory=list)
    _idle: list[_Place] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        # Python would wait for the processes at its exit.
        atexit.register(self.close)

    def open(self) -> Endpoint:
        return self.endpoint

    def run(self, job: str, label: str, work: Callable[[JobContext], T]) -> T:
        again = 0
        while True:
            with self._lock:
                place = self._idle.pop() if self._idle else self._new_place()
                self.running[job] = place.process.pid
            try:
                place.pipe.send((work, JobContext(self.scratch, again)))
                value: T = place.pipe.recv()
            except (EOFError, OSError):
                code = place.process.wait()
                if again < self.reruns and job not in self.cancelled:
                    again += 1
                    continue
                raise JobLost(f"its process: code {code}") from None
            finally:
                with self._lock:
                    self.running.pop(job, None)
            with self._lock:
                self._idle.append(place)
            return value

    def cancel(self, job: str) -> None:
        self.cancelled.append(job)
        self.kill(job)

    def kill(self, job: str) -> None:
        """Kill the process of a job, as a machine that goes down does."""
        with self._lock, contextlib.suppress(ProcessLookupError, KeyError):
            os.kill(self.running[job], signal.SIGKILL)

    def close(self) -> None:
        for place in self._idle:
            place.process.kill()
            place.process.wait()

    def _new_place(self) -> _Place:
        ours, theirs = Pipe()
        with theirs:
            launch = Launch("host", (), dict(os.environ), Path.cwd())
            return _Place(self.fork_server.begin(launch, (theirs.fileno(), 1, 2)), ours)


def work(pipe: Connection) -> int:
    """Run one job after the other; the main loop of a job process."""
    with contextlib.suppress(EOFError):
        while True:
            job, context = pipe.recv()
            pipe.send(job(context))
    # As engines' processes do: Python would wait here for executors, which wait for the end of this process.
    os._exit(0)
