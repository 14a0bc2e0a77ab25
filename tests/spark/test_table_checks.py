"""Checks on tables: one Spark job for all checks of a table, counts in the reason, samples in the worker's log only."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perago import (
    PostGuardrailViolation,
    SparkWorkspace,
    TaskDefinitionError,
    WorkspaceSpec,
    forbid_nulls,
    require_columns,
    require_rows,
    require_unique,
    require_values,
    task,
)
from perago.declare.checks import Check, FolderTree, evaluate_checks, run_checks
from perago.spark.session import Sessions
from perago.spark.table_audit import AuditedTree, Auditor
from tests.support.worlds.spark_world import Made, Params, SparkWorld, failed, jobs_run


class User(BaseModel):
    user: str
    ms: int


@pytest.fixture
def workspace(sessions: Sessions, tmp_path: Path) -> SparkWorkspace:
    """A workspace with one table of faults: a null, a duplicate and an unknown device."""
    made = SparkWorkspace(tmp_path, sessions.get())
    rows = "('ann', 10, 'phone'), ('ann', 10, 'tv'), ('bob', NULL, 'phone'), ('cy', 30, 'fridge')"
    made.write(made.spark.sql(f"SELECT * FROM VALUES {rows} AS t(user, ms, device)").coalesce(1), "plays")
    return made


def run(workspace: SparkWorkspace, sessions: Sessions, checks: Sequence[Check]) -> None:
    folder = Path(workspace.base.removeprefix("file://"))
    tree = AuditedTree(FolderTree(folder), Auditor(workspace, sessions.for_checks, checks))
    run_checks("post", checks, tree)


HOLDING: list[Check] = [
    require_columns("plays", ["user", "ms"]),
    require_columns("plays", {"user": "string", "ms": "int"}),
    require_columns("plays", User),
    require_rows("plays", 4, 4),
    forbid_nulls("plays", "user", "device"),
    require_unique("plays", "user", "device"),
    require_unique("plays", "user", "ms", "device"),
    require_values("plays", "device", ["phone", "tv", "fridge"]),
    require_values("plays", "ms", [10, 30]),
]


def test_all_checks_of_a_table_cost_one_spark_job(workspace: SparkWorkspace, sessions: Sessions) -> None:
    before = jobs_run(sessions)

    run(workspace, sessions, HOLDING)

    assert jobs_run(sessions) - before == 1


def test_checks_that_hold_say_what_was_counted(workspace: SparkWorkspace, sessions: Sessions) -> None:
    folder = Path(workspace.base.removeprefix("file://"))
    tree = AuditedTree(FolderTree(folder), Auditor(workspace, sessions.for_checks, HOLDING))

    found = [one.found for one in evaluate_checks("post", HOLDING, tree)]

    assert found == [
        "2 of 3 columns",
        "2 of 3 columns",
        "2 of 3 columns",
        "4 rows",
        "no nulls in 4 rows",
        "no key twice in 4 rows",
        "no key twice in 4 rows",
        "no other values in 4 rows",
        "no other values in 4 rows",
    ]


def test_two_tables_cost_two_jobs(workspace: SparkWorkspace, sessions: Sessions) -> None:
    workspace.write(workspace.spark.range(3), "other")
    before = jobs_run(sessions)

    run(workspace, sessions, [*HOLDING, require_rows("other", 3), require_unique("other", "id")])

    assert jobs_run(sessions) - before == 2


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (require_columns("plays", ["user", "song"]), "no column 'song'; there are user, ms, device"),
        (require_columns("plays", {"ms": "bigint"}), "column 'ms' is int, not bigint"),
        (require_rows("plays", 5), "it has 4 rows, 5 or more are required"),
        (require_rows("plays", 0, 3), "it has 4 rows, at most 3 are allowed"),
        (forbid_nulls("plays"), "nulls: 1 in 'ms', of 4 rows"),
        (require_unique("plays", "user", "ms"), "1 keys are there more than once, in 2 rows"),
        (require_values("plays", "device", ["phone"]), "2 of 4 rows hold other values in 'device'"),
        (forbid_nulls("plays", "song"), "no column 'song'"),
        (require_rows("none"), "there is no table 'none'"),
    ],
    ids=lambda value: value.label() if hasattr(value, "label") else "",
)
def test_a_failure_gives_the_check_and_the_counts(
    workspace: SparkWorkspace, sessions: Sessions, check: Any, text: str
) -> None:
    with pytest.raises(PostGuardrailViolation) as caught:
        run(workspace, sessions, [check])

    assert str(caught.value).startswith(f"post check {check.label()} failed: ")
    assert text in str(caught.value)


def test_the_other_failures_of_the_table_are_told_too(workspace: SparkWorkspace, sessions: Sessions) -> None:
    checks = [require_rows("plays", 5), require_rows("plays", 1), forbid_nulls("plays", "ms")]

    with pytest.raises(PostGuardrailViolation) as caught:
        run(workspace, sessions, checks)

    assert str(caught.value) == (
        "post check require_rows('plays', min=5) failed: it has 4 rows, 5 or more are required; "
        "also forbid_nulls('plays', 'ms'): nulls: 1 in 'ms', of 4 rows"
    )


def test_three_sample_rows_go_to_the_log_and_none_to_conductor(
    local_world: SparkWorld, caplog: pytest.LogCaptureFixture
) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        rows = workspace.spark.range(9).selectExpr("id", "CAST(NULL AS STRING) AS secret_name")
        workspace.write(rows, "table")
        return Made(said="done")

    a = local_world.head().id
    with caplog.at_level(logging.WARNING, "perago.spark"):
        reason = failed(local_world.run(local_world.task(body, post=[forbid_nulls("table")])))

    samples = [record.getMessage() for record in caplog.records if "offending row" in record.getMessage()]
    assert len(samples) == 3
    assert all("'secret_name': None" in sample for sample in samples)
    assert reason == "post check forbid_nulls('table') failed: nulls: 9 in 'secret_name', of 9 rows"
    assert local_world.head().id == a


def test_a_failing_pre_check_on_a_table_is_terminal(local_world: SparkWorld) -> None:
    check = require_rows("raw", 10, format="csv", header=True)

    settled = local_world.run(local_world.task(pre=[check]))

    assert settled.outcome.status == "FAILED_WITH_TERMINAL_ERROR"
    assert "it has 3 rows, 10 or more are required" in (settled.outcome.reason or "")


def test_a_table_that_cannot_be_read_fails_the_check_in_a_line(local_world: SparkWorld) -> None:
    local_world.commit({"data/plays/part-0.parquet": "no parquet"})

    settled = local_world.run(local_world.task(pre=[require_rows("plays")]))

    assert "pre check require_rows('plays', min=1) failed: the table cannot be read: " in (
        settled.outcome.reason or ""
    )
    assert "\n" not in (settled.outcome.reason or "")


WRONG: list[tuple[Any, str]] = [
    (lambda: require_columns("plays", []), "must name at least one column"),
    (lambda: require_unique("plays"), "must name at least one column"),
    (lambda: require_rows("plays", -1), "must be a whole number, 0 or more"),
    (lambda: require_rows("plays", 3, 2), r"must be a whole number, not below min \(3\)"),
    (lambda: require_values("plays", "device", []), "must hold at least one value"),
    (lambda: require_rows("../plays"), "must be a path below the workspace's prefix"),
    (lambda: require_rows("plays", format=""), "must be the name of a format, such as 'parquet'"),
]


@pytest.mark.parametrize(("declare", "rule"), WRONG, ids=[rule for _, rule in WRONG])
def test_a_wrong_check_is_refused_where_it_is_written(declare: Any, rule: str) -> None:
    with pytest.raises(TaskDefinitionError, match=rule):
        declare()


def test_a_plain_task_cannot_check_tables() -> None:
    with pytest.raises(TaskDefinitionError, match=r"require_rows\('plays', min=1\): looks into a table"):

        @task(name="plain", owner_email="a@b.c", workspace=WorkspaceSpec(post=[require_rows("plays")]))
        def plain(workspace: Path, params: Params) -> Made:
            return Made(said="")
