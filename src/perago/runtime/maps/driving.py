"""Driving a map: which rows are left, handing them to an engine, and keeping what comes back.

The rule: an outcome is in the run's record before anybody is told of it, because the execution itself puts it there.  What
the engine brings back only says so sooner; when it has ended, the record is asked about every row that it said nothing of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from perago.runtime.maps.plan import MapPlan
from perago.runtime.maps.record import MapRecord
from perago.runtime.maps.row import Row, RowOutcome, unsettled


class Engine(Protocol):
    """What runs rows on other processes or machines."""

    def check(self, plan: MapPlan) -> None:
        """Refuse what could not run there, before the first row."""

    def outcomes(self, plan: MapPlan, rows: Sequence[Row]) -> Iterator[RowOutcome]:
        """Run rows, several at once, each once or more, and tell of each when it ends; in any order."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How many rows there are, and how many of them ended in which way."""

    rows: int
    done: int = 0
    failed: int = 0
    unsettled: int = 0

    @property
    def left(self) -> int:
        """How many have no outcome yet."""
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
        """Where all rows of the table stand."""
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
        """Whether there is nothing left to do for a row."""
        return row.number in self.known and self.known[row.number].done

    def _is_unsettled(self, row: Row) -> bool:
        return row.number in self.known and self.known[row.number].status == "UNSETTLED"
