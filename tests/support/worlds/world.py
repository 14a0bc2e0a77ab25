"""A world for whole attempts: a lake with one repository, the embedded orchestrator, and a workspace root.

The fixture decides which lake it is; no scenario names one.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from perago import PublishBudget, WorkspaceSpec, task
from perago.declare.controls import RetryPolicy, TaskControls, TimeoutPolicy
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.lake.base import Commit, Lake
from perago.orchestrator.base import Assignment, WorkflowState
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.protocol.policies import POLICIES
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.delivery import Executor
from perago.runtime.execution_result import ExecutionResult
from perago.testing.lake import put_objects, read_objects
from tests.support.faults.ports import before
from tests.support.worlds.clock import Clock

_names = itertools.count()


class Params(BaseModel):
    text: str = "made"


class Made(BaseModel):
    said: str


Body = Callable[[Path, Params], Made]


def write_result(workspace: Path, params: Params) -> Made:
    """Write one file below the prefix: the usual body."""
    (workspace / "result.txt").write_text(params.text)
    return Made(said=params.text)


def change_nothing(workspace: Path, params: Params) -> Made:
    """Change nothing, as a body that only reads."""
    return Made(said=params.text)


def make_task(
    body: Body = write_result,
    *,
    name: str = "make",
    retries: int = 3,
    version: str | None = "1",
    skip_unchanged: bool = False,
    **spec: Any,
) -> TaskDefinition:
    """Return a task around `body`; `spec` goes to its WorkspaceSpec (prefix /data by default).

    `on_abandoned` may be the name of any policy.
    """
    if (policy := POLICIES.get(spec.get("on_abandoned", ""))) is not None and not policy.replaces_unsigned:
        spec |= {"on_abandoned": policy.on_abandoned, "unsigned": "refuse"}

    @task(
        name=name,
        version=version,
        skip_unchanged=skip_unchanged,
        owner_email="tests@example.com",
        workspace=WorkspaceSpec(**{"prefix": "/data", **spec}),
        controls=TaskControls(
            retry=RetryPolicy(count=retries, delay_seconds=0), timeout=TimeoutPolicy(response_seconds=60)
        ),
    )
    def run(workspace: Path, params: Params) -> Made:
        return body(workspace, params)

    definition: TaskDefinition = run.__perago_task__
    return definition


def impatient(definition: TaskDefinition) -> TaskDefinition:
    """Return the same task with a merge timeout of one second."""
    budget = PublishBudget(
        observed_merge_p99_seconds=1,
        safety_margin_seconds=0,
        lakefs_merge_timeout_seconds=1,
        conductor_completion_timeout_seconds=5,
        worker_shutdown_grace_seconds=5,
        heartbeat_interval_seconds=5,
    )
    return replace(definition, controls=definition.controls.model_copy(update={"publish_budget": budget}))


# Cached by identity: the histories of one test start thousands of workflows of one task.
@functools.lru_cache(16)
def _taskdef(definition: TaskDefinition) -> dict[str, Any]:
    return build_taskdef(definition)


@dataclass(slots=True)
class World:
    """Everything one scenario needs, and the questions it asks about the outcome."""

    lake: Lake
    repository: str
    folder: Path
    clock: Clock = field(default_factory=Clock)
    orchestrator: LocalOrchestrator = field(init=False)

    def __post_init__(self) -> None:
        self.orchestrator = LocalOrchestrator(
            self.folder / "orchestrator.db", clock=self.clock, sleep=self.clock.sleep
        )

    @property
    def root(self) -> Path:
        return self.folder / "workspaces"

    # --- given -----------------------------------------------------------------------------------------------

    def commit(
        self,
        files: Mapping[str, str | None],
        *,
        branch: str = "main",
        message: str = "by hand",
        metadata: Mapping[str, str] | None = None,
    ) -> str:
        """Commit by hand, not by a task; None deletes a file."""
        self.put(files, branch=branch)
        return self.lake.commit(self.repository, branch, message, metadata or {})

    def put(self, files: Mapping[str, str | None], *, branch: str = "main") -> None:
        """Upload objects to a branch without committing them."""
        put_objects(self.lake, self.repository, branch, files, folder=self.folder / "uploads")

    def start(
        self, definition: TaskDefinition, *, text: str = "made", ref: str | None = None, **top: Any
    ) -> str:
        """Start a workflow of one step that runs the task from `ref` (main's head by default)."""
        workspace = {
            "repository": self.repository,
            "branch": "main",
            "ref_type": "commit",
            "ref": ref or self.head().id,
        }
        payload = {"workspace": workspace, "params": {"text": text}, **top}
        return self.start_with(definition, payload)

    def start_with(self, definition: TaskDefinition, payload: Mapping[str, Any]) -> str:
        """Start a workflow of one step with this input."""
        self.orchestrator.register_taskdefs([_taskdef(definition)])
        name = f"flow-{next(_names)}"
        self.orchestrator.register_workflow(
            {
                "name": name,
                "version": 1,
                "schemaVersion": 2,
                "tasks": [
                    {
                        "name": definition.name,
                        "taskReferenceName": "step",
                        "type": "SIMPLE",
                        "inputParameters": {key: f"${{workflow.input.{key}}}" for key in payload},
                    }
                ],
                "outputParameters": {"ref": "${step.output.workspace.ref}"},
            }
        )
        return self.orchestrator.start_workflow(name, input=payload)

    def poll(self, definition: TaskDefinition) -> Assignment:
        """Poll the next attempt of the task; fails if there is none."""
        polled = self.orchestrator.poll(definition.name, worker_id="tests", count=1, wait_seconds=0)
        assert len(polled) == 1, f"{len(polled)} attempts to poll"
        return polled[0]

    def retry(self, definition: TaskDefinition) -> Assignment:
        """Time out the current attempt, as if its worker had died, and poll the next one."""
        self.orchestrator.time_out_in_progress("the worker is dead")
        return self.poll(definition)

    # --- when ------------------------------------------------------------------------------------------------

    def attempt_context(self, **changed: Any) -> AttemptContext:
        """Return the context of an execution, with parts replaced."""
        usual = {"lake": self.lake, "orchestrator": self.orchestrator, "workspace_root": self.root}
        return AttemptContext(**{**usual, **changed})

    def execute(self, definition: TaskDefinition, assignment: Assignment, **changed: Any) -> ExecutionResult:
        """Run one execution of the attempt to its end."""
        return Executor(
            {definition.name: definition}, self.attempt_context(**changed), "tests", mask=str
        ).execute(assignment)

    def run(self, definition: TaskDefinition, **start: Any) -> ExecutionResult:
        """Start a workflow of one step and run its first attempt."""
        self.start(definition, **start)
        return self.execute(definition, self.poll(definition))

    # --- then ------------------------------------------------------------------------------------------------

    def head(self, branch: str = "main") -> Commit:
        return self.lake.head(self.repository, branch)

    def files(self, ref: str = "main") -> dict[str, str]:
        """Return every object of a ref, as text."""
        found = read_objects(self.lake, self.repository, ref)
        return {path: content.decode() for path, content in found.items()}

    def history(self, ref: str = "main") -> list[str]:
        return [commit.id for commit in self.lake.log(self.repository, ref, 100)]

    def leftovers(self) -> list[str]:
        """Return the staging and claim branches that still exist."""
        return [branch.name for branch in self.lake.branches(self.repository, "perago-")]

    def replaced(self) -> list[str]:
        """Return the commits that tags of replaced heads keep."""
        return [tag.commit for tag in self.lake.tags(self.repository, "perago-replaced-")]

    def workdirs(self) -> list[Path]:
        return sorted(self.root.iterdir()) if self.root.is_dir() else []

    def workflow(self, workflow_id: str) -> WorkflowState:
        return self.orchestrator.workflow(workflow_id)


def published_ref(settled: ExecutionResult) -> str:
    """Return the ref of a COMPLETED outcome."""
    assert settled.outcome.status == "COMPLETED", settled.outcome
    assert settled.outcome.output is not None
    return str(settled.outcome.output["workspace"]["ref"])


def fails(world: World, definition, status: str, *texts: str, **changed) -> None:
    """Run the next attempt; it must end as `status`, give the reason, and leave the lake unchanged."""
    head, files = world.head().id, world.files()
    settled = world.execute(definition, world.poll(definition), **changed)
    assert settled.outcome.status == status, settled.outcome
    for text in texts:
        assert text in (settled.outcome.reason or "")
    assert (world.head().id, world.files()) == (head, files)
    assert world.leftovers() == []
    assert world.workdirs() == []


def abandon(world: World, definition: TaskDefinition) -> str:
    """Run an attempt whose worker dies between publishing and completing; returns the abandoned commit at the head."""

    def die() -> None:
        raise RuntimeError("the worker dies here")

    orchestrator = before(world.orchestrator, "complete", die)
    with pytest.raises(RuntimeError, match="dies here"):
        world.execute(definition, world.poll(definition), orchestrator=orchestrator)
    return world.head().id


def a_budget(**fields: int) -> PublishBudget:
    """Return the shortest publish budget, with these fields changed."""
    shortest = dict.fromkeys(PublishBudget.model_fields, 1) | {"safety_margin_seconds": 0}
    return PublishBudget(**{**shortest, **fields})
