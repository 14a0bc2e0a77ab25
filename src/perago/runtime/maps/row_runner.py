"""Runs rows of a map inside an engine's executor process, each as a transaction like those in a worker's executor.

    claim the row → transaction (fences read the record) → record the result → drop the claim → [retry, if any left]

The run's record takes the place of an orchestrator.  An attempt of a row is one slot in the record: `current` serves
the attempt fence and `complete` stores the result.  Both use the lake, wherever the execution runs.  The scheduled
times that order a row's attempts are derived from their slots, never from a clock, since machines disagree on the time.

One runner serves all rows in a process.  It opens the lake for the first row, because engines fork their processes and
clients do not survive a fork.  Later rows use the same clients.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from perago.declare.code_origin import remember_code
from perago.declare.discovery import load_tasks
from perago.declare.task import TaskDefinition
from perago.declare.user_code import user_code
from perago.errors import (
    LakeError,
    LakeNotFound,
    OrchestratorError,
    OrchestratorNotFound,
    OrchestratorUnavailable,
    RuntimeConfigError,
    TaskInputError,
)
from perago.lake.base import Lake
from perago.orchestrator.base import Assignment, WorkflowState
from perago.protocol.attempt import IN_PROGRESS, Attempt, AttemptSnapshot
from perago.protocol.outcome import Outcome, WrongInput, classify, describe, prepare_for_sending
from perago.protocol.paths import in_actions
from perago.runtime.attempt.context import AttemptContext, ask_until_answered
from perago.runtime.attempt.delivery import deliver, give_up_on
from perago.runtime.attempt.run_steps import new_transaction
from perago.runtime.execution_result import ExecutionResult, pending_result_of
from perago.runtime.maps.plan import MapPlan, outcome_of
from perago.runtime.maps.record import Ended, MapRecord, RowClaim
from perago.runtime.maps.row_claims import RowClaims, why_no_start
from perago.runtime.maps.rows import Row, RowOutcome, input_of, unsettled
from perago.runtime.observe.logs import attempt_logs, logging_to
from perago.runtime.observe.sanitize import Masker, secrets_of
from perago.runtime.root.state_dir import new_execution_id

log = logging.getLogger("perago.map")

OVER_STATUS = "CANCELED"
OVERLAPPING = 4
LONGEST_PAUSE = 5.0
"""Maximum delay in seconds between two tries of a row.  The delay occupies one of the engine's executors."""
_WRONG_INPUT: WrongInput = "terminal"
"""Invalid input is a terminal error, because every try of a row has the same input and the same code."""
_TASK = re.compile(r"((?:map|backfill)-[0-9a-z-]+)-row(\d+)-(\d+)")


def attempt_of(run: str, started: int, task_name: str, claim: RowClaim) -> Attempt:
    """Return the attempt for a claim.  `started` is the start of the run, in milliseconds since 1970."""
    return Attempt(
        workflow_instance_id=run,
        task_id=f"{run}-row{claim.row}-{claim.slot}",
        reference_task_name=f"row_{claim.row}",
        task_name=task_name,
        retry_count=claim.attempts - 1,
        seq=claim.row,
        iteration=0,
        scheduled_time=started + claim.slot,
    )


@dataclass(frozen=True, slots=True)
class RowOrchestrator:
    """Takes the orchestrator's place for one execution of one row.  `result` is set once the execution has ended."""

    record: MapRecord
    row: Row
    claim: RowClaim
    result: ExecutionResult | None = None
    steps: Callable[[str], WorkflowState] | None = None
    """Returns the run that the row publishes, if it is the last row of a backfill that is one transaction."""

    def current(self, attempt: Attempt) -> AttemptSnapshot:
        """Return the attempt's state: in progress as long as its claim is the row's last slot."""
        if not attempt.task_id.endswith(f"-row{self.claim.row}-{self.claim.slot}"):
            raise OrchestratorNotFound(f"task {attempt.task_id} is not this execution's")
        with _translating_lake_errors(self.record.run):
            current = self.record.is_last(self.claim)
        return AttemptSnapshot(
            IN_PROGRESS if current else OVER_STATUS,
            attempt.workflow_instance_id,
            attempt.task_id,
            attempt.retry_count,
            attempt.scheduled_time,
        )

    def workflow(self, workflow_id: str) -> WorkflowState:
        """Return the run that the row publishes.  Raises `OrchestratorNotFound` for any other row."""
        if self.steps is not None and workflow_id == self.record.run:
            with _translating_lake_errors(self.record.run):
                return self.steps(workflow_id)
        raise OrchestratorNotFound(f"a map runs no workflow {workflow_id}")

    def complete(self, attempt: Attempt, outcome: Outcome, *, worker_id: str) -> bool:
        """Record the outcome, waiting while the lake is unavailable.

        Returns False if another execution has claimed the row.
        """
        return ask_until_answered(partial(self._add, self.ended(outcome)))

    def ended(self, outcome: Outcome) -> Ended:
        """Return the outcome as a slot to be added to the record."""
        result = self.result or ExecutionResult(outcome)
        return Ended(self.claim, outcome_of(self.row, self.claim, outcome, result), result.refused)

    def _add(self, ended: Ended) -> bool:
        with _translating_lake_errors(self.record.run):
            return self.record.add(ended)


class MapRows:
    """Finds the attempts of all map runs in a lake, to decide whether the attempt that left a branch behind has ended."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def current(self, attempt: Attempt) -> AttemptSnapshot:
        """Return the attempt's state.

        Raises `OrchestratorNotFound` if the attempt is not a row of a map, or if its record is gone.
        """
        match = _TASK.fullmatch(attempt.task_id)
        if match is None:
            raise OrchestratorNotFound(f"task {attempt.task_id} is not a row of a map")
        run, row, slot = match[1], int(match[2]), int(match[3])
        with _translating_lake_errors(run):
            last = MapRecord(self._lake, run).last(row)
        if last is None:
            raise OrchestratorNotFound(f"the record of {run} has no row {row}")
        current = isinstance(last, RowClaim) and last.slot == slot
        return AttemptSnapshot(
            IN_PROGRESS if current else OVER_STATUS, run, attempt.task_id, attempt.retry_count, 0
        )

    def workflow(self, workflow_id: str) -> WorkflowState:
        """Raise `OrchestratorNotFound`, because a map runs no workflow."""
        raise OrchestratorNotFound(f"a map runs no workflow {workflow_id}")


@contextmanager
def _translating_lake_errors(run: str) -> Iterator[None]:
    """Translate lake errors to orchestrator errors, since the record takes the orchestrator's place."""
    try:
        yield
    except LakeNotFound as gone:
        raise OrchestratorNotFound(f"the record of {run} is gone: {gone}") from gone
    except LakeError as error:
        raise OrchestratorUnavailable(f"the record of {run} does not answer: {error}") from error


@dataclass(slots=True)
class RowRunner:
    """Runs rows of one map in this process, one after another."""

    plan: MapPlan
    task: TaskDefinition
    lake: Lake
    workdirs: Path
    overlapping: ThreadPoolExecutor
    execution_id: Callable[[], str] = new_execution_id
    sleep: Callable[[float], None] = time.sleep
    observe: Callable[[str], None] = lambda _step: None
    workflow: Callable[[str], WorkflowState] | None = None
    """Returns the run that a row publishes, if its task is the built-in one that does that."""
    _mask: Masker = field(init=False)
    _claims: RowClaims = field(init=False)

    def __post_init__(self) -> None:
        self._mask = Masker(secrets_of(self.plan.lake.settings))
        record = MapRecord(self.lake, self.plan.run)
        self._claims = RowClaims(self.lake, record, self.plan, self.execution_id, self._sees_the_same)

    def run(self, row: Row) -> RowOutcome:
        """Run a row until it ends.  The returned outcome is in the record, unless it is UNSETTLED."""
        try:
            claim_or_outcome = self._claims.claim(row)
            while isinstance(claim_or_outcome, RowClaim):
                ended = self._execute(row, claim_or_outcome)
                if ended is None:
                    return self._current_outcome(row)
                claim_or_outcome = self._next_claim(row, ended)
        except (LakeError, OrchestratorError) as error:
            return unsettled(row, self._mask(f"no outcome yet: {error}"))
        return claim_or_outcome

    def _next_claim(self, row: Row, ended: Ended) -> RowClaim | RowOutcome:
        retried = ended.outcome.status == "FAILED" and ended.claim.tries <= self.plan.retries
        if retried:
            policy = self.task.controls.retry
            self.sleep(min(float(policy.delay_seconds), LONGEST_PAUSE))
            return self._claims.reclaim(row, ended)
        return ended.outcome

    def _current_outcome(self, row: Row) -> RowOutcome:
        """Return the outcome of a row that another execution has claimed.

        The outcome is UNSETTLED if that execution has not ended.
        """
        last = self._claims.record.last(row.number)
        if isinstance(last, Ended):
            return last.outcome
        return unsettled(row, "another execution has taken the row", attempts=last.attempts if last else 0)

    def _execute(self, row: Row, claim: RowClaim) -> Ended | None:
        """Execute the row once.

        Returns None if no result was recorded, for example because another execution has claimed the row.
        """
        owner = RowOrchestrator(self._claims.record, row, claim, steps=self.workflow)
        attempt = attempt_of(self.plan.run, self.plan.started, self.task.name, claim)
        if (early := self._early_failure(row, claim)) is not None:
            accepted = owner.complete(attempt, early, worker_id=claim.execution)
            return owner.ended(early) if accepted else None
        recorded: list[Ended] = []
        assignment = Assignment(attempt, input_of(row, claim.ref))

        def hand_over(result: ExecutionResult) -> None:
            pending = pending_result_of(claim.execution, assignment, result)
            pending = replace(pending, outcome=self._sendable(result.outcome))
            if not pending.outcome.send:
                give_up_on(self.lake, pending, pending.outcome.reason or "")
                return
            ending = replace(owner, result=result)
            if deliver(ending, self.lake, pending, worker_id=claim.execution).accepted:
                recorded.append(ending.ended(pending.outcome))

        with attempt_logs(attempt, claim.execution, everywhere=True):
            context = self._context(owner, attempt.reference_task_name)
            new_transaction(self.task, assignment, claim.execution, context).run(hand_over)
        return recorded[0] if recorded else None

    def _sees_the_same(self, row: Row, ref: str) -> bool:
        """Return whether everything that the row sees is at a commit as it is at the row's ref."""
        spec = self.task.workspace
        assert spec is not None  # noqa: S101 - a map's task has a workspace
        try:
            with user_code("the params model"):
                view = spec.filled(self.task.parse_params(json.dumps(row.params))).view
        except Exception:
            return False  # the attempt reports it
        # Another content type of the same bytes counts as well: publishing compares in the same way.
        found = self.lake.diff_paths(row.repository, row.ref, ref, view.roots)
        return all(in_actions(path) for path in found)

    def _early_failure(self, row: Row, claim: RowClaim) -> Outcome | None:
        """Return the outcome of a row that fails without a transaction, or None if the row can run."""
        if row.diagnostic:
            return self._sendable(classify(TaskInputError(row.diagnostic), _WRONG_INPUT))
        if claim.ref:
            return None
        return self._sendable(classify(why_no_start(self.lake, row)))

    def _sendable(self, outcome: Outcome) -> Outcome:
        return prepare_for_sending(outcome, self._mask, self.plan.lake.settings.failure_reason_max_length)

    def _context(self, owner: RowOrchestrator, reference: str) -> AttemptContext:
        return AttemptContext(
            lake=self.lake,
            orchestrator=owner,
            workspace_root=self.workdirs,
            fence=self.plan.lake.settings.fence,
            overlap=self.overlapping.submit,
            observe=self.observe,
            max_result_bytes=self.plan.max_result_bytes,
            retry_query=ask_until_answered,
            wrong_input=_WRONG_INPUT,
            recompute=self.plan.recompute(reference),
            image=self.plan.lake.settings.image,
            mask=self._mask,
        )


def load_task(plan: MapPlan) -> TaskDefinition:
    """Import the map's task.  Raises `TaskDefinitionError` if its module is not on this machine."""
    if str(plan.folder) not in sys.path:
        sys.path.insert(0, str(plan.folder))
    found = {task.name: task for task in load_tasks([plan.target])}
    if plan.task not in found:
        raise RuntimeConfigError(f"{plan.target} declares no task {plan.task!r} here")
    remember_code([found[plan.task]])
    return found[plan.task]


def run_here(plan: MapPlan, row: Row, *, scratch: Path) -> RowOutcome:
    """Run a row in this process with the plan's cached runner.

    Returns an UNSETTLED outcome, instead of raising, if the runner cannot be created or the row's record cannot be
    reached.
    """
    try:
        runner = _runner_of(plan, scratch)
    except Exception as error:
        # One bad executor must not end the whole job: the row is left to the next `--resume`.
        return unsettled(row, f"this executor cannot run it: {describe(error)}")
    return runner.run(row)


_runners: dict[tuple[int, str], RowRunner] = {}


def _runner_of(plan: MapPlan, scratch: Path) -> RowRunner:
    # Keyed by process: a runner inherited through a fork must not be used.
    key = (os.getpid(), plan.session)
    if key not in _runners:
        if plan.log is not None:
            _redirect_output(plan.log)
        logging_to(plan.lake.settings, name=f"map-{os.getpid()}").__enter__()
        task = load_task(plan)
        workdirs = scratch / "perago-work"
        workdirs.mkdir(parents=True, exist_ok=True, mode=0o700)
        pool = ThreadPoolExecutor(OVERLAPPING, "perago-overlap")
        _runners[key] = RowRunner(plan, task, plan.lake.open_lake(), workdirs, pool)
    return _runners[key]


def _redirect_output(file: Path) -> None:
    """Redirect stdout and stderr to a file, so that the bodies' output does not mix with the command's progress."""
    opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for stream in (1, 2):
        os.dup2(opened, stream)
    os.close(opened)
