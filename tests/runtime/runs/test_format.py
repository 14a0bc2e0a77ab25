from __future__ import annotations

from typing import Any

import pytest

from perago.orchestrator.base import TaskState, WorkflowState
from perago.protocol.attempt_record import AttemptRecord, CheckRecord, SparkFigures, StageTime
from perago.runtime.runs.format import (
    OutputFold,
    coming_retry,
    duration,
    poll_delay,
    record_lines,
    size,
)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (None, ""),
        (0.04, "0.0 s"),
        (59.9, "59.9 s"),
        (61, "1 min 01 s"),
        (3600, "1 h 00 min"),
        (9000, "2 h 30 min"),
    ],
)
def test_a_duration_is_as_fine_as_people_want_it(seconds: float | None, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KB"), (5 * 1024**5, "5120.0 TB")]
)
def test_bytes_have_the_unit_that_fits(count: int, words: str) -> None:
    assert size(count) == words


def test_a_record_says_which_checks_did_not_pass_and_how_many_there_was_no_room_for() -> None:
    checks = [
        CheckRecord("pre", "a", "3 files"),
        CheckRecord("post", "b", "no rows", passed=False),
        CheckRecord("post", "c", "2 rows", passed=False, level="warn"),
    ]
    record = AttemptRecord("e", "FAILED", checks=checks, left_out=4, saved=10)
    assert list(record_lines(record)) == [
        "check pre a: 3 files",
        "check post b: no rows (did not pass)",
        "check post c: 2 rows (did not pass, only a warning)",
        "4 more checks are not recorded",
        "bytes: 0 B downloaded, 0 B uploaded, 10 B not moved",
    ]


def test_a_record_says_what_spark_did() -> None:
    spark = SparkFigures(
        jobs=2,
        stages=5,
        tasks=1204,
        failed_tasks=3,
        rows_read=5_000_000,
        bytes_read=2**40,
        rows_written=12,
        bytes_written=2048,
        shuffle_read=1024,
        shuffle_written=1024,
        spilled=512,
        peak_memory=2**30,
        longest=(StageTime("7 Scan parquet + Exchange", 61.0), StageTime("load", 2.0)),
    )
    assert list(record_lines(AttemptRecord("e", "COMPLETED", spark=spark))) == [
        "spark: read 5,000,000 rows (1.0 TB), wrote 12 rows (2.0 KB)",
        "spark shuffle: 1.0 KB written, 1.0 KB read, 512 B spilled to disk",
        "spark work: 2 jobs, 5 stages, 1,204 tasks (3 failed), 1.0 GB peak executor memory",
        "spark longest stages: 7 Scan parquet + Exchange 1 min 01 s, load 2.0 s",
    ]


def test_a_record_that_knows_nothing_says_nothing() -> None:
    assert list(record_lines(AttemptRecord("e", "FAILED"))) == []


def task(status: str, retry_count: int, **fields: Any) -> TaskState:
    return TaskState(
        reference=fields.pop("reference", "clean"),
        task_name="clean",
        task_type="SIMPLE",
        task_id=f"id-{retry_count}",
        status=status,
        retry_count=retry_count,
        iteration=0,
        seq=retry_count + 1,
        **fields,
    )


def state(*tasks: TaskState) -> WorkflowState:
    return WorkflowState("flow", "RUNNING", None, {}, tasks)


FAILED = task("FAILED", 0)


@pytest.mark.parametrize(
    ("following", "text"),
    [
        (task("SCHEDULED", 1, available=160.0, retry_limit=3), "; retry 1 of 3 in 60 s"),
        (task("SCHEDULED", 1, available=100.0, retry_limit=3), "; retry 1 of 3 now"),
        (task("SCHEDULED", 1, available=160.0), "; retry 1 in 60 s"),
        # A task without retries that was resumed by hand.
        (task("SCHEDULED", 1, available=100.0, retry_limit=0), "; retry 1 now"),
        (task("IN_PROGRESS", 1, available=100.0, retry_limit=3), ""),
        (task("SCHEDULED", 1, reference="other", available=160.0), ""),
    ],
)
def test_a_failed_try_says_what_follows(following: TaskState, text: str) -> None:
    assert coming_retry(state(FAILED, following), FAILED, now=100.0) == text


def test_a_waiting_step_shows_its_delay_and_others_show_nothing() -> None:
    assert poll_delay(task("SCHEDULED", 1, available=142.0), now=100.0) == "in 42 s"
    assert poll_delay(task("SCHEDULED", 1, available=90.0), now=100.0) == ""
    assert poll_delay(task("COMPLETED", 1, available=142.0), now=100.0) == ""


SPARK_SAID = """\
WARNING: Using incubator modules: jdk.incubator.vector
reading
20:25:21 WARN FileStreamSink: Assume no metadata directory.
java.io.FileNotFoundException: File file:/x does not exist
\tat org.apache.hadoop.fs.RawLocalFileSystem.deprecatedGetFileStatus(RawLocalFileSystem.java:980)
\tat org.apache.spark.sql.catalyst.analysis.Resolve$$anonfun$apply$1.$anonfun$applyOrElse$2(Resolve.scala:61)
\tat java.base/jdk.internal.reflect.NativeMethodAccessorImpl.invoke0(Native Method)
\tat org.apache.spark.sql.catalyst.expressions.GeneratedClass$GeneratedIteratorForCodegenStage1.processNext(Unknown Source)
Caused by: java.io.IOException: disk
\t... 12 more
org.apache.spark.api.java.JavaSparkContext.<init>(JavaSparkContext.scala:59)
  File "tasks.py", line 3, in clean (at tasks.java:1)
look at me.you(Some where)
"""


STACK = "    … (a JVM stack: --verbose shows it)"
AGAIN = "… (the same error again: --verbose shows it)"


def folded(text: str, fold: OutputFold | None = None) -> list[str]:
    fold = fold or OutputFold()
    return [shown for line in text.splitlines() for shown in fold(line)]


def test_of_a_jvm_stack_the_lines_that_matter_are_left() -> None:
    assert folded(SPARK_SAID) == [
        "reading",
        "20:25:21 WARN FileStreamSink: Assume no metadata directory.",
        "java.io.FileNotFoundException: File file:/x does not exist",
        STACK,
        "Caused by: java.io.IOException: disk",
        STACK,
        '  File "tasks.py", line 3, in clean (at tasks.java:1)',
        "look at me.you(Some where)",
    ]


FRAME = "\tat org.apache.spark.Executor.run(Executor.java:61)"
ERROR = """\
org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] Traceback (most recent call last):
  File "tasks.py", line 41, in <lambda>
ZeroDivisionError: {}
 SQLSTATE: 38000"""
BY_ZERO = ERROR.format("division by zero")


def test_an_error_that_spark_logs_again_and_again_is_shown_once() -> None:
    lost = "22:42:14 WARN TaskSetManager: Lost task 0.0 in stage 1.0 (TID 1): "
    said = [
        f"22:42:14 ERROR Utils: Aborting task\n{BY_ZERO}\n{FRAME}",
        f"22:42:14 ERROR Executor: Exception in task 0.0\n{BY_ZERO}\n{FRAME}\n{FRAME}\n",
        f"{lost}{BY_ZERO}\n{FRAME}",
        f"26/11/19 {lost}{BY_ZERO}\n{FRAME}",
        "after",
    ]
    assert folded("\n".join(said)) == [
        "22:42:14 ERROR Utils: Aborting task",
        *BY_ZERO.splitlines(),
        STACK,
        "22:42:14 ERROR Executor: Exception in task 0.0",
        f"    {AGAIN}",
        "",
        f"{lost}{AGAIN}",
        f"26/11/19 {lost}{AGAIN}",
        "after",
    ]


@pytest.mark.parametrize("other", [ERROR.format("modulo by zero"), BY_ZERO + "\nmore", BY_ZERO[:-1]])
def test_an_error_that_begins_like_one_before_is_shown_in_full(other: str) -> None:
    said = f"{BY_ZERO}\n{FRAME}\n{other}\n{FRAME}\nafter"
    assert folded(said) == [*BY_ZERO.splitlines(), STACK, *other.splitlines(), STACK, "after"]


@pytest.mark.parametrize("between", ["Traceback of a body", BY_ZERO.splitlines()[0]])
def test_a_repeated_error_without_a_jvm_stack_is_shown_again(between: str) -> None:
    head = "\n".join(BY_ZERO.splitlines()[:2])
    said = f"{BY_ZERO}\n{FRAME}\n{head}\n{between}\n{BY_ZERO}\nafter"
    assert folded(said) == [*BY_ZERO.splitlines(), STACK, *said.splitlines()[5:]]
    long = "\n".join(f"line {number}" for number in range(300))
    assert folded(f"{BY_ZERO}\n{long}") == [*BY_ZERO.splitlines(), *long.splitlines()]


def test_the_page_does_not_name_an_option() -> None:
    assert folded(f"{BY_ZERO}\n{FRAME}", OutputFold(hint=""))[-1] == "    … (a JVM stack)"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (r"[NO_SUCH] A \"b\"\nJVM stacktrace: …\", \"context\": {", '[NO_SUCH] A "b"'),
        ("x" * 2000, "x" * 300 + " …"),
        (r"cut \ud8", r"cut \ud8"),
    ],
)
def test_a_json_line_of_pyspark_is_one_short_line_even_if_its_end_was_cut_off(
    message: str, shown: str
) -> None:
    line = '{"ts": "2026-11-18 20:25:27.929", "level": "ERROR", "logger": "Query", "msg": "' + message
    assert OutputFold()(line) == [f"ERROR Query: {shown}"]
    assert OutputFold()('{"ts": 1, "level": "of a body"}') == ['{"ts": 1, "level": "of a body"}']
