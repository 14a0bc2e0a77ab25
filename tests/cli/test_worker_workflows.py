"""Workflows that no `perago run` drives: those of `start --local` and of Conductor, inspected by their ids."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perago.protocol.attempt_record import AttemptRecord, CheckRecord, record_line
from tests.contract.orchestrators import ORCHESTRATORS, WORKER, Line
from tests.support.processes.commands import CommandResult, Shell

RECORD = AttemptRecord(
    "e1", "COMPLETED", seconds={"body": 2.5}, checks=[CheckRecord("post", "require_rows", "5 rows")]
)


@dataclass(frozen=True, slots=True)
class Place:
    """An orchestrator that a worker works for, and the commands that look at it."""

    line: Line
    shell: Shell
    options: tuple[str, ...]

    def run_here(self, *arguments: str) -> CommandResult:
        return self.shell.run_here(*arguments, *self.options)

    def data(self, *arguments: str) -> Any:
        return json.loads(self.run_here(*arguments, "--json").out)


@pytest.fixture(params=[pytest.param(name, marks=one.marks) for name, one in ORCHESTRATORS.items()])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    shell = Shell(tmp_path)
    options: tuple[str, ...] = ("--root", str(tmp_path))
    if request.param != "local":
        shell.environ["CONDUCTOR_SERVER_URL"] = request.getfixturevalue("conductor_server").url
        options = ("--remote",)
    with ORCHESTRATORS[request.param].open(request) as orchestrator:
        yield Place(Line.fresh(orchestrator), shell, options)


def _failed_then_done(line: Line) -> str:
    """A workflow whose first attempt failed and whose second one completed."""
    workflow_id = line.begin()
    first = line.take_one()
    line.orchestrator.log(
        first.attempt, ["trying", "Traceback (most recent call last):", "ValueError: [red]"]
    )
    line.send(first, "FAILED", reason="ValueError: [red]")
    second = line.take_one()
    line.orchestrator.log(second.attempt, ["again", record_line(RECORD)])
    line.send(second, rows=5)
    line.end_of(workflow_id)
    line.until_log(second.attempt.task_id, 2)
    line.until_log(first.attempt.task_id, 3)
    return workflow_id


def test_show_has_the_attempts_with_their_records_whoever_ran_them(place: Place) -> None:
    workflow_id = _failed_then_done(place.line)
    said = place.run_here("show", workflow_id)
    assert said.out.startswith(f"run {workflow_id}\nworkflow {place.line.workflow} ({workflow_id})\n")
    for part in (
        "only: FAILED after ",
        f"[{WORKER}]\n    ValueError: [red]\n",
        "only (retry 1): COMPLETED after ",
        "    times: body 2.50 s\n    check post require_rows: 5 rows\n",
    ):
        assert part in said.out
    shown = place.data("show", workflow_id)
    assert [len(task["records"]) for task in shown["tasks"]] == [0, 1]
    assert (shown["status"], shown["resume"], shown["log"]) == ("COMPLETED", "", None)


def test_logs_are_what_the_tasks_logged_without_the_records(place: Place) -> None:
    workflow_id = _failed_then_done(place.line)
    expected = [
        "only | trying",
        "only | Traceback (most recent call last):",
        "only | ValueError: [red]",
        "only (retry 1) | again",
    ]
    assert place.run_here("logs", workflow_id).out.splitlines() == expected
    assert place.run_here("logs", workflow_id, "only", "--follow").out.splitlines() == expected


def test_the_newest_workflows_are_listed(place: Place) -> None:
    workflow_id = _failed_then_done(place.line)

    def own() -> list[Any]:
        return [row for row in place.data("runs", "-n", "1000") if row["id"] == workflow_id]

    place.line.wait_until(lambda: [row["status"] for row in own()] == ["COMPLETED"])
    (row,) = own()
    assert (row["workflow"], row["resume"]) == (place.line.workflow, "")
    assert row["seconds"] >= 0
    assert place.line.workflow in place.run_here("runs", "-n", "1000").out


def test_a_workflow_that_is_not_there_is_told_in_a_line(place: Place) -> None:
    for command in ("show", "logs"):
        said = place.run_here(command, "no-such-workflow")
        assert said.code == 1
        assert "no-such-workflow" in said.err
        assert len([line for line in said.err.splitlines() if line.startswith("error: ")]) == 1
        assert said.out == ""
