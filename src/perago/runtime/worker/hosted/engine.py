"""The interface of an engine that runs functions on other machines: one job at a time, from a thread that waits for it.

`assembly` gives such an engine to a worker whose executors run there; neither knows more of the other than this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

T = TypeVar("T")


class JobLost(Exception):
    """A job ended without a value: its executor is gone, it was cancelled, or the engine is down."""


@dataclass(frozen=True, slots=True)
class JobContext:
    """The context of a running job: a folder that the engine removes later, and how often it ran this job before."""

    scratch: Path
    again: int = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address at which jobs reach this process: the one to listen at, and the host name to connect to."""

    bind: str
    host: str
    port: int = 0
    """0 for any free port."""


class Jobs(Protocol):
    """An engine. Thread-safe."""

    def open(self) -> Endpoint:
        """Start the engine if necessary. Raises the error if it does not start."""

    def run(self, job: str, label: str, work: Callable[[JobContext], T]) -> T:
        """Run a function on one of the engine's executors and return its value. Raises `JobLost` if none comes back.

        `job` identifies it to `cancel`, and `label` is shown to people.  The function is pickled, with all that it holds.
        """

    def cancel(self, job: str) -> None:
        """End a job, whether it runs or waits."""
