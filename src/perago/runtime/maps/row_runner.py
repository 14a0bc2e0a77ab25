"""Running rows in the process of an engine's executor: each is its own transaction, as a worker's executor runs it.

    take → transaction (fences ask the record) → result into the record → claim dropped → [again, if retries are left]

One runner serves all rows of a process.  It opens the lake when the first row comes: an engine forks its processes, and
clients do not survive a fork.  The rows that follow use the same clients.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from perago.declare.discovery import load_tasks
from perago.declare.task import TaskDefinition
from perago.errors import LakeError, OrchestratorError, RuntimeConfigError, TaskInputError
from perago.lake.base import Lake
from perago.orchestrator.base import Assignment
from perago.protocol.outcome import Outcome, WrongInput, classify, describe, sendable
from perago.runtime.attempt.delivery import deliver, give_up_on
from perago.runtime.attempt.orchestrator_wait import ask_until_answered
from perago.runtime.attempt.surroundings import Surroundings
from perago.runtime.attempt.transaction import Transaction
from perago.runtime.ending import Settled, parcel_of
from perago.runtime.maps.plan import MapPlan
from perago.runtime.maps.record import Ended, MapRecord, Taken
from perago.runtime.maps.row import Row, RowOutcome, unsettled
from perago.runtime.maps.row_owner import RowOwner, attempt_of
from perago.runtime.maps.rows import input_of
from perago.runtime.maps.taking import Taking, why_no_start
from perago.runtime.observe.logs import attempt_logs, logging_to
from perago.runtime.observe.masking import Masker, secrets_of
from perago.runtime.root.identity import new_execution_id

log = logging.getLogger("perago.map")

OVERLAPPING = 4
LONGEST_PAUSE = 5.0
"""Seconds between two tries of a row: they hold one of the engine's places."""
_WRONG_INPUT: WrongInput = "terminal"
"""Every try of a row has the same input and the same code."""


@dataclass(slots=True)
class RowRunner:
    """Runs rows of one map in this process, one after the other."""

    plan: MapPlan
    task: TaskDefinition
    lake: Lake
    workdirs: Path
    overlapping: ThreadPoolExecutor
    execution_id: Callable[[], str] = new_execution_id
    sleep: Callable[[float], None] = time.sleep
    observe: Callable[[str], None] = lambda _step: None
    _mask: Masker = field(init=False)
    _taking: Taking = field(init=False)

    def __post_init__(self) -> None:
        self._mask = Masker(secrets_of(self.plan.lake.settings))
        record = MapRecord(self.lake, self.plan.run)
        self._taking = Taking(self.lake, record, self.plan, self.execution_id)

    def run(self, row: Row) -> RowOutcome:
        """Run a row until it ends; what this returns is in the record, unless it is unsettled."""
        try:
            taken = self._taking.take(row)
            while isinstance(taken, Taken):
                ended = self._execute(row, taken)
                if ended is None:
                    return self._taken_over(row)
                taken = self._after(row, ended)
        except (LakeError, OrchestratorError) as error:
            return unsettled(row, self._mask(f"it has no outcome yet: {error}"))
        return taken

    def _after(self, row: Row, ended: Ended) -> Taken | RowOutcome:
        retried = ended.outcome.status == "FAILED" and ended.taken.tries <= self.plan.retries
        if retried:
            policy = self.task.controls.retry
            self.sleep(min(float(policy.delay_seconds), LONGEST_PAUSE))
            return self._taking.again(row, ended)
        return ended.outcome

    def _taken_over(self, row: Row) -> RowOutcome:
        """How a row ended that another execution has taken; unsettled while that goes on."""
        last = self._taking.record.last(row.number)
        if isinstance(last, Ended):
            return last.outcome
        return unsettled(row, "another execution has taken the row", attempts=last.attempts if last else 0)

    def _execute(self, row: Row, taken: Taken) -> Ended | None:
        """One execution; None where its result does not count, since another one has taken the row over."""
        owner = RowOwner(self._taking.record, row, taken)
        attempt = attempt_of(self.plan.run, self.plan.started, self.task.name, taken)
        if (early := self._early(row, taken)) is not None:
            accepted = owner.complete(attempt, early, worker_id=taken.execution)
            return owner.ended(early) if accepted else None
        kept: list[Ended] = []
        assignment = Assignment(attempt, input_of(row, taken.ref))

        def hand_over(settled: Settled) -> None:
            parcel = parcel_of(taken.execution, assignment, settled)
            parcel = replace(parcel, outcome=self._sendable(settled.outcome))
            if not parcel.outcome.send:
                give_up_on(self.lake, parcel, parcel.outcome.reason or "")
                return
            ending = replace(owner, settled=settled)
            if deliver(ending, self.lake, parcel, worker_id=taken.execution).accepted:
                kept.append(ending.ended(parcel.outcome))

        with attempt_logs(attempt, taken.execution, everywhere=True):
            Transaction(self.task, assignment, taken.execution, self._around(owner)).run(hand_over)
        return kept[0] if kept else None

    def _early(self, row: Row, taken: Taken) -> Outcome | None:
        """How a row ends that gets no transaction."""
        if row.mistake:
            return self._sendable(classify(TaskInputError(row.mistake), _WRONG_INPUT))
        if taken.ref:
            return None
        return self._sendable(classify(why_no_start(self.lake, row)))

    def _sendable(self, outcome: Outcome) -> Outcome:
        return sendable(outcome, self._mask, self.plan.lake.settings.failure_reason_max_length)

    def _around(self, owner: RowOwner) -> Surroundings:
        return Surroundings(
            lake=self.lake,
            orchestrator=owner,
            workspace_root=self.workdirs,
            fence=self.plan.lake.settings.fence,
            overlap=self.overlapping.submit,
            observe=self.observe,
            max_result_bytes=self.plan.max_result_bytes,
            persist=ask_until_answered,
            wrong_input=_WRONG_INPUT,
            mask=self._mask,
        )


def load_task(plan: MapPlan) -> TaskDefinition:
    """The task of a map; `TaskDefinitionError` where its module is not here."""
    if str(plan.folder) not in sys.path:
        sys.path.insert(0, str(plan.folder))
    found = {task.name: task for task in load_tasks([plan.target])}
    if plan.task not in found:
        raise RuntimeConfigError(f"{plan.target} declares no task {plan.task!r} here")
    return found[plan.task]


def run_here(plan: MapPlan, row: Row, *, scratch: Path) -> RowOutcome:
    """Run a row in this process, by the runner that it keeps for this plan; what goes wrong is told, never raised."""
    try:
        runner = _runner_of(plan, scratch)
    except Exception as error:
        # One bad executor must not end the whole job: the row stays as it is, and is done when the map is resumed.
        return unsettled(row, f"this executor cannot run it: {describe(error)}")
    return runner.run(row)


_runners: dict[tuple[int, str], RowRunner] = {}


def _runner_of(plan: MapPlan, scratch: Path) -> RowRunner:
    # By process: what a fork has inherited is another's.
    key = (os.getpid(), plan.session)
    if key not in _runners:
        if plan.log is not None:
            _print_to(plan.log)
        logging_to(plan.lake.settings, name=f"map-{os.getpid()}").__enter__()
        task = load_task(plan)
        workdirs = scratch / "perago-work"
        workdirs.mkdir(parents=True, exist_ok=True, mode=0o700)
        pool = ThreadPoolExecutor(OVERLAPPING, "perago-overlap")
        _runners[key] = RowRunner(plan, task, plan.lake.open_lake(), workdirs, pool)
    return _runners[key]


def _print_to(file: Path) -> None:
    """Let this process print to a file: what bodies print must not stand between lines of the command's progress."""
    opened = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for stream in (1, 2):
        os.dup2(opened, stream)
    os.close(opened)
