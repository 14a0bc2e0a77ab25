"""Runs a backfill as one transaction: all rows on one run branch, published as one commit, or not at all.

    row 0           `perago_open`      in the command's process: creates the run branch at the input commit
    rows 1 to N     the task           on the engine: each publishes on the run branch
    row N + 1       `perago_publish`   in the command's process, once all others are COMPLETED

All are rows of the backfill's record, so each of them is claimed, fenced and recorded like any other, and a session that is
killed between any two of them is resumed there.  What a run asks the orchestrator for, its steps with their outputs, the
record answers: every row has ended, and what it may see and change follows from its params.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perago.declare.run_steps import OPEN, PUBLISH
from perago.declare.task import TaskDefinition
from perago.errors import LakeError, LakeNotFound, RuntimeConfigError
from perago.lake.base import Lake
from perago.orchestrator.base import TaskState, WorkflowState
from perago.protocol.publication import MAX_RANGE
from perago.runtime.attempt.contract import view_output
from perago.runtime.backfill.partitions import spec_of
from perago.runtime.backfill.record import Backfill
from perago.runtime.maps.map_run import Map
from perago.runtime.maps.plan import MapPlan
from perago.runtime.maps.record import Ended, MapRecord
from perago.runtime.maps.row_runner import OVERLAPPING, RowRunner
from perago.runtime.maps.rows import Row, RowOutcome

MOST_ROWS = MAX_RANGE - 24
"""The maximum number of rows.  A run has at most `MAX_RANGE` commits, some of which dead executions may have left."""
_OPEN_ROW = 0
_RETRIES = 1
"""The retries of the first and the last row.  A person waits for them, and resuming tries again."""


@dataclass(frozen=True, slots=True)
class OpenedRun:
    """The run branch, its first commit, and the origin, as `perago_open` has returned them."""

    branch: str
    ref: str
    origin: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AtomicBackfill:
    """One session of a backfill that is one transaction.  It is also the engine of its last row."""

    backfill: Backfill
    task: TaskDefinition
    lake: Lake
    plan: MapPlan
    workdirs: Path
    sleep: Callable[[float], None] = time.sleep

    def open(self) -> OpenedRun:
        """Open the run, or return the one that an earlier session has opened.

        Raises `RuntimeConfigError` if it cannot be opened, or if its branch is gone.
        """
        backfill = self.backfill
        row = Row(_OPEN_ROW, backfill.repository, backfill.branch, backfill.ref)
        outcome = self._runner(OPEN).run(row)
        if not outcome.done or outcome.result is None:
            raise RuntimeConfigError(f"the run of this backfill could not be opened: {outcome.reason}")
        workspace, origin = outcome.result["workspace"], outcome.result["origin"]
        opened = OpenedRun(workspace["branch"], workspace["ref"], origin)
        if not self._is_published():
            self._check_branch(opened)
        return opened

    def rows(self, opened: OpenedRun) -> list[Row]:
        """Return all rows after the first: those of the task on the run branch, and the one that publishes."""
        backfill = self.backfill
        ref = opened.ref if backfill.rebases else ""
        *rows, last = backfill.table()
        return [*(replace(row, branch=opened.branch, ref=ref) for row in rows), self._last_row(last, opened)]

    def drop_branch(self, opened: OpenedRun) -> None:
        """Drop the run branch of a published backfill.  Its commits stay, under the run's tag."""
        try:
            self.lake.drop_branch(self.backfill.repository, opened.branch)
        except LakeError:
            return  # `perago sweep --runs` does it later

    # --- the engine of the last row --------------------------------------------------------------------------------

    def check(self, plan: MapPlan) -> None:
        """Do nothing: the row runs in this process."""

    def outcomes(self, plan: MapPlan, rows: Sequence[Row]) -> Iterator[RowOutcome]:
        """Publish the run, at the branch's head.  All of its rows have ended."""
        for row in rows:
            yield self._runner(PUBLISH).run(self._at_head(row))

    def _at_head(self, row: Row) -> Row:
        last = self._record.last(row.number)
        if last is not None:
            # The run may have been published by an execution that died, and its branch be gone.
            claim = last.claim if isinstance(last, Ended) else last
            return replace(row, ref=claim.ref)
        return replace(row, ref=self.lake.head(row.repository, row.branch).id)

    def _last_row(self, row: Row, opened: OpenedRun) -> Row:
        on_advanced = "rebase" if self.backfill.rebases else "refuse"
        params = {"origin": dict(opened.origin), "on_advanced": on_advanced}
        return replace(row, branch=opened.branch, ref="", params=params)

    def _is_published(self) -> bool:
        last = self._record.last(len(self.backfill.rows) + 1)
        return last is not None

    def _check_branch(self, opened: OpenedRun) -> None:
        try:
            self.lake.head(self.backfill.repository, opened.branch)
        except LakeNotFound:
            raise RuntimeConfigError(
                f"the run branch {opened.branch} of backfill {self.plan.run} is gone, and with it the rows that were done: "
                "start a new backfill"
            ) from None

    @property
    def _record(self) -> MapRecord:
        return MapRecord(self.lake, self.plan.run)

    def _runner(self, task: TaskDefinition) -> RowRunner:
        plan = replace(
            self.plan, task=task.name, retries=_RETRIES, full=False, force=False, stays_at_input=True
        )
        self.workdirs.mkdir(parents=True, exist_ok=True, mode=0o700)
        pool = ThreadPoolExecutor(OVERLAPPING, "perago-overlap")
        return RowRunner(
            plan, task, self.lake, self.workdirs, pool, sleep=self.sleep, workflow=self._workflow
        )

    def _workflow(self, workflow_id: str) -> WorkflowState:
        """Return the backfill as the workflow that a run is: its rows, with their workspaces and views."""
        ended = {one.row: one for one in self._record.outcomes(range(1, len(self.backfill.rows) + 1))}
        tasks = []
        for number, row in enumerate(self.backfill.rows, start=1):
            outcome, name = ended[number], f"row_{number}"
            workspace = {"repository": outcome.repository, "branch": outcome.branch, "ref": outcome.published}
            view = view_output(spec_of(self.task, row.params))
            output = {"workspace": workspace, "view": view}
            tasks.append(
                TaskState(
                    name,
                    self.task.name,
                    "SIMPLE",
                    f"{self.plan.run}-row{number}",
                    outcome.status,
                    0,
                    0,
                    number,
                    {},
                    output,
                )
            )
        return WorkflowState(workflow_id, "RUNNING", None, {}, tasks)


def check_count(backfill: Backfill) -> None:
    """Raise `RuntimeConfigError` if a backfill has too many rows to be one transaction."""
    if len(backfill.rows) > MOST_ROWS:
        raise RuntimeConfigError(
            f"--atomic publishes at most {MOST_ROWS:,} partitions as one commit, and there are {len(backfill.rows):,}: give "
            "shorter ranges, or leave it out"
        )


def drive_atomic(
    session: Map,
    atomic: AtomicBackfill,
    drive: Callable[[Sequence[Row]], object],
    on_outcome: Callable[[RowOutcome], None],
) -> None:
    """Open the run, run the rows that are left by `drive`, and publish if all of them are done.

    `on_outcome` is called for the row that publishes.
    """
    opened = atomic.open()
    session.rows = atomic.rows(opened)
    *rows, last = session.rows
    drive([row for row in rows if not session.is_done(row)])
    if all(session.is_done(row) for row in rows) and not session.is_done(last):
        session.drive(atomic, [last], on_outcome)
    if session.is_done(last):
        atomic.drop_branch(opened)
