"""What a host says over its line, besides what its executor says; and the one value that is known on both ends.

host                          worker
Hello(job, run)      ──▶
                     ◀──      Welcome(heard), or Unwanted: then it ends its executor
answers, output      ──▶
                     ◀──      Kill
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perago.runtime.worker.executor import ExecutorSpec
from perago.runtime.worker.executor_protocol import Answer, Cleaned, Ended, StartFailed, StepStarted

KEPT = (StepStarted, StartFailed, Ended, Cleaned)
"""Answers that are not lost with a line: they are said again on the next one, and come back with the job as well."""


@dataclass(frozen=True, slots=True)
class HostPlan:
    """What every host needs to know.  It holds the keys to the servers, and to the line: it travels inside the job."""

    session: str
    """The worker: an executor of another one is not used."""
    spec: ExecutorSpec
    folder: Path
    """Where the names of targets mean something: the worker's current folder."""
    address: tuple[str, int]
    key: bytes

    def __repr__(self) -> str:
        """Without anything that is secret."""
        return f"HostPlan({self.session}, {self.address})"


@dataclass(frozen=True, slots=True)
class Connect:
    """From a host: it runs this job; a `run` above 0 is one that the engine has run before."""

    job: str
    run: int = 0


@dataclass(frozen=True, slots=True)
class Accepted:
    """To a host: so many of its kept answers have been heard."""

    heard: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """To a host: nobody waits for this job any more."""


@dataclass(frozen=True, slots=True)
class Kill:
    """To a host: end the executor, and everything it has started."""


@dataclass(frozen=True, slots=True)
class Output:
    """From a host: what its executor has printed."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Report:
    """What a job returns: all kept answers, and how its executor ended; empty where it lives on."""

    said: tuple[Answer, ...]
    how: str = ""
