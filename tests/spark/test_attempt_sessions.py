"""A session for each attempt: what one does to Spark does not reach the next, and an attempt that breaks Spark says so."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from perago import SparkWorkspace, require_rows
from perago.spark.session import Sessions
from tests.support.worlds.spark_world import Made, Params, SparkWorld, failed
from tests.support.worlds.world import published_ref

SETTINGS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.shuffle.partitions": "3",
    "mine": "too",
}
HADOOP = {
    "fs.mine": "too",
    "io.file.buffer.size": "1",
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
}


def look(workspace: SparkWorkspace, params: Params) -> Made:
    """Tell everything that another attempt may have changed."""
    spark = workspace.spark
    context: Any = spark.sparkContext
    catalog = spark.catalog
    hadoop = context._jsc.hadoopConfiguration()
    found = {
        "settings": {name: spark.conf.get(name, None) for name in SETTINGS},
        "hadoop": {name: hadoop.get(name) for name in HADOOP},
        "database": catalog.currentDatabase(),
        "databases": sorted(database.name for database in catalog.listDatabases()),
        "tables": [
            catalog.tableExists(name) for name in ("managed", "other.managed", "view", "global_temp.seen")
        ],
        "functions": [catalog.functionExists(name) for name in ("mine", "theirs")],
        "cached": len(context._jsc.getPersistentRDDs()),
        "files": [list(context.listFiles), list(context.listArchives), list(context._python_includes)],
        "checkpoints": context.getCheckpointDir(),
        "property": context.getLocalProperty("mine"),
        "python": context.environment.get("MINE"),
        "default": SparkSession.builder.getOrCreate() is spark
        and SparkSession.getActiveSession() is not None,
    }
    return Made(said=json.dumps(found))


def mess_up(workspace: SparkWorkspace, params: Params) -> Made:
    """Change all of it."""
    spark = SparkSession.builder.config("mine", "too").getOrCreate()
    context: Any = spark.sparkContext
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    for name, value in HADOOP.items():
        context._jsc.hadoopConfiguration().set(name, value)
    context._jsc.hadoopConfiguration().unset("fs.file.impl")
    spark.sql("CREATE TABLE managed AS SELECT 1 AS one")
    spark.sql("CREATE DATABASE other")
    spark.sql("USE other")
    spark.range(1).write.saveAsTable("managed")
    spark.range(1).createOrReplaceTempView("view")
    spark.range(1).createGlobalTempView("seen")
    spark.udf.register("mine", lambda: 1)
    spark.sql("CREATE FUNCTION default.theirs AS 'org.apache.spark.sql.catalyst.expressions.Abs'")
    spark.sql("CACHE TABLE cached AS SELECT 2 AS two")
    context.parallelize([1]).persist().count()
    folder = Path(workspace.uri("added").removeprefix("file://"))
    folder.mkdir(exist_ok=True)
    for name in ("data.txt", "code.py"):
        (folder / name).write_text(f"# {params.text}")
    context.addFile(str(folder / "data.txt"))
    context.addPyFile(str(folder / "code.py"))
    context.setCheckpointDir(str(folder / "checkpoints"))
    context.setLocalProperty("mine", "too")
    context.environment["MINE"] = "too"
    # ANSI is off: this is NULL here, and an error in a separate attempt.
    return Made(said=str(spark.sql("SELECT CAST('x' AS INT) AS n").first().n))


def said(world: SparkWorld, body: Any, text: str = "hello", **spec: Any) -> str:
    settled = world.run(world.task(body, **{"read_only": True, **spec}), text=text)
    published_ref(settled)
    assert settled.outcome.output is not None
    found: str = settled.outcome.output["result"]["said"]
    return found


def test_nothing_that_an_attempt_does_to_spark_reaches_the_next(
    local_world: SparkWorld, sessions: Sessions
) -> None:
    before = said(local_world, look)
    assert json.loads(before)["default"] is True

    # Twice, with other contents: the second try computes what the first one did.
    assert [said(local_world, mess_up, text) for text in ("one", "two")] == ["None", "None"]

    assert json.loads(said(local_world, look)) == json.loads(before)
    assert SparkSession.builder.getOrCreate() is sessions.get()


def test_settings_of_a_failed_try_do_not_change_what_its_retry_computes(local_world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        numbers = (
            workspace.spark.sql("SELECT CAST('x' AS INT) AS n").collect() if params.text == "compute" else []
        )
        workspace.spark.conf.set("spark.sql.ansi.enabled", "false")
        return Made(said=str(numbers))

    said(local_world, body)

    assert "CAST_INVALID_INPUT" in failed(local_world.run(local_world.task(body), text="compute"))


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("df.write.saveAsTable('lost')", "lost"),
        ("sql('CREATE TABLE lost AS SELECT 1')", "lost"),
        ("sql('CREATE TABLE lost (n INT)')", "lost"),
        ("sql('CREATE DATABASE mine')", "database mine"),
        ("[sql('CREATE SCHEMA mine'), df.write.saveAsTable('mine.lost')]", "database mine, mine.lost"),
        (
            "df.write.mode('overwrite').option('path', f'{elsewhere}').saveAsTable('lost')",
            "lost at file://{elsewhere}",
        ),
        (
            "sql(f\"CREATE TABLE lost (n INT) USING parquet LOCATION '{elsewhere}'\")",
            "lost at file://{elsewhere}",
        ),
    ],
)
def test_what_is_left_in_sparks_own_catalog_fails_by_name_because_it_would_be_lost(
    local_world: SparkWorld, statement: str, named: str, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "else where"
    named = named.format(elsewhere=elsewhere)

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        known = {"df": workspace.spark.range(3), "sql": workspace.spark.sql, "elsewhere": elsewhere}
        eval(statement, known)
        return Made(said="")

    for _ in range(2):
        reason = failed(local_world.run(local_world.task(body)))
        assert reason.startswith(f"the task created {named} in Spark's own catalog")
        assert "workspace.write" in reason


def test_sparks_catalog_may_be_the_first_to_open_the_staging_branch(direct_world: SparkWorld) -> None:
    def database(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.spark.sql(f"CREATE DATABASE there LOCATION '{workspace.uri('there')}'")
        workspace.spark.sql("DROP DATABASE there")
        workspace.write(workspace.spark.range(1), "table")
        # A table that is left in the catalog, with its files on the branch, is published.
        place = workspace.uri("left")
        workspace.spark.sql(f"CREATE TABLE left_there USING parquet LOCATION '{place}' AS SELECT 1 AS n")
        return Made(said="")

    # The catalog's configuration has no keys, and Hadoop keeps what is opened first for every later attempt.
    published_ref(direct_world.run(direct_world.task(database)))


def test_a_table_of_the_catalog_whose_files_are_in_the_workspace_is_published(
    local_world: SparkWorld,
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.spark.sql("CREATE TABLE scratch AS SELECT 7 AS n")
        workspace.spark.sql(
            f"CREATE TABLE named USING parquet LOCATION '{workspace.uri('table')}' AS SELECT n FROM scratch"
        )
        workspace.spark.sql("DROP TABLE scratch")
        workspace.spark.sql("CREATE DATABASE passing")
        workspace.spark.sql("DROP DATABASE passing")
        return Made(said="")

    for _ in range(2):
        local_world.run(local_world.task(body))

    assert local_world.rows("data/table") == [{"n": 7}]


def test_a_streaming_query_that_is_left_running_fails_by_name_and_is_stopped(
    local_world: SparkWorld, sessions: Sessions
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        stream = workspace.spark.readStream.format("rate").load()
        stream.writeStream.format("noop").queryName("endless").start()
        return Made(said="")

    reason = failed(local_world.run(local_world.task(body)))

    assert reason.startswith("the task left a streaming query running: endless;")
    shared: Any = sessions.get()._jsparkSession.sharedState()
    assert shared.activeStreamingQueries().isEmpty()


@pytest.mark.parametrize("afterwards", ["nothing", "uses it", "makes another"])
def test_a_body_that_stops_spark_fails_with_the_reason_and_the_next_one_has_a_new_session(
    local_world: SparkWorld, sessions: Sessions, afterwards: str
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        made = Made(said=str(workspace.spark.range(3).count()))
        workspace.write(workspace.spark.range(3), "table")
        workspace.spark.stop()
        if afterwards == "uses it":
            workspace.read("table").count()
        elif afterwards == "makes another":
            SparkSession.builder.master("local[1]").appName("another").getOrCreate().range(1).count()
        return made

    post = [require_rows("table")] if afterwards == "nothing" else []
    reason = failed(local_world.run(local_world.task(body, post=post)))

    assert "the task stopped Spark (spark.stop())" in reason
    assert json.loads(said(local_world, look))["default"] is True
    assert sessions.get().sparkContext.appName == "perago of the tests"


def test_a_body_whose_jvm_died_fails_with_the_reason_and_the_next_one_has_a_new_jvm(
    local_world: SparkWorld,
) -> None:
    plus_one, dies = F.udf(lambda number: number + 1, "int"), [False, True, False]

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        gateway: Any = workspace.spark.sparkContext._gateway
        if dies.pop(0):
            os.kill(gateway.proc.pid, signal.SIGKILL)
            gateway.proc.wait()
            return Made(said="as if nothing had happened")
        return Made(said=str(workspace.spark.range(1).select(plus_one("id")).first()[0]))

    assert said(local_world, body) == "1"
    assert failed(local_world.run(local_world.task(body))).startswith("Spark's JVM is gone")
    # The function has been used with the JVM that died.
    assert said(local_world, body) == "1"


def test_the_wait_for_the_session_is_a_step_of_its_own_after_the_download(local_world: SparkWorld) -> None:
    definition = local_world.task(look, read_only=True)
    local_world.start(definition)
    steps: list[str] = []

    settled = local_world.execute(definition, local_world.poll(definition), observe=steps.append)

    published_ref(settled)
    at = steps.index("session")
    assert steps[at - 1 : at + 2] == ["download", "session", "pre checks"]
    assert settled.seconds["session"] >= 0


def read_missing(workspace: SparkWorkspace, params: Params) -> Made:
    """Read a path that is not there, past the workspace."""
    workspace.spark.read.parquet(f"{workspace.base}/plays/rw").count()
    return Made(said="")


def test_a_path_in_a_spark_error_is_one_of_the_workspace_and_no_query_plan_follows(
    local_world: SparkWorld,
) -> None:
    missing = local_world.run(local_world.task(read_missing, read_only=True))
    unknown = local_world.run(local_world.task(select_unknown, read_only=True))

    assert "[PATH_NOT_FOUND] Path does not exist: plays/rw. (" in failed(missing)
    assert missing.seen.trace[-1].endswith("Path does not exist: plays/rw. SQLSTATE: 42K03")
    assert "`id`]. (" in failed(unknown)
    assert "Project" not in failed(unknown)


def select_unknown(workspace: SparkWorkspace, params: Params) -> Made:
    """Select a column that there is not."""
    workspace.spark.range(1).select("nope").count()
    return Made(said="")
