"""Settings that engines force on their sessions, and the text about a lost job; nothing here starts a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from perago.settings import load_settings
from perago.spark.engine_context import EngineContext, with_max_failures
from perago.spark.worker_engine import SparkJobs, lost_reason
from perago.spark_defaults import parse_conf


@pytest.mark.parametrize(
    ("master", "meant"),
    [
        ("local", "local[1,1]"),
        ("local[*]", "local[*,1]"),
        ("local[2]", "local[2,1]"),
        ("local[2,8]", "local[2,1]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://head:7077", "spark://head:7077"),
    ],
)
def test_a_local_master_gives_a_task_up_as_clusters_are_told_to(master: str, meant: str) -> None:
    assert with_max_failures(master, 1) == meant


def test_settings_that_a_workers_jobs_need_win_over_configured_ones(tmp_path: Path) -> None:
    said = "spark.task.maxFailures=4;spark.speculation=true;spark.scheduler.mode=FIFO;spark.executor.cores=3"
    settings = load_settings({"PERAGO_SPARK_CONF": said, "PERAGO_SPARK_MASTER": "local[2,4]"}, root=tmp_path)

    jobs = SparkJobs(settings)
    context: EngineContext = jobs._context
    conf = parse_conf(context._sessions._settings.spark_conf)

    assert context._sessions._settings.spark_master == "local[2,1]"
    assert conf["spark.task.maxFailures"] == "1"
    assert conf["spark.speculation"] == "false"
    assert conf["spark.scheduler.mode"] == "FAIR"
    assert conf["spark.locality.wait"] == "0s"
    assert conf["spark.executor.cores"] == "3"


def test_a_job_that_was_never_begun_is_cancelled_without_starting_spark(tmp_path: Path) -> None:
    SparkJobs(load_settings({}, root=tmp_path)).cancel("job")

    assert not (tmp_path / "spark").exists()


def test_a_lost_executor_is_reported_with_its_reason_and_without_the_stack() -> None:
    text = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most "
        "recent failure: Lost task 0.0 in stage 3.0 (TID 3) (127.0.0.1 executor 1): ExecutorLostFailure (executor 1 exited "
        "caused by one of the running tasks) Reason: Command exited with code 137\nDriver stacktrace:\n\tat org.apache"
    )

    assert lost_reason(RuntimeError(text)) == "its Spark executor: Command exited with code 137"
