"""Starts a registered workflow and follows it.

Everything is looked up and checked before the one call that starts the workflow, and that call names the version that
was checked.  The steps are run by workers, not by this process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from perago.declare.run_steps import needs_no_ref
from perago.errors import OrchestratorError, OrchestratorUnavailable, RuntimeConfigError, TaskInputError
from perago.lake.base import ReadableLake
from perago.orchestrator.base import Orchestrator, TaskState, WorkflowState
from perago.protocol.suggestions import listed, nearest
from perago.runtime.lake_lookup import head_of
from perago.workflow.check.check import check_workflow
from perago.workflow.check.input_check import WORKSPACE, check_input
from perago.workflow.model.definition import read_workflow
from perago.workflow.model.expressions import texts
from perago.workflow.model.requirements import task_names, version_of
from perago.workflow.model.step_types import SIMPLE

POLL_SECONDS = 0.5
WAIT_SECONDS = 10.0
"""If no worker takes a step for this many seconds, a worker is probably missing."""
_MAX_NAMED = 3
_MAX_FAILURES = 20
"""Number of consecutive failed polls that are tolerated, so that a server restart does not end `follow`."""


SCHEDULER_INPUT = {
    "_startedByScheduler": "plays",
    "_scheduledTime": 1_795_064_400_000,
    "_executedTime": 1_795_064_400_120,
    "_executionId": "4dc81088-974f-4d8c-94a3-8e9dc0ae2184",
    "_schedulerCron": "0 0 6 * * * UTC",
}
"""What Conductor's scheduler adds to the input of every run, with an example of each value."""


class SubmitObserver(Protocol):
    """Receives the progress of a workflow."""

    def show(self, state: WorkflowState) -> None:
        """Show the workflow's current state."""

    def on_step_waiting(self, step: TaskState, seconds: float) -> None:
        """Report that no worker has taken a step for this many seconds.  Called at most once per wait."""


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """A request to start a workflow.  `workspace` is REPO[@BRANCH].

    `scheduled` means that all runs of a schedule start with this input.
    """

    name: str
    input: Mapping[str, Any]
    workspace: str | None = None
    version: int | None = None
    scheduled: bool = False

    @property
    def nothing_done(self) -> str:
        """The beginning of an error that stops the request."""
        return f"nothing was {'scheduled' if self.scheduled else 'started'}"


@dataclass(frozen=True, slots=True)
class PreparedSubmission:
    """A checked request, with the workspace's commit in its input."""

    name: str
    version: int
    input: Mapping[str, Any]
    warnings: tuple[str, ...]


def prepare(
    orchestrator: Orchestrator, lake: ReadableLake | None, wanted: SubmitRequest, *, remedy: str
) -> PreparedSubmission:
    """Find the workflow and check its input.

    A workspace requires `lake`.  `remedy` is the command that registers a workflow.  Raises `RuntimeConfigError` if the
    workflow is unknown or invalid, and `TaskInputError` if its input is invalid.
    """
    definition = orchestrator.workflow_definition(wanted.name, wanted.version)
    if definition is None:
        raise RuntimeConfigError(f"{_describe_unknown(orchestrator, wanted)} register it with `{remedy}`")
    warnings = _check_definition(definition, wanted)
    if wanted.scheduled:
        _refuse_constant_commit(definition, wanted)
    payload = dict(wanted.input)
    if wanted.workspace is not None and lake is not None:
        payload[WORKSPACE] = head_of(lake, wanted.workspace, with_ref=not needs_no_ref(definition))
    taskdefs = {name: orchestrator.taskdef(name) for name in sorted(task_names(definition))}
    added = SCHEDULER_INPUT if wanted.scheduled else {}
    known = {name: value for name, value in added.items() if _reads_input(definition, name)}
    findings = check_input(definition, taskdefs, {**known, **payload})
    refused = [finding.text for finding in findings if finding.refused]
    if refused:
        more = f" (and {len(refused) - _MAX_NAMED} more)" if len(refused) > _MAX_NAMED else ""
        raise TaskInputError(f"{wanted.nothing_done}: {'; '.join(refused[:_MAX_NAMED])}{more}")
    warnings += [finding.text for finding in findings]
    warnings += [
        f"the task {name!r} has no TaskDef there: its input is not checked, and no Perago worker takes it"
        for name, taskdef in taskdefs.items()
        if taskdef is None
    ]
    return PreparedSubmission(wanted.name, version_of(definition), payload, tuple(warnings))


def _check_definition(definition: Mapping[str, Any], wanted: SubmitRequest) -> list[str]:
    """Return warnings about the definition.  Raises `RuntimeConfigError` if it has errors.

    The modules of its tasks are not available, so only the tasks' names are known.
    """
    diagnostics = check_workflow(
        definition, {}, file=f"workflow {wanted.name}", elsewhere=task_names(definition)
    )
    errors = [str(diagnostic) for diagnostic in diagnostics if diagnostic.level == "error"]
    if errors:
        raise RuntimeConfigError(f"{wanted.nothing_done}: {'; '.join(errors)}")
    return [str(diagnostic) for diagnostic in diagnostics]


def _refuse_constant_commit(definition: Mapping[str, Any], wanted: SubmitRequest) -> None:
    """Raise `RuntimeConfigError` if all runs of a schedule would start from the same commit."""
    given = wanted.input.get(WORKSPACE)
    if needs_no_ref(definition):
        if isinstance(given, Mapping) and given.get("ref") is not None:
            raise RuntimeConfigError(
                f"{wanted.nothing_done}: the workspace in --input names a commit, and every run would start from it; "
                "name only its repository and branch, as --workspace REPO[@BRANCH] does"
            )
    elif wanted.workspace is not None or given is not None or _reads_input(definition, WORKSPACE):
        raise RuntimeConfigError(
            f"{wanted.nothing_done}: every run of a schedule has the same input, and the workflow {wanted.name!r} takes its "
            "start commit from there, so every run would start from the same commit; let the workflow begin with "
            "`run = open_run()` and its other steps work on `run.workspace`"
        )


def _reads_input(definition: Mapping[str, Any], name: str) -> bool:
    steps = read_workflow(definition, named_only=True).walk()
    return any(f"workflow.input.{name}" in text for step in steps for _, text in texts(step.inputs))


def start(orchestrator: Orchestrator, prepared: PreparedSubmission) -> str:
    """Start the workflow and return its id."""
    try:
        return orchestrator.start_workflow(prepared.name, version=prepared.version, input=prepared.input)
    except OrchestratorUnavailable as error:
        # No retry: each call that reaches the server starts a workflow.
        raise OrchestratorUnavailable(
            f"{error}; it may have been started all the same: look on the server before you submit it again"
        ) from error


def follow(
    orchestrator: Orchestrator, workflow_id: str, observer: SubmitObserver, sleep: Callable[[float], None]
) -> WorkflowState:
    """Show the workflow's progress until it ends, and return its final state.

    Interrupting this function does not stop the workflow.
    """
    failures = untaken = 0
    while True:
        try:
            state = orchestrator.workflow(workflow_id)
        except OrchestratorUnavailable:
            failures += 1
            if failures > _MAX_FAILURES:
                raise
        else:
            failures = 0
            observer.show(state)
            if not state.running:
                return state
            waiting = _untaken(state)
            untaken = untaken + 1 if waiting else 0
            if waiting and untaken == round(WAIT_SECONDS / POLL_SECONDS) + 1:
                observer.on_step_waiting(waiting, WAIT_SECONDS)
        sleep(POLL_SECONDS)


def _untaken(state: WorkflowState) -> TaskState | None:
    """Return a step that is waiting for a worker.

    Returns None if there is none, if another step is running, or if a retry is waiting for its delay.
    """
    steps = [task for task in state.tasks if task.status in ("SCHEDULED", "IN_PROGRESS") and _is_simple(task)]
    untaken = all(task.status == "SCHEDULED" and not task.retry_count for task in steps)
    return steps[0] if steps and untaken else None


def _is_simple(task: TaskState) -> bool:
    return task.task_type in (SIMPLE, task.task_name)


def _describe_unknown(orchestrator: Orchestrator, wanted: SubmitRequest) -> str:
    try:
        versions = orchestrator.workflow_versions()
    except OrchestratorError:
        # The server cannot list its workflows, but it has said that this one does not exist.
        versions = {}
    found = ", ".join(map(str, versions.get(wanted.name, ())))
    if found:
        return f"the workflow {wanted.name!r} has no version {wanted.version}: it has {found};"
    there = f"there are: {listed(sorted(versions))}" if versions else "there is none yet"
    meant = nearest(wanted.name, versions)
    hint = f"did you mean {meant!r}? Or" if meant else f"{there};"
    return f"no workflow {wanted.name!r} is registered on {orchestrator.address}; {hint}"
