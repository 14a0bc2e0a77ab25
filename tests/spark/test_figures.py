"""The figures of an attempt: what Spark read, wrote and shuffled, its failed tasks, longest stages and memory."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from perago import SparkWorkspace, TaskFailed, require_unique
from perago.protocol.attempt_record import AttemptRecord, SparkFigures, parse_record, record_line
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.observe.health import HealthState
from perago.runtime.observe.metrics import open_metrics
from perago.runtime.runs.format import record_lines
from perago.spark.figures import counting_work
from perago.spark.session import Sessions
from tests.support.worlds.spark_world import Made, Params, SparkWorld
from tests.support.worlds.world import published_ref


def figures(settled: ExecutionResult) -> SparkFigures:
    assert settled.seen.spark is not None
    return settled.seen.spark


def test_the_figures_say_what_the_body_read_and_wrote_on_either_placement(world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.spark.sparkContext.setJobDescription("sum the events")
        events = workspace.read("raw", format="csv", header=True)
        workspace.write(events.groupBy("user").count().repartition(2), "counts")
        return Made(said="done")

    settled = world.run(world.task(body))

    published_ref(settled)
    found = figures(settled)
    written = sum(
        entry.size
        for entry in world.lake.list(world.repository, "main", "data/counts/")
        if entry.path.endswith(".parquet")
    )
    assert (found.rows_written, found.bytes_written, found.failed_tasks) == (2, written, 0)
    assert found.rows_read >= 3
    assert found.bytes_read > 0
    assert found.shuffle_written > 0
    assert found.shuffle_read > 0
    assert found.jobs > 0
    assert found.tasks >= found.stages >= 2
    assert 1 <= len(found.longest) <= 3
    assert [stage.seconds for stage in found.longest] == sorted(
        (stage.seconds for stage in found.longest), reverse=True
    )
    assert {stage.name for stage in found.longest} == {"sum the events"}
    assert not found.partial


def test_stages_without_a_description_of_their_own_are_named_by_their_operations(
    local_world: SparkWorld,
) -> None:
    settled = local_world.run(local_world.task())

    names = [stage.name for stage in figures(settled).longest]
    assert [name for name in names if "Scan csv" in name], names
    assert not [name for name in names if "perago" in name], names


def test_a_long_description_of_several_lines_is_one_short_name(local_world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.spark.sparkContext.setJobDescription("\nsum\n  of " + "events " * 50)
        workspace.spark.range(3).count()
        return Made(said="done")

    names = {stage.name for stage in figures(local_world.run(local_world.task(body, read_only=True))).longest}

    assert names == {("sum of " + "events " * 50)[:78].rstrip() + " …"}


def test_the_checks_of_tables_count_as_work_of_the_attempt(local_world: SparkWorld) -> None:
    plain = figures(local_world.run(local_world.task(name="plain")))
    checked = figures(
        local_world.run(local_world.task(name="checked", post=[require_unique("counts", "user")]))
    )

    assert checked.jobs == plain.jobs + 1
    assert checked.rows_read > plain.rows_read


def test_an_attempt_that_fails_has_figures_with_its_failed_tasks(local_world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        def wrong(number):
            raise ValueError("bad number")

        workspace.write(workspace.spark.range(2).select(F.udf(wrong, LongType())("id")), "never")
        return Made(said="done")

    settled = local_world.run(local_world.task(body))

    assert settled.outcome.status == "FAILED"
    assert figures(settled).failed_tasks >= 1


def test_a_job_in_a_group_of_the_bodys_own_counts(local_world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.spark.sparkContext.setJobGroup("mine", "my own work")
        workspace.spark.range(10, numPartitions=1).collect()
        return Made(said="done")

    found = figures(local_world.run(local_world.task(body, read_only=True)))

    assert (found.jobs, found.tasks) == (1, 1)
    assert [stage.name for stage in found.longest] == ["my own work"]


def test_the_memory_of_an_executor_is_known_once_it_was_measured_in_a_task(
    local_world: SparkWorld, sessions: Sessions
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        # Executors measure their memory every 200 ms; a task that ends between two measurements has none.
        context: Any = workspace.spark.sparkContext
        measured = False
        while not measured:
            workspace.spark.range(5_000_000, numPartitions=1).selectExpr("sum(hash(id, id))").collect()
            store = context._jsc.sc().statusStore()
            context._jsc.sc().listenerBus().waitUntilEmpty()
            stage = store.jobsList(None).apply(0).stageIds().apply(0)
            peak = store.lastStageAttempt(stage).peakExecutorMetrics()
            measured = peak.isDefined() and peak.get().getMetricValue("JVMHeapMemory") > 0
        return Made(said="done")

    assert figures(local_world.run(local_world.task(body, read_only=True))).peak_memory > 1_000_000


def test_a_body_that_stopped_spark_is_no_reason_for_another_error(sessions: Sessions) -> None:
    class Gone:
        _jsc = None

    class Counted:
        spark: SparkFigures | None = None

    gone: Any = Gone()
    counted: Any = Counted()
    with pytest.raises(TaskFailed), counting_work(gone, "", "", counted):
        raise TaskFailed("its own reason")

    assert counted.spark is None


def test_figures_are_partial_where_spark_has_forgotten_stages(
    local_world: SparkWorld, sessions: Sessions
) -> None:
    """Spark keeps the newest 1000 jobs unless told otherwise, whole attempts included."""

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        context: Any = workspace.spark.sparkContext
        for _ in range(3):
            workspace.spark.range(1, numPartitions=1).collect()
        context._jsc.sc().listenerBus().waitUntilEmpty()
        store = context._jsc.sc().statusStore()
        newest = store.jobsList(None).apply(0)
        stage = store.store()
        wrapper = context._jvm.java.lang.Class.forName("org.apache.spark.status.StageDataWrapper")
        key = context._gateway.new_array(context._jvm.int, 2)
        key[0], key[1] = int(newest.stageIds().apply(0)), 0
        stage.delete(wrapper, key)
        return Made(said="done")

    found = figures(local_world.run(local_world.task(body, read_only=True)))

    assert found.partial
    assert (found.jobs, found.stages) == (3, 2)
    lines = list(record_lines(AttemptRecord("e", "COMPLETED", spark=found)))
    assert "at least: Spark no longer had the figures of all stages" in lines[0]


def test_record_show_and_metrics_have_the_figures(local_world: SparkWorld) -> None:
    found = figures(local_world.run(local_world.task()))
    record = AttemptRecord("e", "COMPLETED", spark=found)

    read = parse_record(record_line(record))
    with open_metrics({}, HealthState(["make"]), worker_id="w", prometheus=True) as metrics:
        metrics.spark_worked("make", found)
        exposed = metrics.exposition().decode()

    assert read is not None
    assert read.spark == found
    shown = "\n".join(record_lines(read))
    assert f"wrote 2 rows ({found.bytes_written} B)" in shown
    assert f'perago_spark_rows_total{{kind="written",task="make"}} {found.rows_written}.0' in exposed
    assert f'perago_spark_bytes_total{{kind="written",task="make"}} {found.bytes_written}.0' in exposed


def test_jobs_name_the_task_the_step_the_workflow_and_the_attempt(local_world: SparkWorld) -> None:
    seen: list[str | None] = []

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        context = workspace.spark.sparkContext
        seen.extend(context.getLocalProperty(f"spark.job{key}") for key in ("Group.id", ".description"))
        return Made(said="done")

    definition = local_world.task(body, read_only=True)
    local_world.start(definition)
    assignment = local_world.poll(definition)
    local_world.execute(definition, assignment)

    attempt = assignment.attempt
    assert seen[0]
    assert seen[1] is not None
    assert seen[1].startswith(f"perago make: {attempt.reference_task_name} of ")
    assert seen[1].endswith(attempt.workflow_instance_id)
