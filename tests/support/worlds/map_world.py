"""A world for maps: one repository of any lake, a plan, and row runners that share one run as executors do."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from perago.declare.task import TaskDefinition
from perago.lake.base import Commit, Lake
from perago.runtime.maps.plan import MapPlan
from perago.runtime.maps.record import MapRecord
from perago.runtime.maps.row_runner import RowRunner
from perago.runtime.maps.rows import Row
from perago.settings import Settings, load_settings
from perago.testing.lake import put_objects
from tests.support.worlds.world import make_task

STARTED = 1_800_000_000_000


@dataclass(frozen=True, slots=True)
class OpenLake:
    """A backend whose lake is already open."""

    lake: Lake
    settings: Settings

    def open_lake(self) -> Lake:
        return self.lake


@dataclass(slots=True)
class MapWorld:
    """One run over the branch `main` of a repository."""

    lake: Lake
    repository: str
    folder: Path
    task: TaskDefinition = field(default_factory=make_task)
    retries: int = 0
    session: str = "session-1"
    run: str = field(default_factory=lambda: f"map-20261117-000000-{secrets.token_hex(4)}")
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    pauses: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.record.begin({"run": self.run})

    @property
    def record(self) -> MapRecord:
        return MapRecord(self.lake, self.run)

    @property
    def plan(self) -> MapPlan:
        settings = load_settings({}, root=self.folder)
        where = OpenLake(self.lake, settings)
        return MapPlan(
            self.run, STARTED, self.session, "tasks", self.folder, self.task.name, where, self.retries
        )

    def resumed(self) -> MapWorld:
        """Return another session of the same run."""
        return replace(self, session="session-2")

    @property
    def row(self) -> Row:
        return Row(7, self.repository, "main")

    def commit(self, files: Mapping[str, str]) -> str:
        put_objects(self.lake, self.repository, "main", files, folder=self.folder)
        return self.lake.commit(self.repository, "main", "by hand", {})

    def runner(
        self, observe: Callable[[str], None] = lambda _step: None, lake: Lake | None = None
    ) -> RowRunner:
        """Return the row runner of one executor process."""
        return RowRunner(
            self.plan,
            self.task,
            lake or self.lake,
            self.folder / "workdirs",
            ThreadPoolExecutor(4),
            execution_id=lambda: f"{next(self.numbers):016x}",
            sleep=self.pauses.append,
            observe=observe,
        )

    def history(self) -> list[Commit]:
        """Return the commits of main, newest first."""
        return list(self.lake.log(self.repository, "main", 100))

    def leftovers(self) -> list[str]:
        """Return the internal branches that still exist."""
        return [branch.name for branch in self.lake.branches(self.repository, "perago-")]
