"""Messages between host and worker, besides those of the executor, and the plan that both ends know.

host                          worker
Connect(job, run)    ──▶
                     ◀──      Accepted(received), or Rejected: then the host ends its executor
answers, output      ──▶
                     ◀──      Kill
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perago.runtime.worker.executor import ExecutorSpec
from perago.runtime.worker.executor_protocol import Answer, Cleaned, Ended, StartFailed, StepStarted

KEPT = (StepStarted, StartFailed, Ended, Cleaned)
"""Answers that survive a lost connection: they are resent on the next one, and returned with the job as well."""


@dataclass(frozen=True, slots=True)
class HostPlan:
    """The plan that every host gets with its job. It holds the keys to the servers and to the connection."""

    session: str
    """Identifies the worker: executors of another worker are not reused."""
    spec: ExecutorSpec
    folder: Path
    """The worker's current folder, in which the names of targets are resolved."""
    address: tuple[str, int]
    key: bytes

    def __repr__(self) -> str:
        """Return a text without secrets."""
        return f"HostPlan({self.session}, {self.address})"


@dataclass(frozen=True, slots=True)
class Connect:
    """From a host: it runs this job. `run` counts how often the engine has run it before."""

    job: str
    run: int = 0


@dataclass(frozen=True, slots=True)
class Accepted:
    """To a host: the number of its kept answers that have arrived."""

    received: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """To a host: the worker no longer waits for this job."""


@dataclass(frozen=True, slots=True)
class Kill:
    """To a host: kill the executor and everything it has started."""


@dataclass(frozen=True, slots=True)
class Output:
    """From a host: output of its executor."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Report:
    """The value of a job: all kept answers, and how its executor ended; empty if it is still alive."""

    answers: tuple[Answer, ...]
    exit_reason: str = ""
