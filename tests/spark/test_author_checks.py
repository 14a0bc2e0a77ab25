"""Checks that authors write: conditions, foreign keys, comparisons with the input, functions, and warnings."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from perago import (
    PostGuardrailViolation,
    SparkWorkspace,
    TaskDefinitionError,
    TaskFailed,
    WorkspaceSpec,
    forbid_nulls,
    require,
    require_columns,
    require_file,
    require_foreign_key,
    require_rows,
    require_unique,
    require_values,
    task,
)
from perago.declare.checks import Check, FolderTree, evaluate_checks, needs_path, run_checks, takes_workspace
from perago.protocol.attempt_record import CheckRecord
from perago.spark.session import Sessions
from perago.spark.table_audit import AuditedTree, Auditor
from tests.support.worlds.spark_world import Made, Params, SparkWorld, failed, jobs_run
from tests.support.worlds.world import published_ref

SONGS = "(1, 'So What'), (2, 'Naima')"
PLAYS = "(1, 'ann', 10), (1, 'ann', -1), (2, 'bob', 30), (9, 'cy', 5), (NULL, 'dee', NULL)"


@pytest.fixture
def workspace(sessions: Sessions, tmp_path: Path) -> SparkWorkspace:
    made = SparkWorkspace(tmp_path, sessions.get())
    songs = made.spark.sql(f"SELECT * FROM VALUES {SONGS} AS t(id, title)")
    plays = made.spark.sql(f"SELECT * FROM VALUES {PLAYS} AS t(song_id, user, ms)")
    made.write(songs.coalesce(1), "songs")
    made.write(plays.coalesce(1), "plays")
    return made


def audited(workspace: SparkWorkspace, sessions: Sessions, checks: Sequence[Check]) -> AuditedTree:
    folder = Path(workspace.base.removeprefix("file://"))
    return AuditedTree(FolderTree(folder), Auditor(workspace, sessions.for_checks, checks))


def found(workspace: SparkWorkspace, sessions: Sessions, *checks: Check) -> list[str]:
    tree = audited(workspace, sessions, checks)
    return [one.found for one in evaluate_checks("post", checks, tree)]


def refusal(workspace: SparkWorkspace, sessions: Sessions, check: Check) -> str:
    with pytest.raises(PostGuardrailViolation) as caught:
        run_checks("post", [check], audited(workspace, sessions, [check]))
    text = str(caught.value)
    assert text.startswith(f"post check {check.label()} failed: ")  # type: ignore[union-attr]
    assert "\n" not in text
    return text.partition(" failed: ")[2]


KEY = require_foreign_key("plays", "song_id", "songs", "id")


def test_checks_that_pass_say_what_they_counted(workspace: SparkWorkspace, sessions: Sessions) -> None:
    assert found(
        workspace,
        sessions,
        require("songs", "length(title) > 3"),
        require("plays", "ms >= 0", allow=0.4),
        require_foreign_key("songs", "id", "songs"),
    ) == [
        "none of 2 rows violate it",
        "2 of 5 rows violate it, 40 % may",
        "no key is missing in 'songs', in 2 rows",
    ]


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (require("plays", "ms >= 0"), "2 of 5 rows violate it"),
        (require("plays", "ms >= 0", allow=0.39), "2 of 5 rows violate it, 39 % may"),
        (require("plays", "ms >= 0 AND nobody IS NULL"), "it is not a condition on a row: "),
        (require("plays", "ms >="), "it is not a condition on a row: "),
        (require("plays", "ms + 1"), "it is not a condition on a row: "),
        (require("plays", "sum(ms) > 3"), "it is not a condition on a row: "),
        (KEY, "1 keys are not in 'songs', in 1 of 5 rows"),
        (
            require_foreign_key("plays", "song_id", "songs"),
            "'songs' has no column 'song_id'; there are id, title",
        ),
        (
            require_foreign_key("plays", "user", "songs", "id"),
            "column 'user' is string, and 'id' of 'songs' is int",
        ),
        (require_foreign_key("plays", "song_id", "albums", "id"), "there is no table 'albums'"),
        (
            require_foreign_key("plays", "nope", "songs", "id"),
            "no column 'nope'; there are song_id, user, ms",
        ),
    ],
    ids=lambda value: value.label() if hasattr(value, "label") else "",
)
def test_a_violation_gives_the_counts(
    workspace: SparkWorkspace, sessions: Sessions, check: Check, text: str
) -> None:
    assert refusal(workspace, sessions, check).startswith(text)


def test_a_wrong_condition_is_explained_in_sparks_words(
    workspace: SparkWorkspace, sessions: Sessions
) -> None:
    assert "[UNRESOLVED_COLUMN" in refusal(workspace, sessions, require("plays", "nobody IS NULL"))


def test_a_condition_that_fails_on_a_row_fails_no_other_check(
    workspace: SparkWorkspace, sessions: Sessions
) -> None:
    checks = [require_rows("plays", 5), require("plays", "CAST(user AS INT) > 0", level="warn")]

    records = list(evaluate_checks("post", checks, audited(workspace, sessions, checks)))

    assert [one.passed for one in records] == [True, False]
    assert records[1].found.startswith("it cannot be evaluated: [CAST_INVALID_INPUT]")


def test_a_share_is_the_one_that_was_written(workspace: SparkWorkspace, sessions: Sessions) -> None:
    workspace.write(workspace.spark.range(100).coalesce(1), "hundred")

    # As floats, 0.29 * 100 is less than 29.
    assert found(workspace, sessions, require("hundred", "id >= 29", allow=0.29)) == [
        "29 of 100 rows violate it, 29 % may"
    ]
    assert refusal(workspace, sessions, require("hundred", "id >= 30", allow=0.29)).startswith("30 of 100")


def test_a_key_that_is_no_number_is_still_a_key(workspace: SparkWorkspace, sessions: Sessions) -> None:
    numbers = "SELECT * FROM VALUES (CAST('NaN' AS DOUBLE)), (1D), (NULL) AS t(k)"
    workspace.write(workspace.spark.sql(numbers).coalesce(1), "numbers")
    workspace.write(workspace.spark.sql("SELECT 1D AS k"), "known")
    check = require_foreign_key("numbers", "k", "known")

    assert refusal(workspace, sessions, check).startswith("1 keys are not in 'known', in 1 of 3 rows")
    assert found(workspace, sessions, require_foreign_key("numbers", "k", "numbers"))


def test_names_of_columns_are_taken_literally(workspace: SparkWorkspace, sessions: Sessions) -> None:
    odd = "SELECT 1 AS `a.b`, 2 AS `x``y`, 3 AS `ü z`, named_struct('b', CAST(NULL AS INT)) AS a"
    workspace.write(workspace.spark.sql(odd), "odd")
    names = ["a.b", "x`y", "ü z"]

    assert found(
        workspace,
        sessions,
        require("odd", "`a.b` = 1 AND `x``y` = 2 AND `ü z` = 3 AND a.b IS NULL"),
        forbid_nulls("odd", *names),
        require_unique("odd", *names),
        require_values("odd", "a.b", [1]),
        require_foreign_key("odd", names, "odd"),
        require_columns("odd", names),
    )


@pytest.mark.parametrize(
    ("name", "kind", "there"),
    [
        ("a", "INTEGER", "int"),
        ("b", "long", "bigint"),
        ("c", "decimal(10, 2)", "decimal(10,2)"),
        ("d", "struct<Name: string>", "struct<Name:string>"),
        ("e", "array<integer>", "array<int>"),
    ],
)
def test_a_type_may_be_written_in_every_form_that_spark_has(
    workspace: SparkWorkspace, sessions: Sessions, name: str, kind: str, there: str
) -> None:
    every = "1 AS a, 2L AS b, CAST(3 AS DECIMAL(10, 2)) AS c, named_struct('Name', 'x') AS d, array(1) AS e"
    workspace.write(workspace.spark.sql(f"SELECT {every}"), "typed")

    assert found(workspace, sessions, require_columns("typed", {name: kind}))
    assert refusal(workspace, sessions, require_columns("typed", {name: "binary"})) == (
        f"column {name!r} is {there}, not binary"
    )


def test_a_key_of_several_columns_is_one_key(workspace: SparkWorkspace, sessions: Sessions) -> None:
    check = require_foreign_key("plays", ["user", "ms"], "plays")
    other = require_foreign_key("plays", ["song_id", "ms"], "songs", ["id", "id"])

    assert found(workspace, sessions, check) == ["no key is missing in 'plays', in 5 rows"]
    assert refusal(workspace, sessions, other).startswith("4 keys are not in 'songs', in 4 of 5 rows")


def test_all_row_checks_of_a_table_cost_one_job_with_a_skewed_key_too(
    workspace: SparkWorkspace, sessions: Sessions
) -> None:
    rows = workspace.spark.range(2000).selectExpr(
        "IF(id < 1990, 1, 2) AS song_id", "id AS play_id", "id AS ms"
    )
    workspace.write(rows.repartition(4), "skewed")
    checks = [
        require("skewed", "ms >= 0"),
        require("skewed", "ms % 2 = 0", allow=0.5),
        require_foreign_key("skewed", "song_id", "songs", "id"),
        require_unique("skewed", "play_id"),
        require_rows("skewed", 2000, 2000),
    ]
    before = jobs_run(sessions)

    run_checks("post", checks, audited(workspace, sessions, checks))

    assert jobs_run(sessions) - before == 1


def test_a_warning_is_recorded_and_logged_and_fails_nothing(
    workspace: SparkWorkspace, sessions: Sessions, caplog: pytest.LogCaptureFixture
) -> None:
    checks: list[Check] = [
        require("plays", "ms >= 0", level="warn"),
        require_rows("nothing", level="warn"),
        require_file("nothing.txt", level="warn"),
        require_rows("plays", 5),
    ]

    with caplog.at_level(logging.WARNING, "perago.checks"):
        records = list(evaluate_checks("post", checks, audited(workspace, sessions, checks)))

    assert [(one.passed, one.level) for one in records] == [
        (False, "warn"),
        (False, "warn"),
        (False, "warn"),
        (True, ""),
    ]
    assert records[0] == CheckRecord(
        "post", "require('plays', 'ms >= 0', level='warn')", "2 of 5 rows violate it", False, "warn"
    )
    assert "did not pass: there is no table 'nothing'" in caplog.text


def test_a_violation_does_not_name_warnings_as_failures(
    workspace: SparkWorkspace, sessions: Sessions
) -> None:
    checks = [require("plays", "ms >= 0", level="warn"), require_rows("plays", 9)]

    with pytest.raises(PostGuardrailViolation) as caught:
        run_checks("post", checks, audited(workspace, sessions, checks))

    assert "also" not in str(caught.value)


# --- in whole attempts, with both placements ------------------------------------------------------------------


def plays(workspace: SparkWorkspace, rows: int, columns: str = "id, id AS ms") -> None:
    workspace.write(workspace.spark.range(rows).selectExpr(*columns.split(", ")).coalesce(1), "plays")


COMPARED = [require_rows("plays", change=0.2), require_columns("plays", evolve="additive")]


@pytest.mark.parametrize(
    ("rows", "columns", "problem"),
    [
        (12, "id, id AS ms", ""),
        (8, "id, id AS ms, 'x' AS device", ""),
        (13, "id, id AS ms", "13 rows, 10 in the input"),
        (7, "id, id AS ms", "7 rows, 10 in the input; the number may change by 20 %"),
        (10, "id", "column 'ms' of the input is gone"),
        (10, "id, CAST(id AS STRING) AS ms", "column 'ms' was bigint in the input and is string"),
    ],
)
def test_a_table_is_compared_with_the_one_at_the_input_commit(
    world: SparkWorld, rows: int, columns: str, problem: str
) -> None:
    def first(workspace: SparkWorkspace, params: Params) -> Made:
        plays(workspace, 10)
        return Made(said="done")

    def second(workspace: SparkWorkspace, params: Params) -> Made:
        plays(workspace, rows, columns)
        return Made(said="done")

    published_ref(world.run(world.task(first, post=COMPARED)))
    settled = world.run(world.task(second, name="second", post=COMPARED))

    if problem:
        assert problem in failed(settled)
    else:
        published_ref(settled)


def test_a_function_takes_the_workspace_and_cannot_write_in_it(world: SparkWorld) -> None:
    seen: list[int] = []

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        plays(workspace, 3)
        return Made(said="done")

    def looks(workspace: SparkWorkspace, params: Params) -> None:
        seen.append(workspace.read("plays").count())

    def refuses(workspace: SparkWorkspace, params: Params) -> None:
        raise TaskFailed(f"{workspace.read('plays').count()} rows are too few")

    def writes(workspace: SparkWorkspace, params: Params) -> None:
        workspace.write(workspace.spark.range(1), "plays")

    def fails(workspace: SparkWorkspace, params: Params) -> None:
        workspace.spark.sql("SELECT nothing FROM nowhere")

    published_ref(world.run(world.task(body, post=[looks])))
    assert seen == [3]
    assert "3 rows are too few" in failed(world.run(world.task(body, post=[refuses])))
    assert "plays" in failed(world.run(world.task(body, post=[writes])))
    reason = failed(world.run(world.task(body, post=[fails])))
    assert "Spark failed: " in reason
    assert "nowhere" in reason
    assert "\n" not in reason


# --- declarations ---------------------------------------------------------------------------------------------

WRONG: list[tuple[Any, str]] = [
    (lambda: require("plays", ""), "must be a Spark SQL condition, such as 'ms >= 0'"),
    (lambda: require("plays", "ms > 0", allow=1), "must be a share of the rows, from 0 to less than 1"),
    (lambda: require("plays", "ms > 0", level="wran"), "must be 'fail' or 'warn'; did you mean 'warn'"),  # type: ignore[arg-type]
    (lambda: require_file("a", level="ignore"), "must be 'fail' or 'warn'"),  # type: ignore[arg-type]
    (lambda: require_foreign_key("plays", "a", "../songs"), "must be a path below the workspace's prefix"),
    (
        lambda: require_foreign_key("plays", ["a", "b"], "songs", "c"),
        "must name as many columns as column does",
    ),
    (lambda: require_foreign_key("plays", [], "songs"), "must name at least one column"),
    (lambda: require_rows("plays", change=-1), "must be a share such as 0.2, 0 or more"),
    (lambda: require_rows("plays", change=float("nan")), "change = nan: must be a share such as 0.2"),
    (lambda: require_columns("plays", evolve="any"), "must be 'additive' or left out"),  # type: ignore[arg-type]
    (lambda: require_columns("plays"), "must name at least one column"),
    (
        lambda: WorkspaceSpec(pre=[require_rows("plays", change=0.1)]),
        "compares the result with the input, so it belongs in post",
    ),
    (
        lambda: WorkspaceSpec(reads=("plays",), pre=[require_foreign_key("plays", "a", "songs")]),
        "looks outside what the task sees",
    ),
]


@pytest.mark.parametrize(("declare", "rule"), WRONG, ids=[rule for _, rule in WRONG])
def test_a_wrong_check_is_refused_where_it_is_written(declare: Any, rule: str) -> None:
    with pytest.raises(TaskDefinitionError) as refused:
        declare()

    assert rule in str(refused.value)


@pytest.mark.parametrize(
    ("check", "label"),
    [
        (require("p", "a > 0", 0.1, level="warn"), "require('p', 'a > 0', allow=0.1, level='warn')"),
        (require_foreign_key("p", "a", "q"), "require_foreign_key('p', 'a', 'q')"),
        (require_foreign_key("p", ["a"], "q", "b"), "require_foreign_key('p', 'a', 'q', key='b')"),
        (require_rows("p", change=0.2), "require_rows('p', min=1, change=0.2)"),
        (require_columns("p", evolve="additive"), "require_columns('p', evolve='additive')"),
        (require_file("p", level="warn"), "require_file('p', level='warn')"),
    ],
)
def test_a_label_is_the_check_as_it_was_written(check: Any, label: str) -> None:
    assert check.label() == label


class Callable:
    def __call__(self, workspace: SparkWorkspace, params: Params) -> None: ...


def in_quotes(workspace: "perago.SparkWorkspace", params: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037


def of_a_folder(workdir: Path, params: Params) -> None: ...


def test_a_function_is_known_by_the_annotation_of_its_first_parameter() -> None:
    assert takes_workspace(Callable())
    assert takes_workspace(in_quotes)
    assert not takes_workspace(of_a_folder)
    assert not takes_workspace(require_rows("plays"))
    assert needs_path(of_a_folder)
    assert not needs_path(Callable())


def test_a_plain_task_has_no_workspace_for_a_check() -> None:
    with pytest.raises(TaskDefinitionError, match="takes a SparkWorkspace, which only a Spark task has"):

        @task(name="plain", owner_email="a@b.c", workspace=WorkspaceSpec(post=[Callable()]))
        def plain(workspace: Path, params: Params) -> Made:
            return Made(said="")
