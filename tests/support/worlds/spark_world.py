"""A world for Spark tasks: the scenarios' world, with places on one session and one placement."""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyarrow import parquet
from pyspark.sql import DataFrame

from perago import SparkWorkspace, WorkspaceSpec, task
from perago.declare.controls import RetryPolicy, TaskControls, TimeoutPolicy
from perago.declare.task import TaskDefinition
from perago.lake.base import Lake
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.place import OpenPlace
from perago.runtime.execution_result import ExecutionResult
from perago.settings import load_settings
from perago.spark.places import SparkPlaces
from perago.spark.session import Sessions
from tests.support.processes.processes import all_commands
from tests.support.worlds.world import Made, Params, World

__all__ = ["Made", "Params", "SparkWorld", "jobs_run", "make_spark_task"]

Body = Callable[[SparkWorkspace, Params], Made]


def count_by_user(workspace: SparkWorkspace, params: Params) -> Made:
    """Write a table from a CSV: the usual body."""
    events = workspace.read("raw", format="csv", header=True)
    workspace.write(events.groupBy("user").count().coalesce(1), "counts")
    return Made(said=params.text)


def make_spark_task(body: Body = count_by_user, *, name: str = "make", **spec: Any) -> TaskDefinition:
    """Return a Spark task around `body`; `spec` goes to its WorkspaceSpec (prefix /data by default)."""

    @task(
        name=name,
        owner_email="tests@example.com",
        workspace=WorkspaceSpec(**{"prefix": "/data", **spec}),
        controls=TaskControls(
            retry=RetryPolicy(count=3, delay_seconds=0), timeout=TimeoutPolicy(response_seconds=60)
        ),
    )
    def run(workspace: SparkWorkspace, params: Params) -> Made:
        return body(workspace, params)

    definition: TaskDefinition = run.__perago_task__
    return definition


@dataclass(slots=True, kw_only=True)
class SparkWorld(World):
    """A world whose Spark tasks have the given placement."""

    sessions: Sessions
    placement: str
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    """The environment that the tasks' settings are loaded from; it names the lake's servers."""

    def task(self, body: Body = count_by_user, **spec: Any) -> TaskDefinition:
        """Return a Spark task with this world's placement."""
        return make_spark_task(body, placement=self.placement, **spec)

    @property
    def places(self) -> OpenPlace:
        settings = load_settings(self.environ, root=self.folder / "root")
        return SparkPlaces(settings, self.sessions, embedded=self.placement == "local")

    def attempt_context(self, **changed: Any) -> AttemptContext:
        made = AttemptContext(self.lake, self.orchestrator, self.root, open_place=self.places)
        return replace(made, **changed)

    def paths(self, ref: str = "main") -> list[str]:
        """Return the path of every object."""
        return [entry.path for entry in self.lake.list(self.repository, ref, "")]

    def rows(self, table: str, ref: str = "main") -> list[dict[str, Any]]:
        """Read a Parquet table of a ref through the lake's own listing and bytes."""
        folder = self.folder / f"read-{ref[:12]}-{table.replace('/', '-')}-{len(list(self.folder.iterdir()))}"
        download_table(self.lake, (self.repository, ref), table, folder)
        frame: DataFrame = self.sessions.get().read.parquet(str(folder))
        return sorted((row.asDict() for row in frame.collect()), key=lambda row: str(list(row.values())))


def download_table(lake: Lake, where: tuple[str, str], table: str, folder: Path) -> None:
    """Download a table into a folder through the lake's own listing and bytes."""
    for entry in lake.list(*where, f"{table}/"):
        target = folder / entry.path.removeprefix(f"{table}/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"".join(lake.read(*where, entry.path)))


def published_table(lake: Lake, repository: str, table: str, folder: Path) -> list[dict[str, Any]]:
    """Read a Parquet table of main without Spark, for tests without a session."""
    download_table(lake, (repository, "main"), table, folder)
    rows: list[dict[str, Any]] = parquet.read_table(folder).to_pylist()
    return rows


def failed(settled: ExecutionResult) -> str:
    """Return the reason of a FAILED outcome."""
    assert settled.outcome.status.startswith("FAILED"), settled.outcome
    assert settled.outcome.reason is not None
    return settled.outcome.reason


def jobs_run(sessions: Sessions) -> int:
    """Return how many jobs Spark has started in this session, by its own listener."""
    context: Any = sessions.get().sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    return int(context.statusStore().jobsList(None).size())


USERS = [
    "_temporary_notes.txt",
    "_temporary",
    "_temporary_tables/a.csv",
    "__magic_tricks.csv",
    "__magic_tricks/a.csv",
    ".spark-staging.md",
    ".spark-staging-notes/a.csv",
    ".hidden.crc",
    "my_SUCCESS",
    "_SUCCESS.md",
    "_SUCCESSES/a",
    "ours.txt",
    ".ours.txt.crc",
]
"""Files of a user with names that look like those Spark leaves behind."""


def shown_by_spark(port: int) -> str:
    """Return all that Spark reveals of an application: its environment page and every command line of this machine."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{port}/environment/", timeout=60) as answer:
        page: str = answer.read().decode()
    return all_commands() + page
