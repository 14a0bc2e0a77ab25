"""An engine without a JVM: jobs run in processes of this machine, which are kept for the next jobs and may be killed."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TypeVar

from perago.runtime.worker.hosted.engine import Endpoint, JobContext, JobLost
from tests.support.processes.fork_server import Birth, Forked, Nursery

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Place:
    """A process that takes one job after the other."""

    process: Forked
    pipe: Connection


@dataclass(slots=True, eq=False)
class ProcessJobs:
    """`reruns` says how often a job whose process died is run again, as by an engine that does not ask."""

    nursery: Nursery
    scratch: Path
    reruns: int = 0
    door: Endpoint = field(default_factory=lambda: Endpoint("127.0.0.1", "127.0.0.1"))
    running: dict[str, int] = field(default_factory=dict)
    """The process of each job that runs."""
    cancelled: list[str] = field(default_factory=list)
    _idle: list[_Place] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        # Python would wait for them at its end.
        atexit.register(self.close)

    def open(self) -> Endpoint:
        return self.door

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
        """End the process of a job, as a machine that goes down would."""
        with self._lock, contextlib.suppress(ProcessLookupError, KeyError):
            os.kill(self.running[job], signal.SIGKILL)

    def close(self) -> None:
        for place in self._idle:
            place.process.kill()
            place.process.wait()

    def _new_place(self) -> _Place:
        ours, theirs = Pipe()
        with theirs:
            birth = Birth("host", (), dict(os.environ), Path.cwd())
            return _Place(self.nursery.begin(birth, (theirs.fileno(), 1, 2)), ours)


def work(pipe: Connection) -> int:
    """In the process: run one job after the other."""
    with contextlib.suppress(EOFError):
        while True:
            job, spot = pipe.recv()
            pipe.send(job(spot))
    # As the processes of engines do: Python would wait here for executors that wait for the end of this process.
    os._exit(0)
