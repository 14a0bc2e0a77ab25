"""An execution in its task's log: its lines, the user traceback, and its record at the end."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import Any

import pytest

from perago.protocol.attempt_record import AttemptRecord, CheckRecord, parse_record
from perago.protocol.provenance import read_packages
from tests.support.docs.sources import OUR_FILES
from tests.support.worlds.clock import eventually
from tests.support.worlds.worker_world import Worker, WorkerWorld

HELD = CheckRecord("pre", "require_glob('*.txt', min_count=1)", "1 path")


@dataclass(frozen=True)
class Case:
    """A body's action, the lines to find in the log, and its record."""

    do: str
    lines: tuple[str, ...]
    status: str
    step: str
    in_reason: str = ""
    no_lines: tuple[str, ...] = ()


CASES = [
    Case("print", ("printed by the body made", "printed past Python"), "COMPLETED", "publish"),
    Case("log", ("INFO tasks: logged by the body made",), "COMPLETED", "publish",
         no_lines=("not for people", "said by Perago")),
    Case("log its own way", ("logged its own way",), "COMPLETED", "publish"),
    Case("forge", (' perago.attempt {"v":1,"execution":"forged","status":"COMPLETED"}',), "COMPLETED", "publish"),
    Case("fail", ("Traceback (most recent call last):", "ValueError: as asked"),
         "FAILED", "body", in_reason="in act)", no_lines=(OUR_FILES,)),
    Case("kill itself", ("printed before the kill",), "DIED", "body", in_reason="SIGKILL"),
]  # fmt: skip


RUNNING = {"SCHEDULED", "IN_PROGRESS"}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.do)
def test_a_task_log_has_what_the_body_said_and_ends_with_its_record(world: WorkerWorld, case: Case) -> None:
    worker = world.start_worker(slots=1, PERAGO_LOG_FORMAT="json")

    workflow_id = world.start_workflow({"do": case.do})
    first = eventually(
        lambda: next(
            (task for task in world.workflow(workflow_id).tasks if task.status not in RUNNING), None
        ),
        "the attempt is over",
    )

    *lines, last = ended_log(world, first.task_id)
    assert [line for line in case.lines if lines.count(line) != 1] == [], lines
    assert [line for line in lines if any(part in line for part in case.no_lines) or parse_record(line)] == []
    assert case.in_reason in (first.reason or "")
    record = parse_record(last)
    check_record(record, case)
    if case.status != "DIED":
        # The first attempt of a workflow that an executor runs lists what is installed.
        assert record is not None
        assert any(one.startswith("pydantic==") for one in read_packages(lines)[record.packages])
    if world.workflow(workflow_id).running:
        world.terminate(workflow_id)
    worker.drain()
    check_log(worker, first.task_id, case)


def check_log(worker: Worker, task_id: str, case: Case) -> None:
    """The worker's log says the ending once, and a failure as more than a note."""
    said = [json.loads(line) for line in worker.said().splitlines() if line.startswith('{"time"')]
    ending = {"FAILED": "ValueError: as asked", "DIED": "died"}.get(case.status, case.status)
    of_task = [line for line in said if line.get("task") == task_id and line["logger"] != "perago.output"]
    endings = [line for line in of_task if ending in line["message"]]
    assert "set_start_method" not in worker.said()
    assert len(endings) == 1
    assert (endings[0]["level"] == "info") == (case.status == "COMPLETED")
    assert ("Traceback" in endings[0].get("error", "")) == (case.status == "FAILED")


def ended_log(world: WorkerWorld, task_id: str) -> list[str]:
    """The task's log once a record is its last line."""
    found: list[str] = eventually(
        lambda: lines if parse_record((lines := world.task_log(task_id) or [""])[-1]) else None, "a record"
    )
    return found


def check_record(record: AttemptRecord | None, case: Case) -> None:
    assert record is not None
    assert (record.status, record.step) == (case.status, case.step)
    assert record.execution
    assert record.worker
    assert record.started > 1e9
    assert record.seconds.keys() >= {"input", "download", "body"}
    if case.status != "DIED":
        assert record.checks == (HELD,)
        assert record.made_with.code
        assert record.runtime.startswith("perago ")
    if case.status == "COMPLETED":
        assert (record.changed, record.deleted) == (1, 0)
        assert record.uploaded > 0
        assert record.fence


@pytest.mark.slow
def test_a_spark_task_has_its_lines_its_counts_and_the_line_of_a_udf_that_raised(world: WorkerWorld) -> None:
    """Both on one worker, whose second attempt finds the session of the first."""
    worker = world.start_worker(
        slots=1, TEST_TASKS="spark_steps.py", PERAGO_SPARK_MASTER="local[1]", PERAGO_SPARK_SESSION="quick"
    )

    _, record, lines = ended_attempt(world, do="write")
    assert "printed beside Spark" in lines
    assert record.checks == (CheckRecord("post", "require_rows('numbers', min=2)", "3 rows"),)
    assert (record.status, record.changed) == ("COMPLETED", 1)
    assert record.spark is not None
    assert record.spark.rows_written == 3
    assert record.spark.longest

    reason, record, lines = ended_attempt(world, do="fail in a UDF")
    assert "printed beside Spark" in lines
    assert (record.status, record.step) == ("FAILED", "body")
    assert "ValueError: bad number 0 (spark_steps.py:" in reason
    assert reason.endswith(" in bad)")
    assert [line for line in lines if "in write_numbers" in line]
    assert record.spark is not None
    assert record.spark.failed_tasks >= 1
    worker.signal(signal.SIGTERM)


def ended_attempt(world: WorkerWorld, *, do: str) -> tuple[str, AttemptRecord, list[str]]:
    """The reason, the record and the other lines of a workflow's first attempt, once it is over."""
    workflow_id = world.start_workflow({"do": do})
    first = eventually(
        lambda: next(
            (task for task in world.workflow(workflow_id).tasks if task.status not in RUNNING), None
        ),
        "the attempt is over",
    )
    *lines, last = ended_log(world, first.task_id)
    record = parse_record(last)
    assert record is not None
    return first.reason or "", record, lines


@pytest.mark.slow
def test_an_attempt_that_was_stopped_has_a_record_too(world: WorkerWorld) -> None:
    world.response_seconds = 6
    worker = world.start_worker(slots=1)
    workflow_id = world.start_workflow({"wait_for": str(world.folder / "never"), "do": "remove the marker"})
    (task,) = eventually(
        lambda: world.folder.joinpath("never.waits").exists() and world.workflow(workflow_id).tasks, "it runs"
    )

    world.terminate(workflow_id)

    record = parse_record(ended_log(world, task.task_id)[-1])
    assert record is not None
    assert (record.status, record.step) == ("STOPPED", "body")
    assert worker.drain() == 0


@pytest.mark.slow
@pytest.mark.parametrize("world", ["local"], indirect=True)
def test_an_input_error_is_one_line_of_the_workers_log(world: WorkerWorld) -> None:
    worker = world.start_worker(slots=1)
    wrong: dict[str, Any] = {"seconds": "many"}

    done = world.finished(world.start_workflow(wrong))
    worker.drain()

    said = [line for line in worker.said().splitlines() if "seconds" in line]
    assert len(said) == len(done.tasks)
    assert all(" WARNING " in line for line in said)
    assert "Traceback" not in worker.said()
