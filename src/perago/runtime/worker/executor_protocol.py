"""The executor protocol: the messages between supervisor and executor, and the link that carries them.

An executor is a process on this machine, reached over a pipe, or a process hosted elsewhere by an engine.  Messages are
small frozen values.  The supervisor chooses the execution ids, so it knows the name of every workdir and branch that an
executor may leave behind.  A link first passes on everything that its executor sent, then reports its exit, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from perago.orchestrator.base import Assignment
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.worker.output_capture import OutputListener

if TYPE_CHECKING:
    from perago.runtime.worker.inbox import Inbox


@dataclass(frozen=True, slots=True)
class Run:
    """To an executor: run this attempt under this execution id.

    `handouts` is how often the execution has been handed out, including this time.
    """

    execution_id: str
    assignment: Assignment
    handouts: int = 1


@dataclass(frozen=True, slots=True)
class Stop:
    """To an executor: finish cleaning up and exit."""


@dataclass(frozen=True, slots=True)
class Ready:
    """From an executor: the tasks are loaded and the servers are connected."""


@dataclass(frozen=True, slots=True)
class StartFailed:
    """From an executor: it could not start, for the given reason, and is exiting."""

    reason: str


@dataclass(frozen=True, slots=True)
class StepStarted:
    """From an executor: an execution has started a step."""

    execution_id: str
    step: str


@dataclass(frozen=True, slots=True)
class BodyProgress:
    """From an executor: a short text about the progress of a body."""

    execution_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """From an executor: an execution has ended.

    `unusable_reason` says why the executor must not run another one; it is empty if the executor may.
    """

    execution_id: str
    result: ExecutionResult
    unusable_reason: str = ""

    def is_last(self, done: int, most: int) -> bool:
        """Return whether to replace the executor after `done` executions.  `most` is their limit; 0 means no limit."""
        # Waiting does not free file descriptors, so replace the executor.
        return bool(
            self.unusable_reason or (most and done >= most) or self.result.worker_fault == "descriptors"
        )


@dataclass(frozen=True, slots=True)
class Cleaned:
    """From an executor: the staging branches and the workdir of an execution have been removed."""

    execution_id: str


@dataclass(frozen=True, slots=True)
class CleanupFailed:
    """From a link: the executor of an ended execution is gone and may have left staging branches behind."""

    execution_id: str


@dataclass(frozen=True, slots=True)
class Rerun:
    """From a link: the engine is running an execution again; how far the first run got is unknown."""

    execution_id: str


@dataclass(frozen=True, slots=True)
class Logged:
    """From an executor whose log the supervisor writes: one log record as text."""

    logger: str
    level: int
    text: str
    trace: str = ""
    attempt: Mapping[str, str | int] = field(default_factory=dict)


Request = Run | Stop
Answer = Ready | StartFailed | StepStarted | BodyProgress | Ended | Cleaned | Logged | CleanupFailed | Rerun


@dataclass(frozen=True, slots=True)
class ExecutorExit:
    """The end of an executor.

    Unless `complete`, messages may have been lost, and the executor may have got further than its last message says.
    """

    reason: str
    complete: bool = True


class Link(Protocol):
    """The connection to one executor, from its start to its exit."""

    def send(self, request: Request) -> None:
        """Send a request.  Raises if the request cannot be pickled, and does nothing if the executor is gone."""

    def kill(self) -> None:
        """Kill the executor and everything it has started, without waiting."""

    def close(self) -> None:
        """Release the link's resources after the executor is gone."""


class ExecutorFactory(Protocol):
    """Starts executors of one kind."""

    def start(self, number: int, inbox: Inbox, output: OutputListener) -> Link:
        """Start an executor for the slot with this number.

        The executor's answers are posted as they arrive, and its exit last.

        Raises if the machine is out of resources; nothing is left behind in that case.
        """
