"""Workflows of the tasks in `forked_steps`: forks of several writers with what follows their join, and writers alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from perago.lake.base import Commit
from perago.orchestrator.base import WorkflowState
from tests.support.worlds.clock import eventually
from tests.support.worlds.worker_world import Site, Worker

TASKS = "forked_steps.py"


def start_worker(site: Site, *, slots: int, observe: Any = None) -> Worker:
    """A worker for the forked tasks, once it has registered them."""
    worker = site.start_worker(observe=observe, slots=slots, TEST_TASKS=TASKS)
    name = f"forked_joined_{site.suffix}"
    eventually(lambda: site.orchestrator.taskdef(name), "TaskDefs are registered")
    return worker


def step(site: Site, number: int) -> dict[str, Any]:
    """One writer, which works from the workflow's input."""
    given = {key: f"${{workflow.input.{key}}}" for key in ("workspace", "params")}
    name = f"forked_{number}_{site.suffix}"
    return {"name": name, "taskReferenceName": f"w{number}", "type": "SIMPLE", "inputParameters": given}


def forked(site: Site, numbers: Iterable[int]) -> list[dict[str, Any]]:
    """A FORK_JOIN of writers and its JOIN."""
    arms = [[step(site, number)] for number in numbers]
    ends = [arm[-1]["taskReferenceName"] for arm in arms]
    return [
        {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN", "forkTasks": arms},
        {"name": "join", "taskReferenceName": "join", "type": "JOIN", "joinOn": ends},
    ]


def joined(site: Site, numbers: Iterable[int]) -> dict[str, Any]:
    """The step behind the join, which works from all that the writers published."""
    workspaces = [f"${{w{number}.output.workspace}}" for number in numbers]
    return {
        "name": f"forked_joined_{site.suffix}",
        "taskReferenceName": "joined",
        "type": "SIMPLE",
        "inputParameters": {"workspace": workspaces, "params": {}},
    }


def start(
    site: Site, name: str, tasks: list[dict[str, Any]], params: Mapping[str, Any], branch: str = "main"
) -> str:
    """Register a workflow of these tasks and start it from the head of the branch."""
    registered = {
        "name": f"{name}_{site.suffix}",
        "version": 1,
        "schemaVersion": 2,
        "ownerEmail": "tests@example.com",
        "timeoutPolicy": "ALERT_ONLY",
        "timeoutSeconds": 0,
        "tasks": tasks,
    }
    site.orchestrator.register_workflow(registered)
    ref = site.lake.head(site.repository, branch).id
    workspace = {"repository": site.repository, "branch": branch, "ref_type": "commit", "ref": ref}
    given = {"workspace": workspace, "params": dict(params)}
    return site.orchestrator.start_workflow(registered["name"], input=given)


def commits_since(site: Site, ref: str, branch: str = "main") -> list[Commit]:
    """What came onto the branch since then, oldest first; the test fails unless it is one line of commits."""
    newest = list(site.lake.log(site.repository, branch, 50))
    ids = [commit.id for commit in newest]
    assert ref in ids, f"{ref} is gone from {branch}"
    since = newest[: ids.index(ref)][::-1]
    assert [commit.parents for commit in since] == [(one,) for one in [ref, *(c.id for c in since)][:-1]]
    return since


def tables(site: Site, branch: str = "main") -> dict[str, str]:
    """The part files of all writers, by their paths below the tasks' prefix, and what is in them."""
    return {
        entry.path.removeprefix("data/"): b"".join(
            site.lake.read(site.repository, branch, entry.path)
        ).decode()
        for entry in site.lake.list(site.repository, branch, "data/t")
    }


def done_by(state: WorkflowState, reference: str) -> dict[str, Any]:
    """The output of a step's attempt that completed."""
    found = [one for one in state.tasks if one.reference == reference and one.status == "COMPLETED"]
    assert len(found) == 1, [(one.reference, one.status, one.reason) for one in state.tasks]
    return dict(found[0].output)
