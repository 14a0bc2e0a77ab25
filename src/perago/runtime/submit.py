"""Starting a registered workflow, and following it.

The rule: everything is looked up and checked before the one call that starts it, and that call names the version that was
checked.  Nothing here runs a step: workers do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from perago.errors import OrchestratorError, OrchestratorUnavailable, RuntimeConfigError, TaskInputError
from perago.lake.base import Lake
from perago.orchestrator.base import Orchestrator, TaskState, WorkflowState
from perago.protocol.suggestions import listed, nearest
from perago.runtime.lake_lookup import head_of
from perago.workflow.check.check import check_workflow
from perago.workflow.check.input_check import WORKSPACE, check_input
from perago.workflow.model.definition import task_names, version_of

LOOK_SECONDS = 0.5
WAIT_SECONDS = 10.0
"""How long nothing but untaken steps are there before a missing worker is thought of."""
_TOLD = 3
_PATIENCE = 20
"""How often in a row a look may fail before following ends: a restart of the server is waited for."""


class SubmitObserver(Protocol):
    """Who is shown how a workflow goes."""

    def show(self, state: WorkflowState) -> None:
        """Where the workflow stands now."""

    def waits(self, step: TaskState, seconds: float) -> None:
        """No worker has taken a step for so long; said once."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to start, as it was asked for; `workspace` is REPO[@BRANCH]."""

    name: str
    input: Mapping[str, Any]
    workspace: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What will be started: checked, with the workspace's commit in its input."""

    name: str
    version: int
    input: Mapping[str, Any]
    warnings: tuple[str, ...]


def prepare(orchestrator: Orchestrator, lake: Lake | None, wanted: Wanted, *, remedy: str) -> Prepared:
    """Find the workflow and check its input; `lake` is needed for a workspace, `remedy` registers a workflow."""
    definition = orchestrator.workflow_definition(wanted.name, wanted.version)
    if definition is None:
        raise RuntimeConfigError(f"{_unknown(orchestrator, wanted)} register it with `{remedy}`")
    noticed = _refuse_diagnostics(definition, wanted.name)
    payload = dict(wanted.input)
    if wanted.workspace is not None and lake is not None:
        payload[WORKSPACE] = head_of(lake, wanted.workspace)
    taskdefs = {name: orchestrator.taskdef(name) for name in sorted(task_names(definition))}
    findings = check_input(definition, taskdefs, payload)
    refused = [finding.text for finding in findings if finding.refused]
    if refused:
        more = f" (and {len(refused) - _TOLD} more)" if len(refused) > _TOLD else ""
        raise TaskInputError(f"nothing was started: {'; '.join(refused[:_TOLD])}{more}")
    warnings = [*noticed, *(finding.text for finding in findings)]
    warnings += [
        f"the task {name!r} has no TaskDef there: its input is not checked, and no Perago worker takes it"
        for name, taskdef in taskdefs.items()
        if taskdef is None
    ]
    return Prepared(wanted.name, version_of(definition), payload, tuple(warnings))


def _refuse_diagnostics(definition: Mapping[str, Any], name: str) -> list[str]:
    """The warnings about the definition itself; its tasks' modules are not at hand, so only their names are known."""
    diagnostics = check_workflow(definition, {}, file=f"workflow {name}", elsewhere=task_names(definition))
    wrong = [str(diagnostic) for diagnostic in diagnostics if diagnostic.level == "error"]
    if wrong:
        raise RuntimeConfigError(f"nothing was started: {'; '.join(wrong)}")
    return [str(diagnostic) for diagnostic in diagnostics]


def start(orchestrator: Orchestrator, prepared: Prepared) -> str:
    """Start it and return the workflow's id."""
    try:
        return orchestrator.start_workflow(prepared.name, version=prepared.version, input=prepared.input)
    except OrchestratorUnavailable as error:
        # Not tried again: each call that lands starts one.
        raise OrchestratorUnavailable(
            f"{error}; it may have been started all the same: look on the server before you submit it again"
        ) from error


def follow(
    orchestrator: Orchestrator, workflow_id: str, observer: SubmitObserver, sleep: Callable[[float], None]
) -> WorkflowState:
    """Show the workflow until it is over; whoever stops looking leaves it running."""
    failures = untaken = 0
    while True:
        try:
            state = orchestrator.workflow(workflow_id)
        except OrchestratorUnavailable:
            failures += 1
            if failures > _PATIENCE:
                raise
        else:
            failures = 0
            observer.show(state)
            if not state.running:
                return state
            waiting = _untaken(state)
            untaken = untaken + 1 if waiting else 0
            if waiting and untaken == round(WAIT_SECONDS / LOOK_SECONDS) + 1:
                observer.waits(waiting, WAIT_SECONDS)
        sleep(LOOK_SECONDS)


def _untaken(state: WorkflowState) -> TaskState | None:
    """The step that waits for a worker, where nothing else goes on; a retry waits for its delay."""
    steps = [task for task in state.tasks if task.status in ("SCHEDULED", "IN_PROGRESS") and _is_simple(task)]
    untaken = all(task.status == "SCHEDULED" and not task.retry_count for task in steps)
    return steps[0] if steps and untaken else None


def _is_simple(task: TaskState) -> bool:
    return task.task_type in ("SIMPLE", task.task_name)


def _unknown(orchestrator: Orchestrator, wanted: Wanted) -> str:
    try:
        versions = orchestrator.workflow_versions()
    except OrchestratorError:
        # A server that does not list them has still said that this one is not there.
        versions = {}
    found = ", ".join(map(str, versions.get(wanted.name, ())))
    if found:
        return f"the workflow {wanted.name!r} has no version {wanted.version}: it has {found};"
    there = f"there are: {listed(sorted(versions))}" if versions else "there is none yet"
    meant = nearest(wanted.name, versions)
    hint = f"did you mean {meant!r}? Or" if meant else f"{there};"
    return f"no workflow {wanted.name!r} is registered on {orchestrator.address}; {hint}"
