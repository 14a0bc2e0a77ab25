"""Inspects finished, running and stopped runs: their attempts, logs and execution records.

Inspecting changes nothing: it creates no file, times nothing out and calls no server that the user did not select.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from perago.errors import OrchestratorNotFound, RuntimeConfigError
from perago.orchestrator.base import LogLine, Orchestrator, TaskState, WorkflowState
from perago.protocol.attempt_record import AttemptRecord, parse_record
from perago.protocol.provenance import is_packages_line, read_packages
from perago.protocol.suggestions import did_you_mean
from perago.runtime.root.spark_uis import spark_uis
from perago.runtime.runs.record import (
    RECORD,
    Run,
    all_runs,
    complete_id,
    find_run,
    is_running,
    log_file,
    map_named,
    resume_command,
    runs_folder,
    state_is_gone,
)
from perago.settings import Settings
from perago.workflow.model.step_types import OWN

OPEN = frozenset({"SCHEDULED", "IN_PROGRESS"})
STOPPED = "STOPPED"
"""The status of a run whose process is gone although its workflow has not ended.  It can be resumed."""
MOST_LISTED = 200
"""The number of workflows, newest first, among which the beginning of an id is looked up."""
_WHOLE_ID = 36
"""The length of a workflow's id.  A name that long is not looked up as a beginning."""


@dataclass(frozen=True, slots=True)
class LoggedAttempt:
    """One attempt of a step.  If it was delivered twice, it has the records of both executions."""

    task: TaskState
    lines: Sequence[LogLine] = ()
    """The body's output and logs, without the execution records."""
    records: Sequence[AttemptRecord] = ()
    packages: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The lists of installed distributions in its log, by digest.  Usually only one attempt of a workflow has one."""

    @property
    def record(self) -> AttemptRecord | None:
        """The record of the newest execution, which ended the attempt; None if there is none."""
        return self.records[-1] if self.records else None


def worker_tasks(state: WorkflowState) -> list[TaskState]:
    """Return the tasks that workers run, not those that the orchestrator runs itself."""
    return [task for task in state.tasks if task.task_type not in OWN]


def attempts_of(orchestrator: Orchestrator, state: WorkflowState) -> list[LoggedAttempt]:
    """Return every attempt with its task log."""
    return [read_attempt(orchestrator, task) for task in worker_tasks(state)]


def read_attempt(orchestrator: Orchestrator, task: TaskState) -> LoggedAttempt:
    """Return one attempt with its task log."""
    # An attempt that has not started has no log, so skip the call.
    log = orchestrator.task_log(task.task_id) if task.started is not None else ()
    lines, records = read_log(log)
    return LoggedAttempt(task, lines, records, read_packages(line.text for line in log))


def read_log(log: Sequence[LogLine]) -> tuple[list[LogLine], list[AttemptRecord]]:
    """Split a task's log into the body's lines and the records of its executions.

    The lines that list the installed distributions are in neither.
    """
    lines, records = list[LogLine](), list[AttemptRecord]()
    for line in log:
        record = parse_record(line.text)
        if record is not None:
            records.append(record)
        elif not is_packages_line(line.text):
            lines.append(line)
    return lines, records


def spark_uis_of(found: RunHandle, state: WorkflowState) -> dict[str, str]:
    """Return the addresses of the Spark UIs that show this workflow's attempts and can be opened now, by task id."""
    own = {task.task_id for task in state.tasks}
    uis = spark_uis(found.servers.settings.root)
    return {task_id: address for task_id, address in uis.items() if task_id in own}


def by_step(attempts: Sequence[LoggedAttempt]) -> dict[str, list[LoggedAttempt]]:
    """Group attempts by step reference, in the order in which the steps started."""
    steps: dict[str, list[LoggedAttempt]] = {}
    for attempt in attempts:
        steps.setdefault(attempt.task.reference, []).append(attempt)
    return steps


def seconds_of(task: TaskState, now: float | None = None) -> float | None:
    """Return the seconds from the task's poll to its end, or to `now` if it is still running; None if unknown."""
    end = task.ended if task.ended is not None else now
    return None if task.started is None or end is None else max(0.0, end - task.started)


class ReadOnlyBackend(Protocol):
    """Servers whose orchestrator can be opened read-only."""

    @property
    def settings(self) -> Settings:
        """The settings, which include the servers' addresses."""

    @property
    def embedded(self) -> bool:
        """True if these are the embedded servers."""

    def of_run(self, run_id: str) -> ReadOnlyBackend:
        """Return the same servers, but with the orchestrator of this run."""

    def open_read_only(self) -> Orchestrator | None:
        """Open the orchestrator read-only.  Returns None if it does not exist."""


@dataclass(frozen=True, slots=True)
class RunHandle:
    """A workflow to inspect, and its run if it was started by `perago run` with this root."""

    servers: ReadOnlyBackend
    workflow_id: str
    run: Run | None = None

    @property
    def id(self) -> str:
        """The run's id or, if there is no run, the workflow's id."""
        return self.run.id if self.run else self.workflow_id

    @property
    def log(self) -> Path | None:
        """The path of the run's log, or None if there is none."""
        path = log_file(self.servers.settings.root, self.run.id) if self.run else None
        return path if path is not None and path.is_file() else None

    @property
    def may_progress(self) -> bool:
        """True if the workflow may make progress: in the run's own process or, if it has no run, on any worker."""
        root = self.servers.settings.root
        return self.run is None or is_running(runs_folder(root) / self.run.id)

    def open(self) -> Orchestrator:
        """Open the workflow's orchestrator.  The caller must close it.

        Raises `RuntimeConfigError` if the orchestrator's state no longer exists.
        """
        opened = self.servers.open_read_only()
        if opened is None:
            raise RuntimeConfigError(state_is_gone(self.id, self.servers.settings.root))
        return opened

    def input(self, state: WorkflowState) -> Mapping[str, Any]:
        """Return the input that the run works on.  A run that started at a step works on branches of its own."""
        own = self.run.input if self.run is not None and self.run.from_run else None
        return state.input if own is None else own

    def status(self, state: WorkflowState) -> str:
        """Return the run's status: the workflow's, or STOPPED if the run's process is gone before the workflow's end."""
        return STOPPED if self.resume(state) else state.status

    def resume(self, state: WorkflowState) -> str:
        """Return the command that resumes an interrupted run, or an empty string."""
        if self.run is None or not state.running or self.may_progress:
            return ""
        return resume_command(self.run, self.servers.settings.root)


def find(servers: ReadOnlyBackend, name: str | None) -> RunHandle:
    """Find a run or workflow by id, or the newest run on these servers if no name is given.

    A unique beginning of an id is enough.  Raises `RuntimeConfigError` if there is none, or if several begin with it.
    """
    if name is not None and (own := _own_run(servers, name)) is not None:
        return _of_run(servers, own)
    if name is not None and (mapped := map_named(servers.settings.root, name)) is not None:
        raise RuntimeConfigError(
            f"{mapped.id} is a map, without a workflow; continue it with `{mapped.resume}`"
        )
    runs = all_runs(servers.settings.root)
    if name is None:
        # If the newest run is on Conductor, raise an error about it instead of falling back to an older one.
        return _newest(servers, [run for run in runs if servers.embedded or not run.embedded])
    known = {run.id: run for run in runs} | {run.workflow_id: run for run in runs}
    if name in known:
        return _of_run(servers, known[name])
    if not servers.embedded and len(name) >= _WHOLE_ID:
        return RunHandle(servers, name)
    # Runs on other servers come last: their ids must not make a beginning ambiguous.
    here = {one for one, run in known.items() if run.embedded == servers.embedded}
    found = complete_id(name, {*here, *_workflow_ids(servers, name)}) or complete_id(name, known)
    if found is not None:
        return _of_run(servers, known[found]) if found in known else RunHandle(servers, found)
    hint = did_you_mean(name, [run.id for run in runs], otherwise="; `perago runs` lists them")
    if not servers.embedded:
        raise RuntimeConfigError(
            f"no workflow {name!r} among the newest {MOST_LISTED} on Conductor; give a whole id, `perago runs --remote` "
            "lists them"
        )
    raise RuntimeConfigError(f"no run {name!r} below {servers.settings.root}{hint}")


def attempts_at(servers: ReadOnlyBackend, state: WorkflowState) -> Sequence[LoggedAttempt]:
    """Return every attempt of a workflow with its log."""
    orchestrator = servers.open_read_only()
    if orchestrator is None:
        return []
    with closing(orchestrator):
        return attempts_of(orchestrator, state)


def _own_run(servers: ReadOnlyBackend, name: str) -> Run | None:
    """Return the run with that id, or None if there is none.  Does not read the other runs."""
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


def _workflow_ids(servers: ReadOnlyBackend, name: str) -> list[str]:
    """Return the ids of workflows that may be meant: the one with that id or, if there is none, the newest ones."""
    orchestrator = servers.open_read_only()
    if orchestrator is None:
        return []
    with closing(orchestrator):
        try:
            return [orchestrator.workflow(name).id]
        except OrchestratorNotFound:
            return [one.id for one in orchestrator.workflows(MOST_LISTED)]
