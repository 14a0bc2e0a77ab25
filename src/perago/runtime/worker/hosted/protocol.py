"""The messages that host and worker exchange in addition to the executor's own, and the plan that both sides know.

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
"""Messages that survive a lost connection: they are buffered, resent on reconnecting, and also returned by the job."""


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
        """Return a representation without secrets."""
        return f"HostPlan({self.session}, {self.address})"


@dataclass(frozen=True, slots=True)
class Connect:
    """Sent by a host that is running this job. `run` is the number of times that the engine has run the job before."""

    job: str
    run: int = 0


@dataclass(frozen=True, slots=True)
class Accepted:
    """Sent to a host: the number of its buffered messages that the worker has already received."""

    received: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """Sent to a host: the worker is no longer waiting for this job."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Sent to a host: kill the executor and everything it has started."""


@dataclass(frozen=True, slots=True)
class Output:
    """Sent by a host: output that its executor printed."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Report:
    """The return value of a job: all buffered messages, and how the executor ended (empty if it is still alive)."""

    answers: tuple[Answer, ...]
    exit_reason: str = ""
