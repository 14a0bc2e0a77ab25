"""A world for backfills: a repository with a folder for each day, and an engine that runs rows in this process.

The engine behaves as Spark does: it runs rows at once in threads, runs a row again whose executor died, and may be killed
together with its driver.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from perago import TaskFailed, WorkspaceSpec, task
from perago.declare.controls import RetryPolicy, TaskControls
from perago.declare.task import TaskDefinition
from perago.lake.base import Commit, Lake
from perago.runtime.backfill.atomic import AtomicBackfill, drive_atomic
from perago.runtime.backfill.partitions import Partition, partitions_of
from perago.runtime.backfill.record import Backfill, Flags
from perago.runtime.backfill.selection import Choice, begin
from perago.runtime.backfill.status import Partitions, PartitionStatus
from perago.runtime.ledger import Ledger
from perago.runtime.maps.map_run import Map, MapRequest
from perago.runtime.maps.plan import MapPlan
from perago.runtime.maps.row_runner import RowRunner
from perago.runtime.maps.rows import Row, RowOutcome
from perago.runtime.maps.run_file import MapRunFile
from perago.settings import load_settings
from perago.testing.lake import put_objects
from tests.support.worlds.map_world import OpenLake

DAILY: dict[str, Any] = {
    "reads": ("raw/day={day}",),
    "writes": ("clean/day={day}",),
    "on_abandoned": "supersede",
    "on_advanced": "rebase",
}


class Day(BaseModel):
    day: date
    title: str = "cleaned"


class Lines(BaseModel):
    lines: int


class Died(BaseException):
    """The executor's process is gone."""


class Killed(BaseException):
    """The driver's process is gone."""


def daily_task(
    body: Callable[[Path, Day], Lines] | None = None, *, skip_unchanged: bool = False, **spec: Any
) -> TaskDefinition:
    """Return a task with a partition for each day; `spec` goes to its WorkspaceSpec."""

    @task(
        name="clean_day",
        version="1",
        owner_email="tests@example.com",
        skip_unchanged=skip_unchanged,
        controls=TaskControls(retry=RetryPolicy(count=0, delay_seconds=0)),
        workspace=WorkspaceSpec(**{**DAILY, **spec}),
    )
    def clean_day(workspace: Path, params: Day) -> Lines:
        return (body or clean)(workspace, params)

    definition: TaskDefinition = clean_day.__perago_task__
    return definition


def clean(workspace: Path, params: Day) -> Lines:
    """Write what the day's files contain into the day's own folder."""
    files = sorted((workspace / "raw" / f"day={params.day}").glob("*"))
    text = "".join(file.read_text() for file in files)
    folder = workspace / "clean" / f"day={params.day}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "part.csv").write_text(f"{params.title}: {text}")
    return Lines(lines=len(files))


def failing_on(*days: int) -> Callable[[Path, Day], Lines]:
    """Return a body that fails for these days of the month."""

    def body(workspace: Path, params: Day) -> Lines:
        if params.day.day in days:
            raise TaskFailed(f"{params.day} cannot be cleaned yet")
        return clean(workspace, params)

    return body


@dataclass(slots=True)
class BackfillWorld:
    """One repository, whose branch `main` has a folder `raw/day=…` for each day, and the backfills over them."""

    lake: Lake
    repository: str
    folder: Path
    task: TaskDefinition = field(default_factory=daily_task)
    ran: list[str] = field(default_factory=list)
    """The days whose rows began, in order."""
    dies: Callable[[Row, str], bool] = lambda _row, _step: False
    """Returns True if the executor dies when a row begins this step."""
    killed_after: int | None = None
    """The number of outcomes after which the driver is killed."""
    threads: int = 1
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    clock: itertools.count[int] = field(default_factory=lambda: itertools.count(1_800_000_000))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def commit(self, files: dict[str, str], branch: str = "main") -> str:
        put_objects(self.lake, self.repository, branch, files, folder=self.folder)
        return self.lake.commit(self.repository, branch, "by hand", {})

    def days(self, count: int) -> list[date]:
        """Commit a file for each of some days, beginning with 2026-01-01."""
        found = [date.fromordinal(date(2026, 1, 1).toordinal() + number) for number in range(count)]
        self.commit({f"raw/day={day}/a.csv": f"lines of {day}" for day in found})
        return found

    # --- a backfill --------------------------------------------------------------------------------------------

    def plan(self, *over: str, **flags: Any) -> tuple[list[Choice], Backfill]:
        """Decide what a new backfill runs."""
        partitions: list[Partition] = partitions_of(self.task, over)
        at = self.repository, "main"
        return begin(self.lake, self.task, at, partitions, Flags(over, **flags))

    def start(self, *over: str, **flags: Any) -> tuple[MapRunFile, Map]:
        """Start a backfill, without running anything yet."""
        _, backfill = self.plan(*over, **flags)
        request = self._request(backfill)
        run_file = request.fresh("here", float(next(self.clock)))
        return run_file, request.begin(self.lake, run_file)

    def resumed(self, run_file: MapRunFile) -> Map:
        """Return another session of a backfill."""
        return self._request(Backfill.of_json(run_file.backfill or {})).begin(self.lake, run_file)

    def drive(self, session: Map) -> Map:
        """Run the rows that are left."""
        backfill = Backfill.of_json(MapRunFile(**self._header(session)).backfill or {})
        drive = session.drive_in_order if backfill.sequential else session.drive
        if backfill.flags.atomic:
            where = session.plan, self.folder / "driver"
            atomic = AtomicBackfill(backfill, self.task, self.lake, *where, sleep=lambda _seconds: None)
            rest = (lambda rows: drive(self, rows, lambda _outcome: None)), (lambda _outcome: None)
            drive_atomic(session, atomic, *rest)
        else:
            drive(self, session.left(), lambda _outcome: None)
        return session

    def run(self, *over: str, **flags: Any) -> Map:
        """Run a backfill to its end."""
        return self.drive(self.start(*over, **flags)[1])

    def states(self, *over: str) -> list[PartitionStatus]:
        """Return the states of partitions at the head: of these, or of all that are known."""
        ledger = Ledger(self.lake, self.repository, self.head().id)
        known = Partitions(self.lake, self.task, ledger, "main")
        return known.of(partitions_of(self.task, over)) if over else known.known()

    def _request(self, backfill: Backfill) -> MapRequest:
        where: Any = OpenLake(self.lake, load_settings({}, root=self.folder))
        return MapRequest(
            "tasks",
            self.task,
            backfill.table(),
            where,
            backfill.flags.retries,
            backfill=backfill.to_json(),
            full=backfill.flags.full,
            force=backfill.flags.force,
        )

    def _header(self, session: Map) -> dict[str, Any]:
        import json

        found: dict[str, Any] = json.loads(
            b"".join(self.lake.read("perago-maps", session.plan.run, "map.json"))
        )
        return found

    # --- the engine --------------------------------------------------------------------------------------------

    def check(self, plan: MapPlan) -> None:
        pass

    def outcomes(self, plan: MapPlan, rows: Sequence[Row]) -> Iterator[RowOutcome]:
        with ThreadPoolExecutor(self.threads) as pool:
            running = [pool.submit(self._run, plan, row) for row in rows]
            for number, one in enumerate(as_completed(running), start=1):
                yield one.result()
                if number == self.killed_after:
                    for waiting in running:
                        waiting.cancel()
                    raise Killed

    def _run(self, plan: MapPlan, row: Row) -> RowOutcome:
        self.ran.append(row.partition.get("day", ""))
        while True:
            try:
                return self.runner(plan, row).run(row)
            except Died:
                continue  # Spark runs the row again, on another executor

    def runner(self, plan: MapPlan, row: Row) -> RowRunner:
        """Return the row runner of one executor, which may die while it runs this row."""

        def observe(step: str) -> None:
            if self.dies(row, step):
                raise Died

        return RowRunner(
            plan,
            self.task,
            self.lake,
            self.folder / "workdirs",
            ThreadPoolExecutor(4),
            execution_id=self._next_id,
            sleep=lambda _seconds: None,
            observe=observe,
        )

    def _next_id(self) -> str:
        with self._lock:
            return f"{next(self.numbers):016x}"

    # --- what there is -----------------------------------------------------------------------------------------

    def head(self) -> Commit:
        return self.lake.head(self.repository, "main")

    def history(self, limit: int = 1000) -> list[Commit]:
        """Return the commits of main, newest first."""
        return list(self.lake.log(self.repository, "main", limit))

    def files(self, prefix: str = "clean/") -> dict[str, str]:
        """Return the files at the head below a prefix."""
        return {
            entry.path: b"".join(self.lake.read(self.repository, "main", entry.path)).decode()
            for entry in self.lake.list(self.repository, "main", prefix)
        }

    def leftovers(self) -> list[str]:
        """Return the internal branches that still exist."""
        return [branch.name for branch in self.lake.branches(self.repository, "perago-")]
