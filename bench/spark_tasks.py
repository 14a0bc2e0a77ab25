"""Spark tasks compared with the same PySpark code on plain local folders, in the same session.

The clean step of examples/listening runs as an attempt on the embedded lake (download, body, checks, hashing, upload,
publish) and as plain code.  A table of 200 files is written by an attempt on real lakeFS and by plain code.  A tiny
step runs with the settings of the step before it, and with others.  The session allows at most 4 MB of results on the
driver, so a step that collected data there would fail.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path

from pydantic import BaseModel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench import Row
from bench.harness import Context, timed
from bench.spark_bench import SparkBench
from examples.listening import generate, transform
from examples.listening.accident import Accident
from examples.listening.models import Play, RawPlay
from examples.listening.tasks import Clean, clean_plays
from perago import SparkControls, SparkWorkspace, WorkspaceSpec, task
from perago.backend import open_lakefs
from perago.declare.task import TaskDefinition
from perago.lake.local.lake import LocalLake
from perago.runtime.folder_upload import folder_uploads
from perago.spark.s3a import open_bucket

NAME = "Spark tasks"
SERVERS = True
MILLIONS = (5, 20)
FILES = 200
LIMIT = "spark.driver.maxResultSize=4m"
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


def write_few(workspace: SparkWorkspace, params: Amount) -> Amount:
    """Write a tiny table."""
    workspace.write(workspace.spark.range(params.rows).coalesce(1), "table")
    return params


SAME, OTHER_SQL, OTHER_MEMORY = (
    # One function, three declarations: each replaces the one before it on the function itself.
    task(name=name, owner_email="bench@example.com", workspace=WorkspaceSpec(), spark=spark)(
        write_few
    ).__perago_task__
    for name, spark in {
        "few_same": SparkControls(),
        "few_other_sql": SparkControls(shuffle_partitions=3),
        "few_other_memory": SparkControls(driver_memory="900m"),
    }.items()
)


def run() -> list[Row]:
    """Run the comparisons in one session."""
    with tempfile.TemporaryDirectory() as name, SparkBench.open(Context(Path(name)), LIMIT) as bench:
        rows = [row for millions in MILLIONS for row in clean(bench, millions)]
        return [*rows, *direct(bench), *changes(bench)]


def clean(bench: SparkBench, millions: int) -> list[Row]:
    """Measure the demo's clean step on this many million plays."""
    plays = millions * (20_000 if bench.context.quick else 1_000_000)
    folder = bench.context.folder / f"clean-{millions}"
    given = SparkWorkspace(folder / "given" / "listening", bench.sessions.get)
    plain = SparkWorkspace(folder / "plain", bench.sessions.get)
    bench.context.say(f"writing {plays} raw plays")
    raw = generate.raw_plays(given.spark, plays)
    given.write(raw.where(generate.from_phones(raw)), "raw/json", format="json")
    given.write(raw.where(~generate.from_phones(raw)), "raw/csv", format="csv", header=True)
    definition = clean_plays.__perago_task__
    params = Clean(accident=Accident(file=None, ref="")).model_dump()
    with closing(LocalLake(folder / "lake")) as lake:
        lake.create_repository("bench", folder_uploads(folder / "given", "sha256", leave_out=folder / "lake"))
        took = bench.turns(
            {
                "plain": lambda: timed(lambda: _plain_clean(given, plain)),
                "perago": lambda: bench.alone(lake, "bench", definition, params),
            },
            rounds=2,
        )
    shutil.rmtree(folder)
    ratio = took["perago"] / took["plain"]
    return [
        Row(f"clean step on {millions} million plays, plain PySpark", took["plain"], "s"),
        Row(f"the same as a Perago task, against plain, {millions} million", ratio, "times", 1.10),
    ]


def direct(bench: SparkBench) -> list[Row]:
    """Measure writing a table of many files on real lakeFS."""
    rows = 200_000 if bench.context.quick else 5_000_000
    plain = SparkWorkspace(bench.context.folder / "files", bench.sessions.get)
    definition = write_many.__perago_task__
    with closing(open_lakefs(bench.settings)) as lake:
        name = f"bench-spark-{os.getpid()}"
        lake.create_repository(name)
        assert bench.settings.lakefs is not None  # noqa: S101 - SERVERS is set
        open_bucket(bench.sessions.get(), name, bench.settings.lakefs)
        lake.create_branch(name, "default-committer", "main")
        staged = SparkWorkspace(f"s3a://{name}/default-committer", bench.sessions.get)
        took = bench.turns(
            {
                "plain": lambda: timed(lambda: plain.write(many_files(plain, rows), "table")),
                "direct": lambda: bench.alone(lake, name, definition, {"rows": rows}),
                "default": lambda: timed(
                    lambda: staged.write(many_files(staged, rows), "table", **{COMMITTER: "1"})
                ),
            },
            rounds=3,
        )
    placed, default = took["direct"] / took["plain"], took["default"] / took["plain"]
    return [
        Row(f"{FILES} files, plain local folder", took["plain"], "s"),
        Row(f"{FILES} files, a task with direct placement on lakeFS, against plain", placed, "times", 2.3),
        Row(f"{FILES} files, s3a with Spark's default committer, against plain", default, "times"),
        Row(f"{FILES} files, direct placement against that committer", placed / default, "times", 1.0),
    ]


def changes(bench: SparkBench) -> list[Row]:
    """Measure a tiny step after a step with the same settings of Spark, and after one with others."""
    with closing(LocalLake(bench.context.folder / "changes")) as lake:
        lake.create_repository("bench")

        def after_same(definition: TaskDefinition) -> float:
            bench.alone(lake, "bench", SAME, {"rows": 3})
            return bench.alone(lake, "bench", definition, {"rows": 3})

        took = bench.turns(
            {
                "same settings": lambda: after_same(SAME),
                "other settings of SQL": lambda: after_same(OTHER_SQL),
                "other memory": lambda: after_same(OTHER_MEMORY),
            },
            rounds=3,
        )
    return [
        Row("tiny attempt after one of a task with the same Spark settings", took["same settings"], "s"),
        Row(
            "with other settings of SQL, against that",
            took["other settings of SQL"] / took["same settings"],
            "times",
        ),
        Row(
            "with other memory, which needs another JVM: more seconds",
            took["other memory"] - took["same settings"],
            "s",
        ),
    ]


def _plain_clean(given: SparkWorkspace, plain: SparkWorkspace) -> None:
    """Do what the task's body does, on local folders."""
    from_files = given.read("raw/csv", format="csv", schema=RawPlay, header=True)
    raw = from_files.union(given.read("raw/json", format="json", schema=RawPlay))
    plain.write(transform.clean(raw), "published/plays", schema=Play)
    plain.write(transform.rejected(raw), "published/rejected")
