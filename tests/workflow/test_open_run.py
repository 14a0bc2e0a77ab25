"""Runs in Python: what `open_run` and `publish` write into the workflow, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perago import TaskDefinitionError, WorkspaceSpec, task
from perago.orchestrator.conductor.workflow_objects import definition_of
from perago.workflow import INPUT_WORKSPACE, fork, new_workflow, open_run, step
from perago.workflow.check.check import check_workflow


class Nothing(BaseModel):
    pass


SIDE = WorkspaceSpec(reads=("in",), writes=("left",), on_abandoned="supersede", on_advanced="rebase")
OTHER = SIDE.model_copy(update={"writes": ("right",)})


@task(name="left", owner_email="a@b.c", workspace=SIDE)
def left(workspace: Path, params: Nothing) -> Nothing: ...


@task(name="right", owner_email="a@b.c", workspace=OTHER)
def right(workspace: Path, params: Nothing) -> Nothing: ...


def steps_of(*steps: Any) -> dict[str, dict[str, Any]]:
    definition = definition_of(new_workflow("flow", *steps, owner_email="a@b.c"), "flow")
    assert [one.message for one in check_workflow(definition, TASKS, file="") if one.level == "error"] == []
    return {one["taskReferenceName"]: one for one in definition["tasks"]}


TASKS = {one.__perago_task__.name: one.__perago_task__ for one in (left, right)}  # type: ignore[attr-defined]


def test_a_run_opens_at_the_inputs_branch_and_is_published_on_it() -> None:
    run = open_run()
    made = step(left, "left", workspace=run.workspace, params=Nothing())

    steps = steps_of(run, made, run.publish(made.workspace))

    assert steps["open"]["name"] == "perago_open"
    assert steps["open"]["inputParameters"] == {"workspace": "${workflow.input.workspace}", "params": {}}
    assert steps["left"]["inputParameters"]["workspace"] == "${open.output.workspace}"
    assert steps["publish"]["name"] == "perago_publish"
    assert steps["publish"]["inputParameters"] == {
        "workspace": "${left.output.workspace}",
        "params": {"origin": "${open.output.origin}"},
    }


def test_a_run_takes_names_a_list_of_last_steps_and_rebases() -> None:
    run = open_run("begin", workspace=INPUT_WORKSPACE)
    one = step(left, "left", workspace=run.workspace, params=Nothing())
    two = step(right, "right", workspace=run.workspace, params=Nothing())
    end = run.publish([one.workspace, two.workspace], name="end", on_advanced="rebase")

    steps = steps_of(run, fork("both", [one], [two]), end)

    assert steps["end"]["inputParameters"] == {
        "workspace": ["${left.output.workspace}", "${right.output.workspace}"],
        "params": {"origin": "${begin.output.origin}", "on_advanced": "rebase"},
    }
    assert str(end.workspace) == "${end.output.workspace}"


def test_a_run_that_is_not_isolated_says_so() -> None:
    run = open_run(isolate=False)
    made = step(left, "left", workspace=run.workspace, params=Nothing())
    assert steps_of(run, made)["open"]["inputParameters"]["params"] == {"isolate": False}


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (
            lambda run: run.publish("${left.output.workspace}"),
            "workspace is '${left.output.workspace}'; give it",
        ),
        (lambda run: run.publish([]), "workspace is []; give it"),
        (
            lambda run: run.publish(run.workspace, name=" "),
            "needs a unique name in the workflow, and got ' '",
        ),
        (lambda run: run.publish(run.workspace, on_advanced="replace"), "params.on_advanced"),
        (lambda run: open_run(workspace="songs"), "workspace is 'songs'; give it INPUT_WORKSPACE"),
        (lambda run: open_run(""), "needs a unique name in the workflow, and got ''"),
        (lambda run: run.result, "step 'open' has no 'result'; its output has workspace and origin"),
        (
            lambda run: run.publish(run.workspace).result,
            "step 'publish' has no 'result'; its output has workspace",
        ),
        (lambda run: run.work_space, "has no 'work_space'; did you mean 'workspace'?"),
    ],
)
def test_a_wrong_argument_is_one_line_that_names_the_place(wrong: Any, text: str) -> None:
    with pytest.raises(TaskDefinitionError) as refused:
        wrong(open_run())
    assert text in str(refused.value)
    assert "test_open_run.py" in str(refused.value)
