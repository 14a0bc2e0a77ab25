"""What a supervisor and its executors say to each other: small frozen values over a link, and nothing else.

The supervisor chooses execution ids, so it knows the name of every workdir and branch an executor may leave behind.

How a slot reaches its executor, whatever that is: a process over a pipe, or a process that an engine hosts elsewhere.

The rule for every link: what an executor says is passed on before the news that it is gone, and that news comes once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from perago.orchestrator.base import Assignment
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.observe.sanitize import Masker
from perago.runtime.worker.output_capture import Sink


@dataclass(frozen=True, slots=True)
class Run:
    """To an executor: run this attempt under this execution id; it is the id's time number `given` to be handed out."""

    execution_id: str
    assignment: Assignment
    given: int = 1


@dataclass(frozen=True, slots=True)
class Stop:
    """To an executor: finish cleaning up and leave."""


@dataclass(frozen=True, slots=True)
class Ready:
    """From an executor: the tasks are loaded, the ports are open."""


@dataclass(frozen=True, slots=True)
class StartFailed:
    """From an executor that leaves at once: it could not start, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class StepStarted:
    """From an executor: a step of an execution begins."""

    execution_id: str
    step: str


@dataclass(frozen=True, slots=True)
class BodyProgress:
    """From an executor: what the body of an execution is doing, in a few words."""

    execution_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Ended:
    """From an executor: an execution is settled; it takes the next one, or says why it had better not."""

    execution_id: str
    settled: ExecutionResult
    spoiled: str = ""

    def is_last(self, done: int, most: int) -> bool:
        """Whether the executor should run nothing more, having done so many of the `most` it may (0: no limit)."""
        # One that has no descriptors left gets none by waiting.
        return bool(self.spoiled or (most and done >= most) or self.settled.own_reason == "descriptors")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """From an executor: staging and workdir of an execution are gone."""

    execution_id: str


@dataclass(frozen=True, slots=True)
class CleanupFailed:
    """From a link: who ran an execution that is settled is gone, and may have left its staging."""

    execution_id: str


@dataclass(frozen=True, slots=True)
class Rerun:
    """From a link: an engine runs an execution anew; how far the one before got is not known."""

    execution_id: str


@dataclass(frozen=True, slots=True)
class Logged:
    """From an executor whose supervisor writes its log: one record of it, in words."""

    logger: str
    level: int
    text: str
    trace: str = ""
    attempt: Mapping[str, str | int] = field(default_factory=dict)


Request = Run | Stop
Answer = Ready | StartFailed | StepStarted | BodyProgress | Ended | Cleaned | Logged | CleanupFailed | Rerun


@dataclass(frozen=True, slots=True)
class ExecutorExit:
    """How an executor ended; where it was not `heard` to the end, it may have got further than its last word."""

    how: str
    heard: bool = True


@dataclass(frozen=True, slots=True)
class LinkCallbacks:
    """Where a link tells what it hears; all of it may be called from any thread."""

    answered: Callable[[Answer], None]
    gone: Callable[[ExecutorExit], None]
    printed: Sink
    output_ended: Callable[[str], None]
    mask: Masker


class Link(Protocol):
    """One executor, from its start to its departure."""

    def send(self, request: Request) -> None:
        """Ask something of it; what cannot be sent at all raises, and an executor that is gone says so by itself."""

    def kill(self) -> None:
        """End it and everything it has started, without waiting for that."""

    def close(self) -> None:
        """Let go of what is left of the link, once the executor is gone."""


class ExecutorFactory(Protocol):
    """Makes executors of one kind."""

    def start(self, number: int, callbacks: LinkCallbacks) -> Link:
        """Start one; where there is no room for it this raises, and nothing is left of the try."""
