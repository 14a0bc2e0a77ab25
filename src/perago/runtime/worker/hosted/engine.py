"""What a worker asks of an engine that runs functions on other machines: one job at a time, from a thread that waits for it.

`connect` hands such an engine to a worker that is to host its executors there; neither knows more of the other than this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

T = TypeVar("T")


class JobLost(Exception):
    """A job has ended without a value: its executor is gone, it was cancelled, or the engine is not there."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """Where a job runs: a folder that the engine removes in the end, and how often it has run this job before."""

    scratch: Path
    again: int = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where this process can be called from a job: the address to listen at, and what to call it there."""

    bind: str
    host: str
    port: int = 0
    """0 for any."""


class Jobs(Protocol):
    """An engine; safe for threads."""

    def open(self) -> Endpoint:
        """Have the engine up; what keeps it from starting is raised."""

    def run(self, job: str, label: str, work: Callable[[JobContext], T]) -> T:
        """Run a function on one of its executors, and return what it returns; `JobLost` where nothing comes back.

        `job` is what it is cancelled by, and `label` what people are shown.  The function travels there, and so does all
        that it holds.
        """

    def cancel(self, job: str) -> None:
        """End a job wherever it is."""
