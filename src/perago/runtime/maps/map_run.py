"""One session of a map run: starts or resumes the run, passes the remaining rows to an engine, and collects outcomes.

Every outcome is in the run's record before it is reported, because the execution itself writes it there.  The engine's
report only makes it known sooner.  After the engine has finished, every row that it did not report is looked up in the
record.

The run file, next to the table of outcomes, is written before the run's record is created in the lake.  If the process
is killed in between, the run has no record, and resuming the run creates it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from perago.backend import Backend
from perago.declare.task import TaskDefinition
from perago.lake.base import Lake
from perago.runtime.maps.plan import MapPlan
from perago.runtime.maps.record import MapRecord
from perago.runtime.maps.rows import Row, RowOutcome, unsettled
from perago.runtime.maps.run_file import MapRunFile, digest_of, new_run_id
from perago.runtime.root.state_dir import new_execution_id


class Engine(Protocol):
    """An engine, such as Spark, that runs rows in other processes or on other machines."""

    def check(self, plan: MapPlan) -> None:
        """Raise an error if this engine cannot run the plan.  Called before the first row."""

    def outcomes(self, plan: MapPlan, rows: Sequence[Row]) -> Iterator[RowOutcome]:
        """Run rows concurrently, and yield each outcome when the row ends, in any order.

        A row may be run more than once.
        """


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The total number of rows, and the number of rows with each kind of outcome."""

    rows: int
    done: int = 0
    failed: int = 0
    unsettled: int = 0

    @property
    def left(self) -> int:
        """The number of rows without an outcome."""
        return self.rows - self.done - self.failed - self.unsettled


@dataclass(slots=True)
class Map:
    """One session of a map run, with its rows and their outcomes so far."""

    plan: MapPlan
    rows: Sequence[Row]
    record: MapRecord
    known: dict[int, RowOutcome] = field(default_factory=dict)
    """The outcome of every row that has one, by row number."""

    def read_record(self) -> None:
        """Load the outcomes that earlier sessions recorded."""
        numbers = {row.number for row in self.rows}
        self.known = {one.row: one for one in self.record.outcomes(numbers)}

    def left(self, limit: int | None = None) -> list[Row]:
        """Return the rows that are not COMPLETED, in order, up to `limit` of them."""
        found = [row for row in self.rows if not self.is_done(row)]
        return found if limit is None else found[:limit]

    def drive(self, engine: Engine, rows: Sequence[Row], on_outcome: Callable[[RowOutcome], None]) -> None:
        """Run these rows to completion, concurrently.  Calls `on_outcome` once for each row."""
        wanted = {row.number: row for row in rows}
        for row in rows:
            self.known.pop(row.number, None)
        try:
            for outcome in engine.outcomes(self.plan, rows):
                if wanted.pop(outcome.row, None) is not None:
                    self.known[outcome.row] = outcome
                    on_outcome(outcome)
        except BaseException:
            self._reconcile(wanted)
            raise
        for outcome in self._reconcile(wanted):
            on_outcome(outcome)

    def drive_in_order(
        self, engine: Engine, rows: Sequence[Row], on_outcome: Callable[[RowOutcome], None]
    ) -> None:
        """Run these rows one after another.  A row begins only after the one before it has ended.

        Stops at a row whose outcome is not known: it may have published, or may still do so.
        """
        for row in rows:
            self.drive(engine, [row], on_outcome)
            if self._is_unsettled(row):
                return

    def row_counts(self) -> RowCounts:
        """Count all rows in the table by outcome."""
        status = [one.status for one in self.known.values()]
        done, waiting = status.count("COMPLETED"), status.count("UNSETTLED")
        return RowCounts(len(self.rows), done, len(status) - done - waiting, waiting)

    def _reconcile(self, unreported: Mapping[int, Row]) -> list[RowOutcome]:
        """Consult the record about the rows that the engine left unsettled or did not report.

        Returns the outcomes of the unreported rows.
        """
        ask = dict(unreported) | {row.number: row for row in self.rows if self._is_unsettled(row)}
        recorded = {one.row: one for one in self.record.outcomes() if one.row in ask} if ask else {}
        for number, row in ask.items():
            found = recorded.get(number) or self.known.get(number)
            self.known[number] = found or unsettled(row, "it did not end")
        return [self.known[number] for number in sorted(unreported)]

    def is_done(self, row: Row) -> bool:
        """Return whether a row is COMPLETED and needs no more work."""
        return row.number in self.known and self.known[row.number].done

    def _is_unsettled(self, row: Row) -> bool:
        return row.number in self.known and self.known[row.number].status == "UNSETTLED"


@dataclass(frozen=True, slots=True)
class MapRequest:
    """A command's request to run one task over the rows of a table."""

    target: str
    task: TaskDefinition
    rows: Sequence[Row]
    where: Backend
    retries: int | None = None
    max_result_bytes: int | None = None
    log: Callable[[str], Path] | None = None
    """Returns a run's file for what bodies print, if executors run on this machine; else None."""
    backfill: Mapping[str, Any] | None = None
    """The rows and flags of a backfill, as JSON."""
    full: bool = False
    force: bool = False

    def fresh(self, address: str, now: float) -> MapRunFile:
        """Return the content of the run file for a new run.  `address` is the lake's address."""
        rows = digest_of(self.rows)
        run = new_run_id(now, "map" if self.backfill is None else "backfill")
        started, count = int(now * 1000), len(self.rows)
        return MapRunFile(run, started, self.task.name, address, rows, count, self.backfill)

    def begin(self, lake: Lake, run_file: MapRunFile) -> Map:
        """Start a session of the run, and load the outcomes of earlier sessions."""
        record = MapRecord(lake, run_file.run)
        record.begin(asdict(run_file))
        session = Map(self._plan(run_file), self.rows, record)
        session.read_record()
        return session

    def _plan(self, run_file: MapRunFile) -> MapPlan:
        declared = self.task.controls.retry.count
        return MapPlan(
            run=run_file.run,
            started=run_file.started,
            session=new_execution_id(),
            target=self.target,
            folder=Path.cwd(),
            task=self.task.name,
            lake=self.where,
            retries=declared if self.retries is None else self.retries,
            max_result_bytes=self.max_result_bytes,
            log=self.log(run_file.run) if self.log is not None else None,
            full=self.full,
            force=self.force,
            stays_at_input=self.backfill is None,
        )
