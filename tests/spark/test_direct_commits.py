"""Tables that Spark writes on a staging branch under their final names: what it gave up is never published."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from perago import SparkWorkspace
from perago.declare.table_checks import require_rows
from perago.spark import direct_commits
from perago.spark.session import Sessions
from tests.conftest import ConductorServer, LakefsServer, fresh_repository
from tests.spark.conftest import on_cluster
from tests.support.faults.ports import before
from tests.support.processes.commands import Shell
from tests.support.servers.lakefs import lakefs_lake
from tests.support.tasks import speculative_task
from tests.support.worlds.spark_world import Made, Params, SparkWorld, failed, published_table
from tests.support.worlds.world import published_ref

FILE = re.compile(
    r"data/table/(?:day=\d/)?part-\d{5}-(?P<job>[0-9a-f-]{36})-(?P<attempt>\d+)[-.]c000\.snappy\.parquet"
)


def write_three(workspace: SparkWorkspace, params: Params) -> Made:
    workspace.write(workspace.spark.range(3).coalesce(1), "table")
    return Made(said="done")


def staging(world: SparkWorld) -> str:
    [name] = [name for name in world.leftovers() if "-claim-" not in name]
    return name


def plant_stray(world: SparkWorld, branch: str) -> str:
    """Put a file on the branch as a task attempt of the same job would that Spark has given up."""
    [path] = [path for path in world.paths(branch) if path.startswith("data/table/")]
    match = FILE.fullmatch(path)
    assert match is not None, path
    stray = path.replace(f"-{match['attempt']}-c000", "-999999-c000")
    content = b"".join(world.lake.read(world.repository, branch, path))
    world.lake.create_object(world.repository, branch, stray, content)
    return stray


def test_tables_are_written_under_their_final_names_whichever_way_a_body_writes_them(
    direct_world: SparkWorld,
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        rows = workspace.spark.range(4).repartition(2)
        workspace.write(rows.withColumn("day", F.col("id") % 2), "table", partition_by="day")
        rows.withColumn("day", F.lit(3)).write.mode("append").partitionBy("day").parquet(
            workspace.uri("table")
        )
        return Made(said="done")

    published_ref(direct_world.run(direct_world.task(body)))

    files = [path for path in direct_world.paths() if path.startswith("data/table/")]
    jobs = Counter(match["job"] for path in files if (match := FILE.fullmatch(path)))
    assert sum(jobs.values()) == len(files)
    assert len(jobs) == 2
    assert [row["id"] for row in direct_world.rows("data/table")] == sorted([*range(4), *range(4)])


def test_what_a_task_wrote_after_spark_gave_it_up_is_neither_checked_nor_published(
    direct_world: SparkWorld, caplog: pytest.LogCaptureFixture
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        write_three(workspace, params)
        strays.append(plant_stray(direct_world, staging(direct_world)))
        return Made(said="done")

    strays: list[str] = []
    checked = direct_world.task(body, post=[require_rows("table", min=3, max=3)])

    published_ref(direct_world.run(checked))

    assert not set(strays) & set(direct_world.paths())
    assert len(direct_world.rows("data/table")) == 3
    assert strays[0] in caplog.text


def test_a_file_that_arrives_while_the_branch_is_committed_fails_the_attempt_and_a_retry_succeeds(
    direct_world: SparkWorld,
) -> None:
    definition = direct_world.task(write_three)
    direct_world.start(definition)
    head = direct_world.head().id
    late = before(
        direct_world.lake, "commit", lambda: plant_stray(direct_world, staging(direct_world)) and None
    )

    reason = failed(direct_world.execute(definition, direct_world.poll(definition), lake=late))
    unmoved = direct_world.head().id
    published_ref(direct_world.execute(definition, direct_world.retry(definition)))

    assert "a Spark task that Spark had given up wrote data/table/part-00000-" in reason
    assert "nothing is published" in reason
    assert unmoved == head
    assert len(direct_world.rows("data/table")) == 3


def test_files_of_a_user_that_are_named_alike_are_published(direct_world: SparkWorld) -> None:
    mine = "data/table/part-00000-00000000-0000-0000-0000-000000000000-7-c000.snappy.parquet"

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        direct_world.put({mine: "mine"}, branch=staging(direct_world))
        workspace.write(workspace.spark.range(3).coalesce(1), "other")
        return Made(said="done")

    published_ref(direct_world.run(direct_world.task(body)))

    assert mine in direct_world.paths()


@pytest.mark.parametrize("mode", ["append", "overwrite_partitions"])
def test_a_write_that_fails_leaves_nothing_behind_for_a_body_that_goes_on(
    direct_world: SparkWorld, mode: Any
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        rows = workspace.spark.range(8).repartition(4).withColumn("day", F.col("id") % 2)
        workspace.write(rows, "table", partition_by="day")
        broken = rows.selectExpr("IF(id = 3, raise_error('broken'), id) AS id", "day")
        with pytest.raises(Exception, match="broken"):
            workspace.write(broken, "table", partition_by="day", mode=mode)
        assert workspace.read("table").count() == 8
        return Made(said="done")

    published_ref(direct_world.run(direct_world.task(body)))

    assert [row["id"] for row in direct_world.rows("data/table")] == list(range(8))


def test_a_table_written_elsewhere_is_committed_as_by_spark_itself(
    direct_world: SparkWorld, tmp_path: Path
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        write_three(workspace, params)
        rows = workspace.spark.range(4).withColumn("day", F.col("id") % 2)
        rows.write.partitionBy("day").parquet(elsewhere)
        one = rows.where("day = 1").withColumn("id", F.lit(10))
        one.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy("day").parquet(
            elsewhere
        )
        return Made(
            said=",".join(str(row.id) for row in workspace.spark.read.parquet(elsewhere).sort("id").collect())
        )

    elsewhere = str(tmp_path / "elsewhere")
    settled = direct_world.run(direct_world.task(body))

    assert settled.outcome.output is not None
    assert settled.outcome.output["result"]["said"] == "0,2,10,10"
    assert not (Path(elsewhere) / "_temporary").exists()


def test_a_spark_that_cannot_have_it_writes_as_before_and_says_so(
    direct_world: SparkWorld,
    sessions: Sessions,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "Wrong.java").write_text("package wrong; class { }")
    monkeypatch.setattr(direct_commits, "_SOURCE", tmp_path / "Wrong.java")
    monkeypatch.setattr(direct_commits, "PROTOCOL", "perago.spark.NotThere")

    direct_commits.install(sessions.get(), tmp_path)
    published_ref(direct_world.run(direct_world.task(write_three)))

    assert "its own committer is used" in caplog.text
    [path] = [path for path in direct_world.paths() if path.startswith("data/table/")]
    assert FILE.fullmatch(path) is None
    assert len(direct_world.rows("data/table")) == 3


def test_speculative_attempts_on_a_cluster_write_each_row_once(
    master: str, lakefs_server: LakefsServer, conductor_server: ConductorServer, tmp_path: Path
) -> None:
    shell = Shell(tmp_path)
    shell.environ |= {
        "LAKECTL_SERVER_ENDPOINT_URL": lakefs_server.url,
        "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": lakefs_server.access_key_id,
        "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": lakefs_server.secret_access_key,
        "CONDUCTOR_SERVER_URL": conductor_server.url,
        "PERAGO_SPARK_MASTER": master,
        "PERAGO_SPARK_CONF": on_cluster({"spark.cores.max": "6", "spark.executor.cores": "2"}),
        "PYSPARK_PYTHON": sys.executable,
    }
    flags = tmp_path / "flags"
    flags.mkdir()
    # Spark never runs two attempts of a task on one host, and the cluster's workers share theirs.
    with (
        worker_on("127.0.0.2", master, tmp_path),
        fresh_repository(lakefs_server) as repository,
        closing(lakefs_lake(lakefs_server, tmp_path / "cache")) as lake,
    ):
        step = {
            "name": "write_twice",
            "taskReferenceName": "write",
            "type": "SIMPLE",
            "inputParameters": {"workspace": "${workflow.input.workspace}", "params": {"folder": str(flags)}},
        }
        flow = {"name": "speculation", "version": 1, "schemaVersion": 2, "tasks": [step]}
        (tmp_path / "flow.json").write_text(json.dumps(flow))
        tasks = ["--tasks", speculative_task.__file__, "--workspace", repository]
        ended = shell.run("run", "flow.json", *tasks, "--remote", "--yes")
        assert ended.code == 0, ended.err
        rows = published_table(lake, repository, "table", tmp_path / "table")

    attempts = {(row["partition"], row["attempt"]) for row in rows}
    assert Counter((row["partition"], row["row"]) for row in rows) == Counter(
        (partition, row)
        for partition in range(speculative_task.PARTITIONS)
        for row in range(speculative_task.ROWS)
    )
    assert len(attempts) == speculative_task.PARTITIONS, "a partition has rows of two attempts"
    assert any(attempt > 0 for _, attempt in attempts), "no second attempt was faster"


@contextmanager
def worker_on(host: str, master: str, folder: Path) -> Iterator[None]:
    """Run one more worker of the cluster, on another address of this machine."""
    package = importlib.util.find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    home = Path(package.origin).parent
    sizes = ["--cores", "2", "--memory", "2g", "--work-dir", str(folder / "work"), "--webui-port", "0"]
    worker = subprocess.Popen(
        [
            home / "bin" / "spark-class",
            "org.apache.spark.deploy.worker.Worker",
            "--host",
            host,
            *sizes,
            master,
        ],
        env={**os.environ, "SPARK_LOCAL_IP": host, "SPARK_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(timeout=60)
