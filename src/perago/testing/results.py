"""Results of trials: how attempts ended, what they printed, and what is on the branch afterwards.

These are plain values without any reference to the lake, so they outlive its folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes that a publication made to the files under the task's prefix, as sorted paths relative to it."""

    put: tuple[str, ...] = ()
    """New files, and files whose content changed."""
    deleted: tuple[str, ...] = ()
    """Removed files."""

    def __bool__(self) -> bool:
        return bool(self.put or self.deleted)


@dataclass(frozen=True, slots=True)
class TrialCommit:
    """A commit on the branch."""

    id: str
    message: str
    by: str = ""
    """The reference name of the workflow step that published the commit. Empty if no task made it."""


@dataclass(frozen=True, slots=True)
class TrialAttempt:
    """One attempt at a step: the first one, or a retry."""

    status: str
    """The status in Conductor: COMPLETED, FAILED, FAILED_WITH_TERMINAL_ERROR, or TIMED_OUT after a crash."""
    reason: str | None = None
    """The reason for a failure, as Conductor would show it."""
    error: BaseException | None = None
    """The exception that ended the attempt: yours, Perago's, or `Crashed`."""
    log: tuple[str, ...] = ()
    """The lines that your code printed, and those that it logged at level INFO or higher."""
    steps: tuple[str, ...] = ()
    """The names of the steps that ran, in order. A completed attempt without `body` reused an earlier result."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a task's trial, and the state of the branch afterwards."""

    status: str
    """The last attempt's status in Conductor: COMPLETED, FAILED, FAILED_WITH_TERMINAL_ERROR or TIMED_OUT."""
    reason: str | None
    """The reason for a failure, as Conductor would show it."""
    result: Mapping[str, Any] | None
    """The body's result as JSON values. None unless the task completed."""
    files: Mapping[str, bytes]
    """The files under the prefix after the trial, keyed by path relative to it."""
    published: bool
    """True if the branch's head is now a publication from this trial."""
    error: BaseException | None = None
    """The exception that ended the last attempt: yours, Perago's, or `Crashed`."""
    log: tuple[str, ...] = ()
    """The lines that your code printed, and those that it logged at level INFO or higher, in all attempts."""
    changes: Changes = field(default_factory=Changes)
    """Changes to the files under the prefix. Empty unless the task completed."""
    attempts: tuple[TrialAttempt, ...] = ()
    """Every attempt, starting with the first."""
    history: tuple[TrialCommit, ...] = ()
    """The commits on the branch, newest first."""
    replaced: tuple[TrialCommit, ...] = ()
    """Commits that a retry removed from the branch (`on_abandoned="replace"`). A tag preserves each of them."""


@dataclass(frozen=True, slots=True)
class TrialStep:
    """One workflow step that a worker runs.

    Each loop iteration is a separate step: `clean__1`, `clean__2` and so on.
    """

    task: str
    """The name of the step's task."""
    status: str
    """The last attempt's status in Conductor."""
    reason: str | None
    """The reason why the last attempt failed."""
    output: Mapping[str, Any]
    """The output that later steps read: `result`, and `workspace` if the task has one."""
    attempts: tuple[TrialAttempt, ...]
    """Every attempt, starting with the first."""

    @property
    def result(self) -> Mapping[str, Any] | None:
        """The body's result as JSON values. None unless the step completed."""
        return self.output.get("result")

    @property
    def log(self) -> tuple[str, ...]:
        """The lines that your code printed and logged, in all attempts."""
        return tuple(line for attempt in self.attempts for line in attempt.log)

    @property
    def error(self) -> BaseException | None:
        """The exception that ended the last attempt."""
        return self.attempts[-1].error if self.attempts else None


@dataclass(frozen=True, slots=True)
class WorkflowTrial:
    """The result of a workflow's trial, and the state of the branch afterwards."""

    status: str
    """The status in Conductor: COMPLETED, FAILED or TIMED_OUT."""
    reason: str | None
    """The reason for a failure."""
    output: Mapping[str, Any]
    """The workflow's output, as its `outputParameters` define it."""
    steps: Mapping[str, TrialStep]
    """The steps that ran, in order, keyed by reference name. Steps in cases that were not taken are missing."""
    files: Mapping[str, bytes]
    """Every file on the repository's `main` branch after the trial, keyed by path."""
    log: tuple[str, ...]
    """The lines that your code printed and logged, in the order in which the attempts ran."""
    history: tuple[TrialCommit, ...]
    """The commits on the branch, newest first."""
    replaced: tuple[TrialCommit, ...] = ()
    """Commits that a retry removed from the branch (`on_abandoned="replace"`). A tag preserves each of them."""
