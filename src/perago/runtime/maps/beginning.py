"""The beginning of a session: a run is made, or found again, and what it is to run is one value.

The order: the file beside the outcomes names the run, then its record is made in the lake.  A kill in between leaves a run
without a record, and resuming it makes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from perago.declare.task import TaskDefinition
from perago.lake.base import Lake
from perago.runtime.maps.driving import Map
from perago.runtime.maps.handle import Handle, digest_of, new_run_id
from perago.runtime.maps.plan import LakeOwner, MapPlan, map_log
from perago.runtime.maps.record import MapRecord
from perago.runtime.maps.row import Row
from perago.runtime.root.identity import new_execution_id


@dataclass(frozen=True, slots=True)
class Wanted:
    """One task over rows of a lake, as a command asks for it."""

    target: str
    task: TaskDefinition
    rows: Sequence[Row]
    where: LakeOwner
    retries: int | None = None
    max_result_bytes: int | None = None
    log_here: bool = False
    """Whether executors are on this machine, and bodies may print to a file of the root."""

    def fresh(self, address: str, now: float) -> Handle:
        """A run that has not begun; `address` is the lake's."""
        rows = digest_of(self.rows)
        return Handle(new_run_id(now), int(now * 1000), self.task.name, address, rows, len(self.rows))

    def begin(self, lake: Lake, handle: Handle) -> Map:
        """A session of the run, with what earlier ones have recorded."""
        record = MapRecord(lake, handle.run)
        record.begin(asdict(handle))
        begun = Map(self._plan(handle), self.rows, record)
        begun.read_record()
        return begun

    def _plan(self, handle: Handle) -> MapPlan:
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
