"""The attempts of a workflow as people look at them: states, what they logged, and the records of their executions.

Looking at runs that are over, go on or were stopped: one by its id, or all of them, newest first.

The rule: looking changes nothing.  It makes no file, times nothing out and asks no server that it was not told to.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perago.errors import OrchestratorNotFound, RuntimeConfigError
from perago.orchestrator.base import LogLine, Orchestrator, TaskState, WorkflowState
from perago.protocol.attempt_record import AttemptRecord, parse_record
from perago.protocol.suggestions import did_you_mean
from perago.runtime.runs.record import (
    RECORD,
    Run,
    all_runs,
    find_run,
    is_running,
    log_file,
    resume_command,
    runs_folder,
)
from perago.settings import Settings
from perago.workflow.check.step_types import OWN

OPEN = frozenset({"SCHEDULED", "IN_PROGRESS"})


@dataclass(frozen=True, slots=True)
class LoggedAttempt:
    """One attempt of a step; a step that was delivered twice has the records of both executions."""

    task: TaskState
    lines: Sequence[LogLine] = ()
    """What its body printed and logged; records are not among them."""
    records: Sequence[AttemptRecord] = ()

    @property
    def record(self) -> AttemptRecord | None:
        """The record of the execution that ended it: the newest."""
        return self.records[-1] if self.records else None


def worker_tasks(state: WorkflowState) -> list[TaskState]:
    """The attempts: what workers run, as against the orchestrator's own tasks."""
    return [task for task in state.tasks if task.task_type not in OWN]


def attempts_of(orchestrator: Orchestrator, state: WorkflowState) -> list[LoggedAttempt]:
    """Every attempt with its task log."""
    return [read_attempt(orchestrator, task) for task in worker_tasks(state)]


def read_attempt(orchestrator: Orchestrator, task: TaskState) -> LoggedAttempt:
    """One attempt with its task log."""
    # What nobody has begun has no log, and costs no call.
    lines, records = read_log(orchestrator.task_log(task.task_id) if task.started is not None else ())
    return LoggedAttempt(task, lines, records)


def read_log(log: Sequence[LogLine]) -> tuple[list[LogLine], list[AttemptRecord]]:
    """What a body printed and logged, and the records of its executions."""
    lines, records = list[LogLine](), list[AttemptRecord]()
    for line in log:
        record = parse_record(line.text)
        if record is None:
            lines.append(line)
        else:
            records.append(record)
    return lines, records


def by_step(attempts: Sequence[LoggedAttempt]) -> dict[str, list[LoggedAttempt]]:
    """The attempts of each step, by its reference, in the order in which the steps came up."""
    steps: dict[str, list[LoggedAttempt]] = {}
    for attempt in attempts:
        steps.setdefault(attempt.task.reference, []).append(attempt)
    return steps


def seconds_of(task: TaskState, now: float | None = None) -> float | None:
    """How long it took from its poll to its end, or has taken until `now`; None where that is not known."""
    end = task.ended if task.ended is not None else now
    return None if task.started is None or end is None else max(0.0, end - task.started)


class ReadOnlyBackend(Protocol):
    """Servers whose orchestrator can be looked at."""

    @property
    def settings(self) -> Settings:
        """The settings that they are found by."""

    @property
    def embedded(self) -> bool:
        """Whether they are the embedded ones."""

    def of_run(self, run_id: str) -> ReadOnlyBackend:
        """The same, with the orchestrator of a run."""

    def open_read_only(self) -> Orchestrator | None:
        """The orchestrator as it stands, if there is one."""


@dataclass(frozen=True, slots=True)
class RunHandle:
    """A workflow to look at, and the run that it belongs to, if a `perago run` of this root started it."""

    servers: ReadOnlyBackend
    workflow_id: str
    run: Run | None = None

    @property
    def id(self) -> str:
        """What it is called here."""
        return self.run.id if self.run else self.workflow_id

    @property
    def log(self) -> Path | None:
        """The run's log, if it has one."""
        path = log_file(self.servers.settings.root, self.run.id) if self.run else None
        return path if path is not None and path.is_file() else None

    @property
    def going_on(self) -> bool:
        """Whether somebody may drive it: its own process, or for a workflow without one any worker."""
        root = self.servers.settings.root
        return self.run is None or is_running(runs_folder(root) / self.run.id)

    def open(self) -> Orchestrator:
        """Its orchestrator, to be closed afterwards."""
        opened = self.servers.open_read_only()
        if opened is None:
            raise RuntimeConfigError(f"{self.id} has no state any more below {self.servers.settings.root}")
        return opened

    def resume(self, state: WorkflowState) -> str:
        """The command that goes on with it, where its process died, or was told to stop, before its end."""
        if self.run is None or not state.running or self.going_on:
            return ""
        return resume_command(self.run, self.servers.settings.root)


def find(servers: ReadOnlyBackend, name: str | None) -> RunHandle:
    """The run or workflow of that id, or the newest run on these servers."""
    if name is not None and (own := _own_run(servers, name)) is not None:
        return _of_run(servers, own)
    runs = all_runs(servers.settings.root)
    if name is None:
        # Where the newest one is on Conductor, it is not passed over for an older one: that is told.
        return _newest(servers, [run for run in runs if servers.embedded or not run.embedded])
    for run in runs:
        if name in (run.id, run.workflow_id):
            return _of_run(servers, run)
    if not servers.embedded or _knows(servers, name):
        return RunHandle(servers, name)
    hint = did_you_mean(
        name, [run.id for run in runs], otherwise="; `perago runs` lists those that there are"
    )
    raise RuntimeConfigError(f"no run {name!r} below {servers.settings.root}{hint}")


def attempts_at(servers: ReadOnlyBackend, state: WorkflowState) -> Sequence[LoggedAttempt]:
    """Every attempt of a workflow with its log."""
    orchestrator = servers.open_read_only()
    if orchestrator is None:
        return []
    with closing(orchestrator):
        return attempts_of(orchestrator, state)


def _own_run(servers: ReadOnlyBackend, name: str) -> Run | None:
    """The run of that very id, without a look at the others."""
    root = servers.settings.root
    try:
        return find_run(root, name) if (runs_folder(root) / name / RECORD).is_file() else None
    except (OSError, ValueError, RuntimeConfigError):
        return None


def _newest(servers: ReadOnlyBackend, runs: Sequence[Run]) -> RunHandle:
    if runs:
        return _of_run(servers, runs[0])
    if servers.embedded:
        raise RuntimeConfigError(
            f"there is no run below {servers.settings.root}: start one with `perago run`, or give its --root"
        )
    raise RuntimeConfigError("give a workflow's id; `perago runs --remote` lists the newest")


def _of_run(servers: ReadOnlyBackend, run: Run) -> RunHandle:
    if run.embedded != servers.embedded:
        where = "on the embedded servers: leave out --remote"
        if not run.embedded:
            where = f"on Conductor: give --remote {run.workflow_id}"
        raise RuntimeConfigError(f"run {run.id} is {where}")
    return RunHandle(servers.of_run(run.id), run.workflow_id, run)


def _knows(servers: ReadOnlyBackend, workflow_id: str) -> bool:
    """Whether the orchestrator of `perago start --local` has that workflow."""
    orchestrator = servers.open_read_only()
    if orchestrator is None:
        return False
    with closing(orchestrator):
        try:
            orchestrator.workflow(workflow_id)
        except OrchestratorNotFound:
            return False
        return True
