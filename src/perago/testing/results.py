"""What a trial tells: how attempts ended, what they printed, and what is on the branch afterwards.

The rule: these are plain values.  Nothing in them reaches back to the lake, so they can be looked at after its folder is
gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Changes:
    """What a publication did to the files of the task's prefix, as paths below it, in order."""

    put: tuple[str, ...] = ()
    """Files that are new or have other bytes."""
    deleted: tuple[str, ...] = ()
    """Files that are gone."""

    def __bool__(self) -> bool:
        return bool(self.put or self.deleted)


@dataclass(frozen=True, slots=True)
class TrialCommit:
    """A commit of the branch."""

    id: str
    message: str
    by: str = ""
    """The workflow step that published it, by its reference name; empty for a commit that no task made."""


@dataclass(frozen=True, slots=True)
class TrialAttempt:
    """One attempt: the first try of a step, or a retry of it."""

    status: str
    """What Conductor would show: COMPLETED, FAILED, FAILED_WITH_TERMINAL_ERROR, or TIMED_OUT after a crash."""
    reason: str | None = None
    """Why it did not complete, as Conductor would show it."""
    error: BaseException | None = None
    """What ended it: your exception, Perago's, or `Crashed`."""
    log: tuple[str, ...] = ()
    """The lines that your code printed and logged, from INFO on."""
    steps: tuple[str, ...] = ()
    """The names of the steps it took, in order; without `body` the result of an earlier attempt was used again."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How a task ended, and what is on the branch then."""

    status: str
    """What Conductor would show for the last attempt: COMPLETED, FAILED, FAILED_WITH_TERMINAL_ERROR or TIMED_OUT."""
    reason: str | None
    """Why it did not complete, as Conductor would show it."""
    result: Mapping[str, Any] | None
    """What the body returned, as JSON values; None unless the task completed."""
    files: Mapping[str, bytes]
    """The files of the prefix afterwards, by path below it."""
    published: bool
    """Whether the branch holds a publication of this task now."""
    error: BaseException | None = None
    """What ended the last attempt: your exception, Perago's, or `Crashed`."""
    log: tuple[str, ...] = ()
    """The lines that your code printed and logged, from INFO on, in all attempts."""
    changes: Changes = field(default_factory=Changes)
    """What the result did to the files of the prefix; nothing unless the task completed."""
    attempts: tuple[TrialAttempt, ...] = ()
    """Every attempt, the first one first."""
    history: tuple[TrialCommit, ...] = ()
    """The commits of the branch, newest first."""
    replaced: tuple[TrialCommit, ...] = ()
    """Commits that a retry took off the branch (`on_abandoned="replace"`); each is kept under a tag."""


@dataclass(frozen=True, slots=True)
class TrialStep:
    """One step of a workflow that a worker runs; every iteration of a loop is a step, `clean__1`, `clean__2` and so on."""

    task: str
    """The name of its task."""
    status: str
    """What Conductor would show for its last attempt."""
    reason: str | None
    """Why that one did not complete."""
    output: Mapping[str, Any]
    """What later steps get of it: `result`, and `workspace` if the task has one."""
    attempts: tuple[TrialAttempt, ...]
    """Every attempt, the first one first."""

    @property
    def result(self) -> Mapping[str, Any] | None:
        """What the body returned, as JSON values; None unless the step completed."""
        return self.output.get("result")

    @property
    def log(self) -> tuple[str, ...]:
        """The lines that your code printed and logged, in all attempts."""
        return tuple(line for attempt in self.attempts for line in attempt.log)

    @property
    def error(self) -> BaseException | None:
        """What ended the last attempt."""
        return self.attempts[-1].error if self.attempts else None


@dataclass(frozen=True, slots=True)
class WorkflowTrial:
    """How a workflow ended, and what is on the branch then."""

    status: str
    """What Conductor would show: COMPLETED, FAILED or TIMED_OUT."""
    reason: str | None
    """Why it did not complete."""
    output: Mapping[str, Any]
    """The workflow's output, by its `outputParameters`."""
    steps: Mapping[str, TrialStep]
    """The steps that came up, by reference name, in order; a branch that was not taken is not among them."""
    files: Mapping[str, bytes]
    """Every file of the repository's branch `main` afterwards, by its path."""
    log: tuple[str, ...]
    """The lines that your code printed and logged, in the order in which the attempts ran."""
    history: tuple[TrialCommit, ...]
    """The commits of the branch, newest first."""
    replaced: tuple[TrialCommit, ...] = ()
    """Commits that a retry took off the branch (`on_abandoned="replace"`); each is kept under a tag."""
