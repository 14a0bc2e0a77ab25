"""Taking a run up again: what is still with a dead process, and the command that is shown."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from perago.orchestrator.base import TaskState, WorkflowState
from perago.runtime.runs.record import Run, resume_command
from perago.runtime.runs.run import failed_by_lost_leases_only, workflow_changed
from perago.runtime.runs.workflow import digest_of

RUN = Run("20261116-101010-abcdef", "id", "flow", ["tasks.py"], "/somewhere")


def task(reference: str, status: str, task_id: str) -> TaskState:
    return TaskState(reference, "make", "SIMPLE", task_id, status, 0, 0, 1)


def state(status: str, *tasks: TaskState) -> WorkflowState:
    return WorkflowState("id", status, None, {}, tasks)


@pytest.mark.parametrize(
    ("ended", "lost"),
    [
        (state("TIMED_OUT", task("a", "COMPLETED", "1"), task("b", "TIMED_OUT", "2")), True),
        (state("TIMED_OUT", task("a", "CANCELED", "1"), task("b", "TIMED_OUT", "2")), True),
        # The retry of what was lost failed by itself, or something else did.
        (state("FAILED", task("b", "TIMED_OUT", "2"), task("b", "FAILED", "3")), False),
        (state("FAILED", task("a", "FAILED", "1"), task("b", "TIMED_OUT", "2")), False),
        (state("RUNNING", task("b", "TIMED_OUT", "2")), False),
        (state("COMPLETED", task("b", "COMPLETED", "2")), False),
    ],
)
def test_a_workflow_that_only_its_dead_process_ended_is_told_from_one_that_failed(
    ended: WorkflowState, lost: bool
) -> None:
    assert failed_by_lost_leases_only(ended, frozenset({"2"})) is lost


def test_the_command_can_be_pasted_whatever_the_folder_is_called(tmp_path: Path) -> None:
    root = tmp_path / "it's $HOME; really"
    assert shlex.split(resume_command(RUN, root)) == [
        *("perago", "run", "--resume", RUN.id, "--root"),
        str(root),
    ]


def test_a_workflow_file_has_changed_when_it_says_something_else(tmp_path: Path) -> None:
    file = tmp_path / "flow.json"
    definition = {"name": "flow", "version": 1}
    run = replace(RUN, folder=str(tmp_path), workflow_file="flow.json", workflow_digest=digest_of(definition))
    assert not workflow_changed(run)
    file.write_text(json.dumps(definition, indent=8))
    assert not workflow_changed(run)
    file.write_text(json.dumps({**definition, "version": 2}))
    assert workflow_changed(run)
    file.write_text("{")
    assert workflow_changed(run)
    # A record from before there was this field.
    assert not workflow_changed(replace(run, workflow_file=""))
