"""An engine without a JVM: jobs run in processes of this machine, which are kept for the next jobs and may be killed."""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

from perago.runtime.jobs import Door, JobLost, Spot

T = TypeVar("T")
_spawn = multiprocessing.get_context("spawn")


@dataclass(slots=True, eq=False)
class _Place:
    """A process that takes one job after the other."""

    process: Any
    pipe: Connection


@dataclass(slots=True, eq=False)
class ProcessJobs:
    """`reruns` says how often a job whose process died is run again, as by an engine that does not ask."""

    scratch: Path
    reruns: int = 0
    door: Door = field(default_factory=lambda: Door("127.0.0.1", "127.0.0.1"))
    running: dict[str, int] = field(default_factory=dict)
    """The process of each job that runs."""
    cancelled: list[str] = field(default_factory=list)
    _idle: list[_Place] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        # Python would wait for them at its end.
        atexit.register(self.close)

    def open(self) -> Door:
        return self.door

    def run(self, job: str, label: str, work: Callable[[Spot], T]) -> T:
        again = 0
        while True:
            with self._lock:
                place = self._idle.pop() if self._idle else _new_place()
                self.running[job] = place.process.pid
            try:
                place.pipe.send((work, Spot(self.scratch, again)))
                value: T = place.pipe.recv()
            except (EOFError, OSError):
                place.process.join()
                if again < self.reruns and job not in self.cancelled:
                    again += 1
                    continue
                raise JobLost(f"its process: code {place.process.exitcode}") from None
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
            place.process.join()


def _new_place() -> _Place:
    ours, theirs = _spawn.Pipe()
    process = _spawn.Process(target=_work, args=(theirs,))
    process.start()
    theirs.close()
    return _Place(process, ours)


def _work(pipe: Connection) -> None:
    with contextlib.suppress(EOFError):
        while True:
            work, spot = pipe.recv()
            pipe.send(work(spot))
    # As the processes of engines do: Python would wait here for executors that wait for the end of this process.
    os._exit(0)
