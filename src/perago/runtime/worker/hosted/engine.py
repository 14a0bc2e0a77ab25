"""The interface to an engine, such as Spark, that runs functions on other machines as jobs.

Each call of `run` runs one job and blocks until the job ends.  `assembly` passes an engine to a worker, whose executors
then run on it.  Worker and engine know each other only through this interface.
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
    """The context of a running job: a folder that the engine removes later, and the number of earlier runs."""

    scratch: Path
    again: int = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The endpoint at which jobs reach this process: the address to listen on, and the host name to connect to."""

    bind: str
    host: str
    port: int = 0
    """The port; 0 means any free port."""


class Jobs(Protocol):
    """An engine that runs functions as jobs on other machines, for example on a Spark cluster.  Thread-safe."""

    def open(self) -> Endpoint:
        """Start the engine if necessary. Raises if it cannot be started."""

    def run(self, job: str, label: str, work: Callable[[JobContext], T]) -> T:
        """Run a function on one of the engine's executors and return its value. Raises `JobLost` if no value comes back.

        `job` is the id to pass to `cancel`, and `label` is a human-readable name.  The function is pickled together
        with everything it references.
        """

    def cancel(self, job: str) -> None:
        """Cancel a job, whether it is running or waiting."""
