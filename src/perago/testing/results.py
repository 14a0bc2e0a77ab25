"""Results of trials: how attempts ended, what they printed, and what is on the branch afterwards.

The rule: these are plain values.  They hold no reference to the lake, so they outlive its folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of a publication to the files of the task's prefix, as sorted paths below it."""

    put: tuple[str, ...] = ()
    """New files and files with other bytes."""
    deleted: tuple[str, ...] = ()
    """Removed files."""

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
    """The status in Conductor: COMPLETED, FAILED, FAILED_WITH_TERMINAL_ERROR, or TIMED_OUT after a crash."""
    reason: str | None = None
    """The reason of a failure, as Conductor would show it."""
    error: BaseException | None = None
    """The exception that ended it: yours, Perago's, or `Crashed`."""
    log: tuple[str, ...] = ()
    """The lines that your code printed and logged, from INFO on."""
    steps: tuple[str, ...] = ()
    """The names of the steps it took, in order; without `body` the result of an earlier attempt was used again."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of a task's trial, and the branch after it."""

    status: str
    """The last attempt's status in Conductor: COMPLETED, FAILED, FAILED_WITH_TERMINAL_ERROR or TIMED_OUT."""
    reason: str | None
    """The reason of a failure, as Conductor would show it."""
    result: Mapping[str, Any] | None
    """The body's result as JSON values; None unless the task completed."""
    files: Mapping[str, bytes]
    """The files of the prefix afterwards, by path below it."""
    published: bool
    """True if the branch now holds a publication of this task."""
    error: BaseException | None = None
    """The exception that ended the last attempt: yours, Perago's, or `Crashed`."""
    log: tuple[str, ...] = ()
    """The lines that your code printed and logged, from INFO on, in all attempts."""
    changes: Changes = field(default_factory=Changes)
    """Changes to the files of the prefix; empty unless the task completed."""
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
    """The last attempt's status in Conductor."""
    reason: str | None
    """The reason of the last attempt's failure."""
    output: Mapping[str, Any]
    """The output that later steps read: `result`, and `workspace` if the task has one."""
    attempts: tuple[TrialAttempt, ...]
    """Every attempt, the first one first."""

    @property
    def result(self) -> Mapping[str, Any] | None:
        """The body's result as JSON values; None unless the step completed."""
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
    """The result of a workflow's trial, and the branch after it."""

    status: str
    """The status in Conductor: COMPLETED, FAILED or TIMED_OUT."""
    reason: str | None
    """The reason of a failure."""
    output: Mapping[str, Any]
    """The workflow's output, by its `outputParameters`."""
    steps: Mapping[str, TrialStep]
    """The steps that ran, by reference name, in order; steps of untaken branches are missing."""
    files: Mapping[str, bytes]
    """Every file of the repository's branch `main` afterwards, by its path."""
    log: tuple[str, ...]
    """The lines that your code printed and logged, in the order in which the attempts ran."""
    history: tuple[TrialCommit, ...]
    """The commits of the branch, newest first."""
    replaced: tuple[TrialCommit, ...] = ()
    """Commits that a retry took off the branch (`on_abandoned="replace"`); each is kept under a tag."""
