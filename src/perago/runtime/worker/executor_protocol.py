"""The executor protocol: the messages between supervisor and executor, and the link that carries them.

An executor is a process on this machine, reached over a pipe, or a process that an engine such as Spark hosts on
another machine.  Messages are small frozen values.  The supervisor chooses the execution ids, so it knows the name of
every workdir and branch that an executor may leave behind.  A link delivers everything that its executor sent, and then
reports the executor's exit exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from perago.orchestrator.base import Assignment
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.observe.call_recorder import StepTimes
from perago.runtime.worker.output_capture import OutputListener

if TYPE_CHECKING:
    from perago.runtime.worker.inbox import Inbox


@dataclass(frozen=True, slots=True)
class Run:
    """Sent to an executor: run this attempt under this execution id.

    `handouts` is the number of times that the execution has been handed out, including this one.
    """

    execution_id: str
    assignment: Assignment
    handouts: int = 1


@dataclass(frozen=True, slots=True)
class Stop:
    """Sent to an executor: finish cleaning up and exit."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Sent by an executor: its tasks are loaded, and it is connected to the servers."""


@dataclass(frozen=True, slots=True)
class StartFailed:
    """Sent by an executor that is exiting because it could not start, for the given reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class StepStarted:
    """Sent by an executor: an execution has started a step."""

    execution_id: str
    step: str


@dataclass(frozen=True, slots=True)
class StepTraced:
    """Sent by an executor while traces are on: a step of an execution has ended, with these calls to servers."""

    execution_id: str
    times: StepTimes


@dataclass(frozen=True, slots=True)
class BodyProgress:
    """Sent by an executor: a short message about a body's progress."""

    execution_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """Sent by an executor: an execution has ended.

    `unusable_reason` says why the executor must not run another execution; it is empty if the executor may do so.
    """

    execution_id: str
    result: ExecutionResult
    unusable_reason: str = ""

    def is_last(self, done: int, most: int) -> bool:
        """Return whether to replace the executor after `done` executions.

        `most` is the maximum number of executions; 0 means no limit.
        """
        # Waiting does not free file descriptors, so replace the executor.
        return bool(
            self.unusable_reason or (most and done >= most) or self.result.worker_fault == "descriptors"
        )


@dataclass(frozen=True, slots=True)
class Cleaned:
    """Sent by an executor: the staging branches and the workdir of an execution have been removed."""

    execution_id: str


@dataclass(frozen=True, slots=True)
class CleanupFailed:
    """Sent by a link: the executor of an ended execution is gone and may have left staging branches behind."""

    execution_id: str


@dataclass(frozen=True, slots=True)
class Rerun:
    """Sent by a link: the engine is running an execution again, and it is not known how far the first run got."""

    execution_id: str


@dataclass(frozen=True, slots=True)
class Logged:
    """Sent by an executor whose log the supervisor writes: one log record, as text."""

    logger: str
    level: int
    text: str
    trace: str = ""
    attempt: Mapping[str, str | int] = field(default_factory=dict)


Request = Run | Stop
Answer = (
    Ready
    | StartFailed
    | StepStarted
    | StepTraced
    | BodyProgress
    | Ended
    | Cleaned
    | Logged
    | CleanupFailed
    | Rerun
)


@dataclass(frozen=True, slots=True)
class ExecutorExit:
    """The reason why an executor ended.

    If `complete` is False, messages may have been lost, and the executor may have got further than its last message
    says.
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
    """Starts executors of one kind: processes on this machine, or processes hosted by an engine."""

    def start(self, number: int, inbox: Inbox, output: OutputListener) -> Link:
        """Start an executor for the slot with this number.

        The executor's messages are posted to the inbox as they arrive, and its exit last.

        Raises if the machine is out of resources; nothing is left behind in that case.
        """
