"""`workspace.read(only=…)`: the files of a table that are new since the task's last publication."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from perago import SparkWorkspace
from perago.declare.input_changes import InputChanges
from tests.support.worlds.spark_world import Made, Params, SparkWorld

SPEC = {"prefix": "/", "reads": ("raw",), "writes": ("out",)}


class Row(BaseModel):
    user: str


def collecting(**read: object):
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        rows = workspace.read("raw", format="csv", header=True, **read)
        workspace.write(rows.select("user").coalesce(1), "out", mode="append")
        names = sorted(row.user for row in workspace.read("out").collect())
        return Made(said=f"{rows.count()}: {' '.join(names)}")

    return body


def said(world: SparkWorld, definition) -> str:
    result = world.run(definition)
    assert result.outcome.status == "COMPLETED", result.outcome.reason
    return result.outcome.output["result"]["said"]


def test_only_new_files_are_read(world: SparkWorld) -> None:
    task = world.task(collecting(only="changed"), **SPEC)
    world.commit({"raw/a.csv": "user\nann\n", "raw/b.csv": "user\nbob\n"})

    assert said(world, task) == "2: ann bob"
    world.commit({"raw/day=1/c {x}*.csv": "user\ncyd\n", "raw/_hidden": "no"})
    assert said(world, task) == "1: ann bob cyd"
    assert said(world, task) == "0: ann bob cyd"


def test_a_changed_file_is_refused_by_name_unless_the_task_says_what_to_do(local_world: SparkWorld) -> None:
    task = local_world.task(collecting(only="changed"), **SPEC)
    local_world.commit({"raw/a.csv": "user\nann\n", "raw/b.csv": "user\nbob\n"})
    said(local_world, task)
    local_world.commit({"raw/a.csv": "user\namy\n", "raw/b.csv": None, "raw/c.csv": "user\ncyd\n"})

    refused = local_world.run(task).outcome
    assert refused.status == "FAILED"
    assert "raw/a.csv" in (refused.reason or "")
    assert "raw/b.csv" in (refused.reason or "")
    assert said(local_world, local_world.task(collecting(only="added"), **SPEC)) == "1: ann bob cyd"


def test_a_function_chooses_the_files(local_world: SparkWorld) -> None:
    def chosen(found: InputChanges) -> list[str]:
        return [path for path in found.present if path.endswith("c.csv")]

    task = local_world.task(collecting(only=chosen), **SPEC)
    local_world.commit({"raw/a.csv": "user\nann\n", "raw/c.csv": "user\ncyd\n"})

    assert said(local_world, task) == "1: cyd"


def test_only_the_new_files_are_downloaded_and_checks_see_all_of_them(local_world: SparkWorld) -> None:
    from perago import require_file, require_glob

    def body(workspace: SparkWorkspace, params: Params) -> Made:
        rows = workspace.read("raw", format="csv", schema=Row, header=True, only="changed")
        workspace.write(rows.coalesce(1), "out", mode="append")
        there = sorted(path.name for path in Path(workspace.base.removeprefix("file://")).rglob("*.csv"))
        return Made(said=f"{rows.count()}: {' '.join(there)}")

    checks = [require_file("raw/a.csv"), require_glob("raw/*.csv", min_count=1)]
    task = local_world.task(body, **SPEC, changes_only=("raw",), pre=checks, post=checks)
    local_world.commit({"raw/a.csv": "user\nann\n"})

    assert said(local_world, task) == "1: a.csv"
    local_world.commit({"raw/b.csv": "user\nbob\n"})
    assert said(local_world, task) == "1: b.csv"
    assert said(local_world, task) == "0: "
    assert {"raw/a.csv", "raw/b.csv"} <= set(local_world.paths())


@pytest.mark.parametrize("format", ["delta", "jdbc"])
def test_formats_without_plain_files_are_refused(local_world: SparkWorld, format: str) -> None:
    def body(workspace: SparkWorkspace, params: Params) -> Made:
        workspace.read("raw", format=format, only="added")
        return Made(said="read")

    local_world.commit({"raw/a": "1"})

    assert "not in plain files" in (local_world.run(local_world.task(body, **SPEC)).outcome.reason or "")
