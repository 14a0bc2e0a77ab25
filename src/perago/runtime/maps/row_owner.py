"""A row of a map as its attempts see it: who owns them, by the run's record in place of an orchestrator.

An attempt of a row is one slot of the record.  `current` answers the attempt fence, `complete` takes the result: both go to
the record in the lake, wherever the execution runs.  Times that order the attempts of a row come from their slots, never
from a clock: machines disagree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from perago.errors import LakeError, LakeNotFound, OrchestratorNotFound, OrchestratorUnavailable
from perago.lake.base import Lake
from perago.protocol.attempt import IN_PROGRESS, Attempt, AttemptSnapshot
from perago.protocol.outcome import Outcome
from perago.runtime.attempt.orchestrator_wait import ask_until_answered
from perago.runtime.ending import Settled
from perago.runtime.maps.outcome import outcome_of
from perago.runtime.maps.record import Ended, MapRecord, Taken
from perago.runtime.maps.row import Row

OVER = "CANCELED"
_TASK = re.compile(r"(map-[0-9a-z-]+)-row(\d+)-(\d+)")


def attempt_of(run: str, started: int, task_name: str, taken: Taken) -> Attempt:
    """The attempt that a slot is; `started` is the run's beginning in milliseconds since 1970."""
    return Attempt(
        workflow_instance_id=run,
        task_id=f"{run}-row{taken.row}-{taken.slot}",
        reference_task_name=f"row_{taken.row}",
        task_name=task_name,
        retry_count=taken.attempts - 1,
        seq=taken.row,
        iteration=0,
        scheduled_time=started + taken.slot,
    )


@dataclass(frozen=True, slots=True)
class RowOwner:
    """Owns the attempt of one execution of one row; `settled` is how it ended, once it has."""

    record: MapRecord
    row: Row
    taken: Taken
    settled: Settled | None = None

    def current(self, attempt: Attempt) -> AttemptSnapshot:
        """In progress as long as the execution's slot is the row's last."""
        if not attempt.task_id.endswith(f"-row{self.taken.row}-{self.taken.slot}"):
            raise OrchestratorNotFound(f"task {attempt.task_id} is not this execution's")
        with _translated(self.record.run):
            current = self.record.is_last(self.taken)
        return AttemptSnapshot(
            IN_PROGRESS if current else OVER,
            attempt.workflow_instance_id,
            attempt.task_id,
            attempt.retry_count,
            attempt.scheduled_time,
        )

    def complete(self, attempt: Attempt, outcome: Outcome, *, worker_id: str) -> bool:
        """Record how the execution ended, unless the row was taken over; waits for a lake that is away."""
        return ask_until_answered(partial(self._add, self.ended(outcome)))

    def ended(self, outcome: Outcome) -> Ended:
        """What is recorded of an outcome."""
        settled = self.settled or Settled(outcome)
        return Ended(self.taken, outcome_of(self.row, self.taken, outcome, settled), settled.refused)

    def _add(self, ended: Ended) -> bool:
        with _translated(self.record.run):
            return self.record.add(ended)


class MapRows:
    """Every row of every map of a lake, for who finds a branch and asks whether its attempt is over."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def current(self, attempt: Attempt) -> AttemptSnapshot:
        """`OrchestratorNotFound` for a task of something else, or of a run whose record is gone."""
        match = _TASK.fullmatch(attempt.task_id)
        if match is None:
            raise OrchestratorNotFound(f"task {attempt.task_id} is not a row of a map")
        run, row, slot = match[1], int(match[2]), int(match[3])
        with _translated(run):
            last = MapRecord(self._lake, run).last(row)
        if last is None:
            raise OrchestratorNotFound(f"the record of {run} has no row {row}")
        current = isinstance(last, Taken) and last.slot == slot
        return AttemptSnapshot(IN_PROGRESS if current else OVER, run, attempt.task_id, attempt.retry_count, 0)


@contextmanager
def _translated(run: str) -> Iterator[None]:
    """Tell trouble with the lake as trouble with the record, which stands in for an orchestrator."""
    try:
        yield
    except LakeNotFound as gone:
        raise OrchestratorNotFound(f"the record of {run} is gone: {gone}") from gone
    except LakeError as error:
        raise OrchestratorUnavailable(f"the record of {run} does not answer: {error}") from error
