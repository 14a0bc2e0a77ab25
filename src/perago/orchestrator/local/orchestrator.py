"""The embedded orchestrator: Conductor's workflows on one machine, in one SQLite file, without a server.

It follows the port's rules, and for everything it supports it behaves like Conductor, task by task
(docs/embedded-orchestrator.md).  Nothing runs in the background: timeouts are applied by the next call, using the
clock that was passed in.  Several processes and threads may use the same file.
"""

from __future__ import annotations

import json
import random as random_numbers
import sqlite3
import time
import uuid
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from perago.errors import OrchestratorError, OrchestratorNotFound, OrchestratorRefused, RuntimeConfigError
from perago.orchestrator.base import (
    NO_LIMITS,
    Assignment,
    Json,
    LogLine,
    RetryLimits,
    WorkflowState,
    WorkflowSummary,
)
from perago.orchestrator.local.decider import decide, end_run
from perago.orchestrator.local.parse import parse_workflow
from perago.orchestrator.local.persistence import (
    definition_of,
    due_runs,
    find_workflow,
    insert_run,
    load_run,
    load_task,
    log_lines,
    parse_rules,
    registered_taskdefs,
    renew_taskdefs,
    save_run,
    save_task,
    summaries,
    workflow_body,
    workflow_state,
    workflow_versions,
)
from perago.orchestrator.local.queue import any_waiting, take
from perago.orchestrator.local.resume import (
    Branches,
    Recording,
    recording_of,
    replace_orphans,
    retry_run,
    start_from,
)
from perago.orchestrator.local.state import PAUSED, RUNNING, Env, Run, milliseconds
from perago.orchestrator.local.step_handlers import is_system
from perago.orchestrator.local.store import Store, dump_json
from perago.orchestrator.local.taskdef import TaskRules, deadline, parse_taskdef
from perago.protocol.attempt import IN_PROGRESS, Attempt, AttemptSnapshot
from perago.protocol.attempt_record import MOST_BYTES
from perago.protocol.outcome import Outcome

_POLL_STEP_SECONDS = 0.01
_LOG_LINES = 2000
# Long enough for an execution's record, the longest line that Perago itself writes.
_LOG_LINE_CHARACTERS = MOST_BYTES


class LocalOrchestrator:
    """Implements the orchestrator port on a SQLite file."""

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        random: Callable[[], float] = random_numbers.random,
        limits: RetryLimits = NO_LIMITS,
        file_of: Callable[[str], Path | None] = lambda _workflow_id: None,
        read_only: bool = False,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._new_id = new_id
        self._random = random
        self._limits = limits
        self._file_of = file_of
        self._path = Path(path).resolve()
        self._store = Store(Path(path), sleep=sleep, read_only=read_only)

    @property
    def address(self) -> str:
        """The path of the SQLite file, with the prefix `embedded:`."""
        return f"embedded:{self._path}"

    def server(self) -> str:
        """Return the kind of orchestrator and its file."""
        return f"embedded orchestrator in {self._path}"

    # Tasks: the calls that a worker makes.

    def poll(
        self, task_name: str, *, worker_id: str, count: int, wait_seconds: float
    ) -> Sequence[Assignment]:
        """Take up to `count` tasks, waiting up to `wait_seconds` for the first one."""
        waited = 0.0
        while True:
            taken = self._take(task_name, worker_id, count)
            if taken or waited >= wait_seconds:
                return taken
            step = min(_POLL_STEP_SECONDS, wait_seconds - waited)
            self._sleep(step)
            waited += step

    def queued_task_names(self, task_names: Sequence[str]) -> Sequence[str]:
        """Return all the names, because in this orchestrator a poll that finds nothing costs no more than a check."""
        return task_names

    def current(self, attempt: Attempt) -> AttemptSnapshot:
        """Return the current state of the attempt's task, which may be in the file of another run below the same root."""
        self._expire_lease(attempt.task_id)
        try:
            with self._store.reading() as connection:
                task, _ = load_task(connection, attempt.task_id)
        except OrchestratorNotFound as missing:
            file = self._file_of(attempt.workflow_instance_id)
            if file is None or not file.is_file() or file.resolve() == self._path:
                raise
            try:
                with closing(LocalOrchestrator(file, clock=lambda: 0.0, read_only=True)) as other:
                    return other.current(attempt)
            except (OrchestratorError, RuntimeConfigError):
                raise missing from None
        return AttemptSnapshot(
            task.status,
            task.run_id,
            task.id,
            task.retry_count,
            milliseconds(task.scheduled),
            task.worker_id or "",
        )

    def complete(self, attempt: Attempt, outcome: Outcome, *, worker_id: str) -> bool:
        """Store the result and return whether it was accepted.  Only a task in progress accepts a result."""
        if not outcome.send or outcome.status not in {"COMPLETED", "FAILED", "FAILED_WITH_TERMINAL_ERROR"}:
            raise OrchestratorRefused(f"{outcome.status} is not a result to send for task {attempt.task_id}")
        self._expire_lease(attempt.task_id)
        with self._store.writing() as connection:
            found, _ = load_task(connection, attempt.task_id)
            if found.status != IN_PROGRESS or is_system(found):
                return False
            run = load_run(connection, found.run_id)
            useless = outcome.final and self._limits.stop_if_useless
            env = replace(self._env(), useless=attempt.task_id if useless else "")
            for task in run.tasks:
                if task.id == attempt.task_id:
                    task.output = dict(outcome.output or {})
                    task.reason = outcome.reason
                    task.worker_id = worker_id
                    task.end(outcome.status, env.now)
            decide(run, env)
            save_run(connection, run)
        return True

    def extend_lease(self, attempt: Attempt, *, worker_id: str) -> None:
        """Renew the task's lease.  This is a no-op for a finished task."""
        with self._store.writing() as connection:
            task, rules = load_task(connection, attempt.task_id)
            if task.status == IN_PROGRESS:
                task.updated = self._clock()
                connection.execute(
                    "UPDATE task SET updated = ?, deadline = ? WHERE id = ?",
                    (task.updated, deadline(task, rules), task.id),
                )

    def may_be_overwritten(self, attempt: Attempt, *, left_behind: bool) -> bool:
        """Return False: every update is one transaction, so no earlier update can still overwrite a result."""
        del attempt, left_behind
        return False

    def log(self, attempt: Attempt, lines: Sequence[str]) -> None:
        """Append lines to the task's log, which keeps the newest 2000.  Each line is truncated to 4096 characters."""
        now = self._clock()
        with self._store.writing() as connection:
            connection.executemany(
                "INSERT INTO task_log (task_id, at, line) VALUES (?, ?, ?)",
                [(attempt.task_id, now, line[:_LOG_LINE_CHARACTERS]) for line in lines],
            )
            connection.execute(
                "DELETE FROM task_log WHERE task_id = :id AND number <= (SELECT number FROM task_log "
                "WHERE task_id = :id ORDER BY number DESC LIMIT 1 OFFSET :kept)",
                {"id": attempt.task_id, "kept": _LOG_LINES},
            )

    def task_log(self, task_id: str) -> Sequence[LogLine]:
        """Return the lines in a task's log, oldest first."""
        with self._store.reading() as connection:
            return log_lines(connection, task_id)

    # Definitions.

    def taskdef(self, name: str) -> Json | None:
        """Return the registered TaskDef, or None."""
        with self._store.reading() as connection:
            row = connection.execute("SELECT body FROM taskdef WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def register_taskdefs(self, definitions: Sequence[Json]) -> None:
        """Create or update TaskDefs, all of them or none."""
        bodies = [(parse_taskdef(one).name, dump_json(one, "the TaskDef")) for one in definitions]
        with self._store.writing() as connection:
            connection.executemany("INSERT OR REPLACE INTO taskdef VALUES (?, ?)", bodies)

    def register_workflow(self, definition: Json) -> None:
        """Create or update a workflow definition.

        Raises `OrchestratorRefused`, listing everything in the definition that this orchestrator cannot run.
        """
        body = dump_json(definition, "the workflow definition")
        parsed = parse_workflow(body)
        with self._store.writing() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO workflow_def VALUES (?, ?, ?)", (parsed.name, parsed.version, body)
            )

    def workflow_definition(self, name: str, version: int | None = None) -> Json | None:
        """Return the registered workflow definition exactly as it was sent, or None."""
        with self._store.reading() as connection:
            body = find_workflow(connection, name, version)
        return None if body is None else json.loads(body)

    def workflow_versions(self) -> Mapping[str, Sequence[int]]:
        """Return a mapping from the name of every registered workflow to its versions."""
        with self._store.reading() as connection:
            return workflow_versions(connection)

    # Workflows.

    def start_workflow(self, name: str, *, version: int | None = None, input: Json) -> str:
        """Start a workflow, by default in its newest version, and return the new run's id."""
        with self._store.writing() as connection:
            body = workflow_body(connection, name, version)
            definition = parse_workflow(body)
            taskdefs = registered_taskdefs(connection, definition)
            env = self._env()
            # As in Conductor, a non-empty input is completed from the template, but an empty one is not.
            filled = {**definition.input_template, **input} if input else {}
            run = Run(env.new_id(), definition, parse_rules(taskdefs), filled, env.now)
            insert_run(connection, run, body, taskdefs)
            decide(run, env)
            save_run(connection, run)
        return run.id

    def recording(self, workflow_id: str, reference: str) -> Recording:
        """Return the recorded tasks of a workflow, divided into those before a step and the rest.

        A new workflow can then start at that step.
        """
        with self._store.reading() as connection:
            return recording_of(connection, workflow_id, reference)

    def start_from(self, recorded: Recording, branches: Branches) -> str:
        """Start a new workflow at the recording's step, and return its id.

        `branches` replaces the branches that the recorded workflow worked on.
        """
        with self._store.writing() as connection:
            return start_from(connection, recorded, branches, self._env())

    def workflow(self, workflow_id: str) -> WorkflowState:
        """Return the current state of the workflow."""
        self.tick()
        with self._store.reading() as connection:
            return workflow_state(load_run(connection, workflow_id), definition_of(connection, workflow_id))

    def workflows(self, count: int, *, start: int = 0) -> Sequence[WorkflowSummary]:
        """Return up to `count` workflows, newest first, skipping the first `start`."""
        with self._store.reading() as connection:
            return summaries(connection, count, start)

    def retry_workflow(self, workflow_id: str) -> None:
        """Resume a failed workflow, with the TaskDefs it was started with."""
        with self._store.writing() as connection:
            run = load_run(connection, workflow_id)
            retry_run(run, self._env())
            save_run(connection, run)

    def take_over(self, workflow_id: str, reason: str) -> None:
        """Retry the tasks that a dead process was running, and switch the workflow to the TaskDefs registered now."""
        with self._store.writing() as connection:
            run = load_run(connection, workflow_id)
            renew_taskdefs(connection, run)
            replace_orphans(run, reason, self._env())
            save_run(connection, run)

    def pause_workflow(self, workflow_id: str) -> None:
        """Schedule no more steps of a running workflow: `decide` leaves a run that is not RUNNING alone."""
        with self._changing(workflow_id, "pause", {RUNNING}) as run:
            run.status = PAUSED

    def resume_workflow(self, workflow_id: str) -> None:
        """Continue a paused workflow.  As in Conductor, its own timeout starts again."""
        with self._changing(workflow_id, "resume", {PAUSED}) as run:
            run.status, run.retried_at = RUNNING, self._clock()
            decide(run, self._env())

    def terminate_workflow(self, workflow_id: str, reason: str) -> None:
        """End a workflow with the status TERMINATED."""
        with self._changing(workflow_id, "terminate", {RUNNING, PAUSED}) as run:
            end_run(run, "TERMINATED", reason, self._env())

    # Time.

    def tick(self) -> None:
        """Apply every timeout that is due."""
        now = self._clock()
        with self._store.reading() as connection:
            due = due_runs(connection, now)
        if due:
            with self._store.writing() as connection:
                self._decide(connection, due)

    def time_out_in_progress(self, reason: str) -> Sequence[str]:
        """Time out every task in progress, because the workers are known to be dead.  Returns the task ids.

        Each counts as a failed attempt, and is retried according to its TaskDef.
        """
        with self._store.writing() as connection:
            rows = connection.execute("SELECT id FROM task WHERE status = 'IN_PROGRESS'").fetchall()
            dead = [task for row in rows if not is_system(task := load_task(connection, row[0])[0])]
            now = self._clock()
            for task in dead:
                task.end("TIMED_OUT", now, reason)
                save_task(connection, task, TaskRules(task.name))
            self._decide(connection, dict.fromkeys(task.run_id for task in dead))
        return [task.id for task in dead]

    def requeue(self, task_id: str) -> None:
        """Put a task in progress back into its queue under the same id, so that another poll takes it too.

        For tests: the attempt then has two executions.  Conductor does this on a plain IN_PROGRESS update, and
        sometimes for no apparent reason.
        """
        with self._store.writing() as connection:
            task, rules = load_task(connection, task_id)
            if task.status != IN_PROGRESS:
                raise OrchestratorRefused(f"task {task_id} is {task.status}, not in progress")
            task.status = "SCHEDULED"
            task.available = task.updated = self._clock()
            save_task(connection, task, rules)

    def close(self) -> None:
        """Close the connection."""
        self._store.close()

    # Internals.

    @contextmanager
    def _changing(self, workflow_id: str, verb: str, statuses: Container[str]) -> Iterator[Run]:
        """Yield a run to change.  Raises `OrchestratorRefused` unless it has one of the statuses."""
        self.tick()
        with self._store.writing() as connection:
            run = load_run(connection, workflow_id)
            if run.status not in statuses:
                raise OrchestratorRefused(f"cannot {verb} the workflow {workflow_id}: it is {run.status}")
            run.changed = True
            yield run
            save_run(connection, run)

    def _take(self, name: str, worker_id: str, count: int) -> list[Assignment]:
        self.tick()
        with self._store.reading() as connection:
            # First check without the write lock: most polls find nothing, and they must not block other processes.
            if count <= 0 or not any_waiting(connection, name, self._clock()):
                return []
        with self._store.writing() as connection:
            return take(connection, name, worker_id=worker_id, count=count, now=self._clock())

    def _expire_lease(self, task_id: str) -> None:
        """Apply the task's timeout if it is due."""
        with self._store.reading() as connection:
            row = connection.execute(
                "SELECT run_id FROM task WHERE id = ? AND deadline <= ?", (task_id, self._clock())
            ).fetchone()
        if row is not None:
            with self._store.writing() as connection:
                self._decide(connection, [row[0]])

    def _decide(self, connection: sqlite3.Connection, run_ids: Iterable[str]) -> None:
        env = self._env()
        for run_id in run_ids:
            run = load_run(connection, run_id)
            decide(run, env)
            save_run(connection, run)

    def _env(self) -> Env:
        return Env(self._clock(), self._new_id, self._random, self._limits)
