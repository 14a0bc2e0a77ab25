"""Workflows of the tasks in `forked_steps`: forks of several writers with the step after their join, and single writers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from perago.lake.base import Commit
from perago.orchestrator.base import WorkflowState
from tests.support.worlds.clock import eventually
from tests.support.worlds.worker_world import Worker, WorkerWorld

TASKS = "forked_steps.py"


def start_worker(world: WorkerWorld, *, slots: int, observe: Any = None) -> Worker:
    """Start a worker for the forked tasks, and wait until it has registered them."""
    worker = world.start_worker(observe=observe, slots=slots, TEST_TASKS=TASKS)
    name = f"forked_joined_{world.suffix}"
    eventually(lambda: world.orchestrator.taskdef(name), "TaskDefs are registered")
    return worker


def step(world: WorkerWorld, number: int) -> dict[str, Any]:
    """Return the step of one writer, which starts from the workflow's input."""
    given = {key: f"${{workflow.input.{key}}}" for key in ("workspace", "params")}
    name = f"forked_{number}_{world.suffix}"
    return {"name": name, "taskReferenceName": f"w{number}", "type": "SIMPLE", "inputParameters": given}


def forked(world: WorkerWorld, numbers: Iterable[int]) -> list[dict[str, Any]]:
    """Return a FORK_JOIN of writers and its JOIN."""
    arms = [[step(world, number)] for number in numbers]
    ends = [arm[-1]["taskReferenceName"] for arm in arms]
    return [
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": arms},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ends},
    ]


def joined(world: WorkerWorld, numbers: Iterable[int]) -> dict[str, Any]:
    """Return the step after the join, which starts from everything that the writers published."""
    workspaces = [f"${{w{number}.output.workspace}}" for number in numbers]
    return {
        "name": f"forked_joined_{world.suffix}",
        "taskReferenceName": "joined",
        "type": "SIMPLE",
        "inputParameters": {"workspace": workspaces, "params": {}},
    }


def start(
    world: WorkerWorld,
    name: str,
    tasks: list[dict[str, Any]],
    params: Mapping[str, Any],
    branch: str = "main",
) -> str:
    """Register a workflow of these tasks and start it from the head of the branch."""
    registered = {
        "name": f"{name}_{world.suffix}",
        "version": 1,
        "schemaVersion": 2,
        "ownerEmail": "tests@example.com",
        "timeoutPolicy": "ALERT_ONLY",
        "timeoutSeconds": 0,
        "tasks": tasks,
    }
    world.orchestrator.register_workflow(registered)
    ref = world.lake.head(world.repository, branch).id
    workspace = {"repository": world.repository, "branch": branch, "ref_type": "commit", "ref": ref}
    given = {"workspace": workspace, "params": dict(params)}
    return world.orchestrator.start_workflow(registered["name"], input=given)


def commits_since(world: WorkerWorld, ref: str, branch: str = "main") -> list[Commit]:
    """Return the commits since then, oldest first; fails unless history is linear."""
    newest = list(world.lake.log(world.repository, branch, 50))
    ids = [commit.id for commit in newest]
    assert ref in ids, f"{ref} is gone from {branch}"
    since = newest[: ids.index(ref)][::-1]
    assert [commit.parents for commit in since] == [(one,) for one in [ref, *(c.id for c in since)][:-1]]
    return since


def tables(world: WorkerWorld, branch: str = "main") -> dict[str, str]:
    """Return the contents of all writers' part files, by path below the tasks' prefix."""
    return {
        entry.path.removeprefix("data/"): b"".join(
            world.lake.read(world.repository, branch, entry.path)
        ).decode()
        for entry in world.lake.list(world.repository, branch, "data/t")
    }


def done_by(state: WorkflowState, reference: str) -> dict[str, Any]:
    """Return the output of a step's completed attempt."""
    found = [one for one in state.tasks if one.reference == reference and one.status == "COMPLETED"]
    assert len(found) == 1, [(one.reference, one.status, one.reason) for one in state.tasks]
    return dict(found[0].output)
