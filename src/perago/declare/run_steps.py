"""The two built-in tasks that make a run one transaction: `perago_open` and `perago_publish`.

They are ordinary SIMPLE tasks for Conductor, and workers offer them like any other, from this module.  They have no body:
`runtime/attempt/run_steps` runs their attempts.

Task names are global in Conductor.  Teams that share one but not their lake set `PERAGO_RUN_STEPS=team_a`, and the tasks are
called `team_a_open` and `team_a_publish`.  Like a default owner, it is read on import.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from perago.declare.controls import RetryPolicy, TaskControls, TimeoutPolicy
from perago.declare.task import OWNER_SETTING, TaskDefinition, remember_task, task
from perago.declare.workspace import WorkspaceSpec
from perago.errors import RuntimeConfigError
from perago.protocol.policies import AdvancedName
from perago.workflow.model.definition import read_workflow
from perago.workflow.model.expressions import texts
from perago.workflow.model.requirements import task_names

NAMES_SETTING = "PERAGO_RUN_STEPS"
"""The environment variable that names the two tasks' common prefix."""

_INPUT = "${workflow.input.workspace}"
_DEFAULT_PREFIX = "perago"
_PREFIX = re.compile(r"[A-Za-z0-9_]+")
_OWNER = os.environ.get(OWNER_SETTING) or "perago@example.com"
_CONTROLS = TaskControls(
    retry=RetryPolicy(count=3, delay_seconds=5), timeout=TimeoutPolicy(seconds=3600, response_seconds=120)
)


def _prefix() -> str:
    """Return the prefix of the two tasks' names, or the default one if the setting cannot be part of a name."""
    found = os.environ.get(NAMES_SETTING, "")
    return found if _PREFIX.fullmatch(found) else _DEFAULT_PREFIX


def check_names() -> None:
    """Raise `RuntimeConfigError` if the setting for the tasks' names is invalid."""
    found = os.environ.get(NAMES_SETTING, "")
    if found and not _PREFIX.fullmatch(found):
        raise RuntimeConfigError(
            f"{NAMES_SETTING} is {found!r}: use letters, digits and underscores, such as team_a"
        )


class OpenParams(BaseModel):
    """The params of `perago_open`."""

    isolate: bool = True
    """False to publish every step by itself; the run then has a start commit, but no run branch."""


class OriginRef(BaseModel):
    """The commit and the branch from which a run started: the `origin` in the output of `perago_open`."""

    model_config = ConfigDict(populate_by_name=True)

    repository: str = Field(min_length=1)
    branch: str = Field(min_length=1)
    ref_type: Literal["commit"] = Field("commit", alias="refType")
    ref: str = Field(min_length=1)


class PublishParams(BaseModel):
    """The params of `perago_publish`."""

    origin: OriginRef
    """The `origin` in the output of `perago_open`."""

    on_advanced: AdvancedName = "refuse"
    """What to do if others have advanced the branch since the origin: `refuse`, or `rebase` if no step saw a change."""


class Nothing(BaseModel):
    """The result of a built-in step: its output has no `result`."""


@task(
    name=f"{_prefix()}_open",
    owner_email=_OWNER,
    description="Opens a run: resolves the branch's head, and creates the run branch.",
    workspace=WorkspaceSpec(on_abandoned="supersede"),
    controls=_CONTROLS,
)
def open_run(workspace: Path, params: OpenParams) -> Nothing:
    """Open a run.  Only a worker can do that."""
    raise NotImplementedError("this task has no body: Perago runs it")


@task(
    name=f"{_prefix()}_publish",
    owner_email=_OWNER,
    description="Publishes a run as one commit on the branch that it started from.",
    workspace=WorkspaceSpec(on_abandoned="reuse"),
    controls=_CONTROLS,
)
def publish_run(workspace: Path, params: PublishParams) -> Nothing:
    """Publish a run.  Only a worker can do that."""
    raise NotImplementedError("this task has no body: Perago runs it")


def _built_in(function: Any, run_step: Literal["open", "publish"]) -> TaskDefinition:
    definition: TaskDefinition = replace(function.__perago_task__, run_step=run_step)
    function.__perago_task__ = definition
    remember_task(definition)
    return definition


OPEN = _built_in(open_run, "open")
PUBLISH = _built_in(publish_run, "publish")
RUN_STEPS: Mapping[str, TaskDefinition] = {OPEN.name: OPEN, PUBLISH.name: PUBLISH}
TARGET = __name__
"""The target from which executors load the two tasks."""


def with_run_steps(
    tasks: Iterable[TaskDefinition], definition: Mapping[str, Any] | None = None
) -> list[TaskDefinition]:
    """Return the tasks, and the built-in ones that nobody else has declared: both, or those that a workflow uses."""
    check_names()
    found = {task.name: task for task in tasks}
    wanted = RUN_STEPS.keys() if definition is None else task_names(definition)
    return [
        *found.values(),
        *(task for name, task in RUN_STEPS.items() if name in wanted and name not in found),
    ]


def targets_of(targets: Sequence[str], tasks: Iterable[TaskDefinition]) -> tuple[str, ...]:
    """Return the targets from which an executor can load these tasks, the built-in ones included."""
    built_in = any(task.run_step for task in tasks)
    return (*targets, TARGET) if built_in and TARGET not in targets else tuple(targets)


def needs_no_ref(definition: Mapping[str, Any]) -> bool:
    """Return whether a workflow needs no commit in `${workflow.input.workspace}`, because its first step opens a run.

    A workflow in which another step takes that workspace, too, needs its commit.
    """
    steps = list(read_workflow(definition, named_only=True).walk())
    if not steps or steps[0].name != OPEN.name or steps[0].inputs.get("workspace") != _INPUT:
        return False
    return not any(_INPUT[2:-1] in text for step in steps[1:] for _, text in texts(step.inputs))
