"""Messages between host and worker, in addition to the executor's own, and the plan that both sides know.

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
"""Answers that survive a lost connection: they are buffered, resent on the next one, and returned by the job as well."""


@dataclass(frozen=True, slots=True)
class HostPlan:
    """The plan that every host receives with its job. It contains the keys for the servers and for the connection."""

    session: str
    """Identifies the worker: executors of another worker are not reused."""
    spec: ExecutorSpec
    folder: Path
    """The worker's working directory, in which target names are resolved."""
    address: tuple[str, int]
    key: bytes

    def __repr__(self) -> str:
        """Return a text without secrets."""
        return f"HostPlan({self.session}, {self.address})"


@dataclass(frozen=True, slots=True)
class Connect:
    """From a host: it is running this job. `run` is the number of times that the engine has run the job before."""

    job: str
    run: int = 0


@dataclass(frozen=True, slots=True)
class Accepted:
    """To a host: how many of its buffered answers the worker has received."""

    received: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """To a host: the worker is no longer waiting for this job."""


@dataclass(frozen=True, slots=True)
class Kill:
    """To a host: kill the executor and everything it has started."""


@dataclass(frozen=True, slots=True)
class Output:
    """From a host: output that its executor printed."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Report:
    """The return value of a job: all buffered answers, and how its executor ended (empty if it is still alive)."""

    answers: tuple[Answer, ...]
    exit_reason: str = ""
