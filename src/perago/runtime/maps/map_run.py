"""Driving a map: which rows are left, handing them to an engine, and keeping what comes back.

The rule: an outcome is in the run's record before anybody is told of it, because the execution itself puts it there.  What
the engine brings back only says so sooner; when it has ended, the record is asked about every row that it said nothing of.

The beginning of a session: a run is made, or found again, and what it is to run is one value.

The order: the file beside the outcomes names the run, then its record is made in the lake.  A kill in between leaves a run
without a record, and resuming it makes one.
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
        """Refuse what could not run there, before the first row."""

    def outcomes(self, plan: MapPlan, rows: Sequence[Row]) -> Iterator[RowOutcome]:
        """Run rows, several at once, each once or more, and tell of each when it ends; in any order."""


@dataclass(frozen=True, slots=True)
class Standing:
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
    """One session of a run."""

    plan: MapPlan
    rows: Sequence[Row]
    record: MapRecord
    known: dict[int, RowOutcome] = field(default_factory=dict)
    """The outcome of every row that has one, by its number."""

    def read_record(self) -> None:
        """Take in what earlier sessions have recorded."""
        self.known = {one.row: one for one in self.record.outcomes()}

    def left(self, limit: int | None = None) -> list[Row]:
        """The rows that are not done, in order; at most `limit`."""
        found = [row for row in self.rows if not self.is_done(row)]
        return found if limit is None else found[:limit]

    def drive(self, engine: Engine, rows: Sequence[Row], told: Callable[[RowOutcome], None]) -> None:
        """Run these rows to their ends; `told` hears of each once."""
        wanted = {row.number: row for row in rows}
        for row in rows:
            self.known.pop(row.number, None)
        try:
            for outcome in engine.outcomes(self.plan, rows):
                if wanted.pop(outcome.row, None) is not None:
                    self.known[outcome.row] = outcome
                    told(outcome)
        except BaseException:
            self._settle(wanted)
            raise
        for outcome in self._settle(wanted):
            told(outcome)

    def standing(self) -> Standing:
        """Return the counts of all rows of the table."""
        status = [one.status for one in self.known.values()]
        done, waiting = status.count("COMPLETED"), status.count("UNSETTLED")
        return Standing(len(self.rows), done, len(status) - done - waiting, waiting)

    def _settle(self, silent: Mapping[int, Row]) -> list[RowOutcome]:
        """Take the record's word on rows that the engine did not know the end of; returns those it was silent about."""
        ask = dict(silent) | {row.number: row for row in self.rows if self._is_unsettled(row)}
        recorded = {one.row: one for one in self.record.outcomes() if one.row in ask} if ask else {}
        for number, row in ask.items():
            found = recorded.get(number) or self.known.get(number)
            self.known[number] = found or unsettled(row, "it did not come to an end")
        return [self.known[number] for number in sorted(silent)]

    def is_done(self, row: Row) -> bool:
        """Return whether a row needs no more work."""
        return row.number in self.known and self.known[row.number].done

    def _is_unsettled(self, row: Row) -> bool:
        return row.number in self.known and self.known[row.number].status == "UNSETTLED"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One task over rows of a lake, as a command asks for it."""

    target: str
    task: TaskDefinition
    rows: Sequence[Row]
    where: Backend
    retries: int | None = None
    max_result_bytes: int | None = None
    log_here: bool = False
    """Whether executors are on this machine, and bodies may print to a file of the root."""

    def fresh(self, address: str, now: float) -> MapRunFile:
        """A run that has not begun; `address` is the lake's."""
        rows = digest_of(self.rows)
        return MapRunFile(new_run_id(now), int(now * 1000), self.task.name, address, rows, len(self.rows))

    def begin(self, lake: Lake, handle: MapRunFile) -> Map:
        """A session of the run, with what earlier ones have recorded."""
        record = MapRecord(lake, handle.run)
        record.begin(asdict(handle))
        begun = Map(self._plan(handle), self.rows, record)
        begun.read_record()
        return begun

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
