"""Spark tasks compared with the same PySpark code on plain local folders, in the same session.

The clean step of examples/listening runs as an attempt on the embedded lake (download, body, checks, hashing, upload,
publish) and as plain code.  A table of 200 files is written by an attempt on real lakeFS and by plain code.  The
session allows at most 4 MB of results on the driver, so a step that collected data there would fail.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench import Row
from bench.harness import Context, in_turns, timed
from examples.listening import generate, transform
from examples.listening.accident import Accident
from examples.listening.models import Play, RawPlay
from examples.listening.tasks import Clean, clean_plays
from perago import SparkWorkspace, WorkspaceSpec, task
from perago.backend import open_lakefs
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.lake.base import Lake
from perago.lake.local.lake import LocalLake
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.protocol.outcome import Outcome
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.delivery import Executor
from perago.runtime.folder_upload import folder_uploads
from perago.settings import Settings, load_settings
from perago.spark.places import SparkPlaces
from perago.spark.s3a import S3A_PACKAGES, open_bucket
from perago.spark.session import Sessions

NAME = "Spark tasks"
SERVERS = True
MILLIONS = (5, 20)
FILES = 200
DRIVER_LIMIT = "4m"
COMMITTER = "mapreduce.fileoutputcommitter.algorithm.version"


class Amount(BaseModel):
    rows: int


@task(name="write_many", owner_email="bench@example.com", workspace=WorkspaceSpec(placement="direct"))
def write_many(workspace: SparkWorkspace, params: Amount) -> Amount:
    """Write a table of many files."""
    workspace.write(many_files(workspace, params.rows), "table")
    return params


def many_files(workspace: SparkWorkspace, rows: int) -> DataFrame:
    """Return the rows for the table of many files."""
    numbers = workspace.spark.range(0, rows, 1, FILES)
    return numbers.withColumn("key", F.col("id") % 1000).withColumn("value", F.rand(7))


def run() -> list[Row]:
    """Run both comparisons in one session."""
    with tempfile.TemporaryDirectory() as name:
        context = Context(Path(name))
        environ = {**os.environ, "PERAGO_SPARK_CONF": f"spark.driver.maxResultSize={DRIVER_LIMIT}"}
        settings = load_settings(environ, root=context.folder / "root")
        bench = _Bench(context, settings, Sessions(settings, S3A_PACKAGES))
        rows = [row for millions in MILLIONS for row in bench.clean(millions)]
        return [*rows, *bench.direct()]


@dataclass(frozen=True, slots=True)
class _Bench:
    context: Context
    settings: Settings
    sessions: Sessions

    def clean(self, millions: int) -> list[Row]:
        """Measure the demo's clean step on this many million plays."""
        plays = millions * (20_000 if self.context.quick else 1_000_000)
        folder = self.context.folder / f"clean-{millions}"
        given = SparkWorkspace(folder / "given" / "listening", self.sessions.get)
        plain = SparkWorkspace(folder / "plain", self.sessions.get)
        self.context.say(f"writing {plays} raw plays")
        raw = generate.raw_plays(given.spark, plays)
        given.write(raw.where(generate.from_phones(raw)), "raw/json", format="json")
        given.write(raw.where(~generate.from_phones(raw)), "raw/csv", format="csv", header=True)
        with closing(LocalLake(folder / "lake")) as lake:
            lake.create_repository(
                "bench", folder_uploads(folder / "given", "sha256", leave_out=folder / "lake")
            )
            params = Clean(accident=Accident(file=None, ref="")).model_dump()
            attempts = _Attempts(self, lake, "bench", clean_plays.__perago_task__, params)
            took = self._turns(
                {"plain": lambda: timed(lambda: _plain_clean(given, plain)), "perago": attempts.run}, rounds=2
            )
        shutil.rmtree(folder)
        ratio = took["perago"] / took["plain"]
        return [
            Row(f"clean step on {millions} million plays, plain PySpark", took["plain"], "s"),
            Row(f"the same as a Perago task, against plain, {millions} million", ratio, "times", 1.10),
        ]

    def direct(self) -> list[Row]:
        """Measure writing a table of many files on real lakeFS."""
        rows = 200_000 if self.context.quick else 5_000_000
        plain = SparkWorkspace(self.context.folder / "files", self.sessions.get)
        with closing(open_lakefs(self.settings)) as lake:
            name = f"bench-spark-{os.getpid()}"
            lake.create_repository(name)  # type: ignore[attr-defined]
            assert self.settings.lakefs is not None  # noqa: S101 - SERVERS is set
            open_bucket(self.sessions.get(), name, self.settings.lakefs)
            lake.create_branch(name, "default-committer", "main")
            staged = SparkWorkspace(f"s3a://{name}/default-committer", self.sessions.get)
            attempts = _Attempts(self, lake, name, write_many.__perago_task__, {"rows": rows})
            took = self._turns(
                {
                    "plain": lambda: timed(lambda: plain.write(many_files(plain, rows), "table")),
                    "direct": attempts.run,
                    "default": lambda: timed(
                        lambda: staged.write(many_files(staged, rows), "table", **{COMMITTER: "1"})
                    ),
                },
                rounds=3,
            )
        direct, default = took["direct"] / took["plain"], took["default"] / took["plain"]
        return [
            Row(f"{FILES} files, plain local folder", took["plain"], "s"),
            Row(
                f"{FILES} files, a task with direct placement on lakeFS, against plain", direct, "times", 2.3
            ),
            Row(f"{FILES} files, s3a with Spark's default committer, against plain", default, "times"),
            Row(f"{FILES} files, direct placement against that committer", direct / default, "times", 1.0),
        ]

    def _turns(self, contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
        def told(name: str, turn: Callable[[], float]) -> Callable[[], float]:
            def take() -> float:
                seconds = turn()
                self.context.say(f"{name}: {seconds:.1f} s")
                return seconds

            return take

        return in_turns({name: told(name, turn) for name, turn in contenders.items()}, rounds)


@dataclass(frozen=True, slots=True)
class _Attempts:
    """Attempts of one task, all from the same commit. Only the time of an attempt is kept."""

    bench: _Bench
    lake: Lake
    repository: str
    definition: TaskDefinition
    params: Mapping[str, Any]

    def run(self) -> float:
        """Return the seconds that one whole attempt on its own branch takes."""
        branch = f"run-{os.urandom(4).hex()}"
        self.lake.create_branch(self.repository, branch, "main", hidden=False)
        head = self.lake.head(self.repository, branch).id
        workspace = {"repository": self.repository, "branch": branch, "ref_type": "commit", "ref": head}
        folder = self.bench.context.folder
        with closing(LocalOrchestrator(folder / "orchestrator.db")) as orchestrator:
            _start(orchestrator, self.definition, {"workspace": workspace, "params": self.params})
            embedded = isinstance(self.lake, LocalLake)
            places = SparkPlaces(self.bench.settings, self.bench.sessions, embedded=embedded)
            around = AttemptContext(self.lake, orchestrator, folder / "work", open_place=places)
            executor = Executor({self.definition.name: self.definition}, around, "bench", mask=str)
            [assignment] = orchestrator.poll(self.definition.name, worker_id="bench", count=1, wait_seconds=0)
            took = timed(lambda: _completed(executor.execute(assignment).outcome))
        self.lake.drop_branch(self.repository, branch)
        return took


def _start(orchestrator: LocalOrchestrator, definition: TaskDefinition, payload: Mapping[str, Any]) -> None:
    # Leases are not extended here, and the large step takes longer than one.
    patient = {"responseTimeoutSeconds": 3600, "timeoutSeconds": 7200}
    orchestrator.register_taskdefs([{**build_taskdef(definition), **patient}])
    step = {
        "name": definition.name,
        "taskReferenceName": "step",
        "type": "SIMPLE",
        "inputParameters": {key: f"${{workflow.input.{key}}}" for key in payload},
    }
    name = f"bench-{definition.name}"
    orchestrator.register_workflow({"name": name, "version": 1, "schemaVersion": 2, "tasks": [step]})
    orchestrator.start_workflow(name, input=payload)


def _completed(outcome: Outcome) -> None:
    if outcome.status != "COMPLETED":
        raise SystemExit(f"the attempt ended {outcome.status}: {outcome.reason}")


def _plain_clean(given: SparkWorkspace, plain: SparkWorkspace) -> None:
    """Do what the task's body does, on local folders."""
    from_files = given.read("raw/csv", format="csv", schema=RawPlay, header=True)
    raw = from_files.union(given.read("raw/json", format="json", schema=RawPlay))
    plain.write(transform.clean(raw), "published/plays", schema=Play)
    plain.write(transform.rejected(raw), "published/rejected")
