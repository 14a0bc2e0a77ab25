"""An attempt's Spark jobs: groups apart, cancelled with the attempt, failures in a line, progress in a few words."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from perago import SparkWorkspace, TaskFailed
from perago.spark.session import Sessions
from tests.support.docs.sources import OUR_FILES
from tests.support.worlds.spark_world import Made, Params, SparkWorld, failed, make_spark_task
from tests.support.worlds.world import published_ref


def slow(workspace: SparkWorkspace) -> Any:
    """A table whose every row takes long enough to be caught at it."""

    def wait(number):
        time.sleep(60)
        return number

    return workspace.spark.range(4).select(F.udf(wait, LongType())("id"))


def test_two_tasks_in_one_worker_at_once_keep_their_job_groups_apart(local_world: SparkWorld) -> None:
    together, seen = threading.Barrier(2), {}

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        context = workspace.spark.sparkContext
        together.wait(timeout=60)
        for _ in range(3):
            workspace.spark.range(10).count()
        together.wait(timeout=60)
        group = context.getLocalProperty("spark.jobGroup.id")
        seen[params.text] = (group, set(context.statusTracker().getJobIdsForGroup(group)))
        return Made(said=params.text)

    tasks = {name: make_spark_task(body, name=name, read_only=True) for name in ("one", "two")}
    assignments = []
    for name, definition in tasks.items():
        local_world.start(definition, text=name)
        assignments.append((definition, local_world.poll(definition)))
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(local_world.execute, *one) for one in assignments]:
            published_ref(done.result())

    (first, first_jobs), (second, second_jobs) = seen["one"], seen["two"]
    assert first != second
    assert len(first_jobs) >= 3
    assert len(second_jobs) >= 3
    assert not first_jobs & second_jobs


def test_a_job_that_the_body_left_running_is_cancelled(local_world: SparkWorld, sessions: Sessions) -> None:
    ended: list[BaseException] = []

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        def work() -> None:
            try:
                workspace.write(slow(workspace), "late")
            except Exception as error:
                ended.append(error)

        background = InheritableThread(target=work)
        background.start()
        tracker = workspace.spark.sparkContext.statusTracker()
        while background.is_alive() and not tracker.getActiveJobsIds():
            time.sleep(0.01)
        threads.append(background)
        raise TaskFailed("the body gives up")

    threads: list[threading.Thread] = []
    assert failed(local_world.run(local_world.task(body))) == "the body gives up"

    threads[0].join(timeout=60)
    assert not sessions.get().sparkContext.statusTracker().getActiveJobsIds()
    assert "cancelled" in str(ended[0]).lower()


def test_job_groups_that_a_body_opened_end_with_it(local_world: SparkWorld, sessions: Sessions) -> None:
    names = ("spark.jobGroup.id", "spark.job.description", "spark.scheduler.pool", "spark.job.tags", "mine")
    threads: list[threading.Thread] = []

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        context = workspace.spark.sparkContext
        context.setJobGroup("of the body", "its own")
        context.addJobTag("tagged")
        context.setLocalProperty("spark.scheduler.pool", "fast")
        context.setLocalProperty("mine", "too")

        def work() -> None:
            with contextlib.suppress(Exception):
                slow(workspace).collect()

        background = InheritableThread(target=work)
        background.start()
        while background.is_alive() and not context.statusTracker().getActiveJobsIds():
            time.sleep(0.01)
        threads.append(background)
        return Made(said="")

    published_ref(local_world.run(local_world.task(body, read_only=True)))

    threads[0].join(timeout=50)
    assert not threads[0].is_alive()
    context = sessions.get().sparkContext
    assert {name: context.getLocalProperty(name) for name in names} == dict.fromkeys(names)


def test_an_exception_in_a_python_worker_reaches_conductor_as_its_last_line(local_world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        def broken(number):
            raise ValueError(f"bad number {number}")

        numbers = workspace.spark.range(1).select(F.udf(broken, LongType())("id").alias("n"))
        workspace.write(numbers, "numbers")
        return Made(said="")

    settled = local_world.run(local_world.task(body))
    reason = failed(settled)

    assert reason.startswith("writing table 'numbers' failed: ValueError: bad number 0 (test_job_group.py:")
    assert reason.endswith(" in broken)")
    assert "ValueError: bad number 0" in "\n".join(settled.seen.trace)
    assert not [line for line in settled.seen.trace if OUR_FILES in line or line.strip().startswith("at ")]


def test_an_exception_in_a_python_worker_that_the_body_itself_asks_for_names_its_line_too(
    local_world: SparkWorld,
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        def broken(number):
            raise ValueError(f"bad number {number}")

        return Made(said=str(workspace.spark.range(1).select(F.udf(broken, LongType())("id")).collect()))

    reason = failed(local_world.run(local_world.task(body)))

    assert "ValueError: bad number 0 (test_job_group.py:" in reason
    assert reason.endswith(" in broken)")


@pytest.mark.parametrize(
    ("sql", "cause"),
    [
        ("SELECT user / 0 AS x FROM t", "DIVIDE_BY_ZERO"),
        ("SELECT nothing FROM t", "UNRESOLVED_COLUMN"),
        ("SELEKT", "PARSE_SYNTAX_ERROR"),
        ("SELECT CAST(user AS INT) FROM t WHERE user = 'ann'", "CAST_INVALID_INPUT"),
    ],
)
def test_a_failure_of_spark_is_the_cause_the_table_and_the_task_in_a_line(
    local_world: SparkWorld, sql: str, cause: str
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.read("raw", format="csv", header=True).createOrReplaceTempView("t")
        return Made(said=str(workspace.spark.sql(sql.replace("user /", "ms /")).collect()))

    reason = failed(local_world.run(local_world.task(body)))

    assert reason.startswith("Spark failed in task 'make': [")
    assert "(test_job_group.py:" in reason
    assert reason.endswith(" in body)")
    assert cause in reason
    assert "raw" in reason
    assert "\n" not in reason
    assert len(reason) < 400
    assert str(local_world.folder) not in reason


def test_a_table_that_is_not_there_is_named(local_world: SparkWorld) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        return Made(said=str(workspace.read("nowhere").count()))

    reason = failed(local_world.run(local_world.task(body)))

    assert reason.startswith("reading table 'nowhere' failed: [PATH_NOT_FOUND]")
    assert str(local_world.folder) not in reason


def test_progress_of_stages_is_told(local_world: SparkWorld) -> None:
    notes: list[str] = []

    def waiting(workspace: SparkWorkspace, params: Params) -> Made:
        flag = local_world.folder / "told"

        def wait(number):
            while not flag.exists():
                time.sleep(0.01)
            return number

        workspace.spark.range(2).select(F.udf(wait, LongType())("id")).collect()
        return Made(said="")

    def note(text: str) -> None:
        notes.append(text)
        (local_world.folder / "told").touch()

    definition = local_world.task(waiting)
    local_world.start(definition)
    local_world.execute(definition, local_world.poll(definition), note=note)

    assert notes[0].startswith("Spark stage ")
    assert notes[0].endswith("/2")
