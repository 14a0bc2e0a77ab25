"""Workflows that are one transaction, on the world of a scenario: open, steps, publish."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perago.declare.run_steps import OPEN, PUBLISH
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.orchestrator.base import Assignment, WorkflowState
from perago.runtime.execution_result import ExecutionResult
from tests.support.faults.ports import before
from tests.support.tasks.workflows import fork, join, simple
from tests.support.worlds.world import Made, Params, World, make_task

_names = itertools.count()
OPENED, ORIGIN = "${open.output.workspace}", "${open.output.origin}"


def writing(name: str, **spec: Any) -> TaskDefinition:
    """Return a task that writes the file `<its name>.txt`."""

    def body(workspace: Path, params: Params) -> Made:
        (workspace / f"{name}.txt").write_text(params.text)
        return Made(said=name)

    return make_task(body, name=name, **spec)


def beside(name: str, **spec: Any) -> TaskDefinition:
    """Return a task that writes its own folder and rebases, so that it can run in a fork."""
    narrow = {
        "reads": ("input.txt",),
        "writes": (name,),
        "on_abandoned": "supersede",
        "on_advanced": "rebase",
    }

    def body(workspace: Path, params: Params) -> Made:
        (workspace / name).mkdir(exist_ok=True)
        (workspace / name / "made.txt").write_text(params.text)
        return Made(said=name)

    return make_task(body, name=name, **{**narrow, **spec})


def opening(**params: Any) -> dict[str, Any]:
    """Return the step that opens the run."""
    given = {"workspace": "${workflow.input.workspace}", "params": params}
    return simple("open", name=OPEN.name, inputParameters=given)


def running(task: TaskDefinition, after: str | Sequence[str] = "open") -> dict[str, Any]:
    """Return a step of the run, named like its task."""
    given = {"workspace": _workspace(after), "params": {"text": "made"}}
    return simple(task.name, name=task.name, inputParameters=given)


def publishing(after: str | Sequence[str], **params: Any) -> dict[str, Any]:
    """Return the step that publishes the run."""
    given = {"workspace": _workspace(after), "params": {"origin": ORIGIN, **params}}
    return simple("publish", name=PUBLISH.name, inputParameters=given)


def _workspace(after: str | Sequence[str]) -> str | list[str]:
    if isinstance(after, str):
        return f"${{{after}.output.workspace}}"
    return [f"${{{one}.output.workspace}}" for one in after]


FIRST, LEFT, RIGHT, LAST = writing("first"), beside("left"), beside("right"), writing("last")
FIVE = (FIRST, LEFT, RIGHT, LAST)


def five_steps(**params: Any) -> list[dict[str, Any]]:
    """Return a run of open, a step, a fork of two, a last step and publish."""
    return [
        opening(),
        running(FIRST),
        fork("both", [running(LEFT, "first")], [running(RIGHT, "first")]),
        join("joined", "left", "right"),
        running(LAST, ("left", "right")),
        publishing("last", **params),
    ]


@dataclass(slots=True)
class RunWorld:
    """A world in which workflows are started without a commit id, and driven attempt by attempt."""

    world: World
    tasks: Mapping[str, TaskDefinition]

    @classmethod
    def of(cls, world: World, tasks: Sequence[TaskDefinition]) -> RunWorld:
        """Register the tasks, and those that open and publish a run."""
        everything = (OPEN, PUBLISH, *tasks)
        world.orchestrator.register_taskdefs(
            [{**build_taskdef(one), "retryDelaySeconds": 0} for one in everything]
        )
        return cls(world, {one.name: one for one in everything})

    def start(self, steps: Sequence[Mapping[str, Any]], **workspace: str) -> str:
        """Start a workflow of these steps from the head of main, or from the given workspace."""
        name = f"run-{next(_names)}"
        self.world.orchestrator.register_workflow(
            {
                "name": name,
                "version": 1,
                "schemaVersion": 2,
                "tasks": list(steps),
                "outputParameters": {"ref": "${publish.output.workspace.ref}"},
            }
        )
        given = {"repository": self.world.repository, "branch": "main", **workspace}
        return self.world.orchestrator.start_workflow(name, input={"workspace": given})

    def next(self) -> Assignment | None:
        """Poll the next attempt of any task."""
        for name in self.tasks:
            polled = self.world.orchestrator.poll(name, worker_id="tests", count=1, wait_seconds=0)
            if polled:
                return polled[0]
        return None

    def poll(self, task: TaskDefinition) -> Assignment:
        """Poll the next attempt of one task."""
        return self.world.poll(task)

    def execute(self, assignment: Assignment, **changed: Any) -> ExecutionResult:
        """Run one execution of the attempt."""
        return self.world.execute(self.tasks[assignment.attempt.task_name], assignment, **changed)

    def die_before_completing(self, assignment: Assignment) -> None:
        """Run an execution of the attempt whose worker dies before Conductor hears of the result."""

        def die() -> None:
            raise RuntimeError("the worker dies here")

        with pytest.raises(RuntimeError, match="dies here"):
            self.execute(assignment, orchestrator=before(self.world.orchestrator, "complete", die))

    def until(self, reference: str) -> Assignment:
        """Run attempts until one of that step is polled, and return it."""
        while (assignment := self.next()) is not None:
            if assignment.attempt.reference_task_name == reference:
                return assignment
            ended = self.execute(assignment)
            assert ended.outcome.status == "COMPLETED", ended.outcome
        raise AssertionError(f"no attempt of {reference} was scheduled")

    def finish(self, workflow_id: str, watch: Callable[[], None] = lambda: None) -> WorkflowState:
        """Run attempts until nothing is left to poll, and return the workflow."""
        while (assignment := self.next()) is not None:
            self.execute(assignment)
            watch()
        return self.world.workflow(workflow_id)

    def run_branch(self) -> str:
        """Return the only run branch."""
        [name] = [ref.name for ref in self.world.lake.branches(self.world.repository, "perago-run-")]
        return name
