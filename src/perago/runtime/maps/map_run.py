"""One session of a map run: starts or resumes it, hands the remaining rows to an engine, and collects outcomes.

An outcome is in the run's record before it is reported, because the execution itself writes it there.  The engine only
reports it sooner; after it ends, every row that it did not report is looked up in the record.

The file beside the outcomes names the run before its record is created in the lake.  A kill in between leaves a run
without a record, and resuming creates it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from perago.backend import Backend
from perago.declare.task import TaskDefinition
from perago.lake.base import Lake
from perago.runtime.maps.plan import MapPlan, map_log
from perago.runtime.maps.record import MapRecord
from perago.runtime.maps.rows import Row, RowOutcome, unsettled
from perago.runtime.maps.run_file import MapRunFile, digest_of, new_run_id
from perago.runtime.root.state_dir import new_execution_id


class Engine(Protocol):
    """An engine that runs rows in other processes or on other machines."""

    def check(self, plan: MapPlan) -> None:
        """Raise an error if the plan cannot run there, before the first row."""

    def outcomes(self, plan: MapPlan, rows: Sequence[Row]) -> Iterator[RowOutcome]:
        """Run rows, several at once, each once or more; yield each outcome when the row ends, in any order."""


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The number of rows, and of those that ended in each way."""

    rows: int
    done: int = 0
    failed: int = 0
    unsettled: int = 0

    @property
    def left(self) -> int:
        """Return the number of rows without an outcome."""
        return self.rows - self.done - self.failed - self.unsettled


@dataclass(slots=True)
class Map:
    """One session of a map run."""

    plan: MapPlan
    rows: Sequence[Row]
    record: MapRecord
    known: dict[int, RowOutcome] = field(default_factory=dict)
    """The outcome of every row that has one, by its number."""

    def read_record(self) -> None:
        """Load the outcomes that earlier sessions recorded."""
        self.known = {one.row: one for one in self.record.outcomes()}

    def left(self, limit: int | None = None) -> list[Row]:
        """Return the rows that are not COMPLETED, in order; at most `limit`."""
        found = [row for row in self.rows if not self.is_done(row)]
        return found if limit is None else found[:limit]

    def drive(self, engine: Engine, rows: Sequence[Row], on_outcome: Callable[[RowOutcome], None]) -> None:
        """Run these rows to their ends; calls `on_outcome` once for each."""
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

    def row_counts(self) -> RowCounts:
        """Return the counts of all rows of the table."""
        status = [one.status for one in self.known.values()]
        done, waiting = status.count("COMPLETED"), status.count("UNSETTLED")
        return RowCounts(len(self.rows), done, len(status) - done - waiting, waiting)

    def _reconcile(self, unreported: Mapping[int, Row]) -> list[RowOutcome]:
        """Look up rows in the record that the engine left unsettled or unreported; returns the unreported outcomes."""
        ask = dict(unreported) | {row.number: row for row in self.rows if self._is_unsettled(row)}
        recorded = {one.row: one for one in self.record.outcomes() if one.row in ask} if ask else {}
        for number, row in ask.items():
            found = recorded.get(number) or self.known.get(number)
            self.known[number] = found or unsettled(row, "it did not end")
        return [self.known[number] for number in sorted(unreported)]

    def is_done(self, row: Row) -> bool:
        """Return whether a row needs no more work."""
        return row.number in self.known and self.known[row.number].done

    def _is_unsettled(self, row: Row) -> bool:
        return row.number in self.known and self.known[row.number].status == "UNSETTLED"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The request of a command: one task over rows of a lake."""

    target: str
    task: TaskDefinition
    rows: Sequence[Row]
    where: Backend
    retries: int | None = None
    max_result_bytes: int | None = None
    log_here: bool = False
    """True if executors run on this machine, so that bodies can print to a file of the root."""

    def fresh(self, address: str, now: float) -> MapRunFile:
        """Return the file content of a new run; `address` is the lake's."""
        rows = digest_of(self.rows)
        return MapRunFile(new_run_id(now), int(now * 1000), self.task.name, address, rows, len(self.rows))

    def begin(self, lake: Lake, handle: MapRunFile) -> Map:
        """Start a session of the run, with the outcomes of earlier ones."""
        record = MapRecord(lake, handle.run)
        record.begin(asdict(handle))
        session = Map(self._plan(handle), self.rows, record)
        session.read_record()
        return session

    def _plan(self, handle: MapRunFile) -> MapPlan:
        declared = self.task.controls.retry.count
        return MapPlan(
            run=handle.run,
            started=handle.started,
            session=new_execution_id(),
            target=self.target,
            folder=Path.cwd(),
            task=self.task.name,
            lake=self.where,
            retries=declared if self.retries is None else self.retries,
            max_result_bytes=self.max_result_bytes,
            log=map_log(self.where.settings.root, handle.run) if self.log_here else None,
        )
