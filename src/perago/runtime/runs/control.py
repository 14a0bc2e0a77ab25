"""Decides which changes apply to a workflow: retry, resume, pause, terminate.

    status                           retry   resume   pause   terminate
    RUNNING                                           yes     yes
    PAUSED                                   yes              yes
    COMPLETED
    FAILED, TIMED_OUT, TERMINATED    yes

A run of `perago run` has a worker of its own.  If its process is gone, `retry` and `resume` both continue the run, as
`perago run --resume` does.  While its process lives, only that process may change a run on the embedded servers.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from perago.declare.run_steps import TARGET as RUN_STEPS_MODULE
from perago.orchestrator.base import WorkflowState
from perago.protocol.refusal import RETRY_IS_USELESS
from perago.runtime.runs.inspect import RunHandle, worker_tasks
from perago.runtime.runs.record import Run, resume_command
from perago.runtime.runs.run_input import workspaces_in

Action = Literal["retry", "resume", "pause", "terminate"]
PRE_CHECK = "pre check "
"""The beginning of the reason of an attempt whose data a pre check refused."""
_APPLICABLE: Mapping[str, tuple[Action, ...]] = {
    "RUNNING": ("pause", "terminate"),
    "PAUSED": ("resume", "terminate"),
    "COMPLETED": (),
}


def applicable(found: RunHandle, state: WorkflowState) -> tuple[Action, ...]:
    """Return the changes that apply to the workflow in this state."""
    of_workflow = _APPLICABLE.get(state.status, ("retry",))
    if found.run is None:
        return of_workflow
    if found.may_progress:
        return () if found.servers.embedded else of_workflow
    if state.status == "COMPLETED":
        return ()
    if state.status == "PAUSED":
        return of_workflow
    return ("retry", "resume", "terminate") if state.running else ("retry", "resume")


def continues_run(found: RunHandle, action: Action) -> bool:
    """Return whether an applicable change means to continue a run of `perago run` with a worker of its own."""
    return found.run is not None and not found.may_progress and action in ("retry", "resume")


def refusal(found: RunHandle, state: WorkflowState, action: Action, where: Sequence[str]) -> str:
    """Return why the change does not apply, and what does.  `where` has the options that select the servers."""
    if found.run is not None and found.may_progress and found.servers.embedded:
        then = f"; then `{shlex.join(['perago', action, found.id, *where])}`" if action == "terminate" else ""
        if action == "pause":
            then = f"; `{shlex.join(['perago', 'resume', found.id, *where])}` continues it"
        return f"run {found.id} is running in another process: press Ctrl-C there{then}"
    name = f"run {found.id}" if found.run is not None else f"workflow {found.id}"
    hint = f"; next: `{commands[0]}`" if (commands := next_commands(found, state, where)) else ""
    return f"cannot {action} {name}: it is {found.status(state)}{hint}"


def next_commands(found: RunHandle, state: WorkflowState, where: Sequence[str]) -> list[str]:
    """Return the commands that can follow in this state, the most likely one first."""
    actions = applicable(found, state)
    own_way = new_run_command(found.run, state.input, found.servers.settings.root) if found.run else ""
    new_start = own_way or _submit_command(state, where)
    if "retry" in actions and retry_is_useless(state):
        return [new_start]
    first = [new_start] if "retry" in actions and input_data_was_refused(state) else []
    if found.run is not None and not found.may_progress and "retry" in actions:
        own = [resume_command(found.run, found.servers.settings.root)]
        actions = ("terminate",) if "terminate" in actions else ()
    else:
        own = []
    asks = [] if found.servers.embedded else ["--yes"]
    return first + own + [shlex.join(["perago", action, found.id, *where, *asks]) for action in actions]


def new_run_command(run: Run, given: Mapping[str, Any], root: Path) -> str:
    """Return the `perago run` that starts the run anew: from the current head, with the other inputs as they were.

    Returns an empty string if that cannot be said as one command.
    """
    workspace = given.get("workspace")
    if not run.workflow_file or not isinstance(workspace, Mapping):
        return ""
    tasks = [word for target in run.targets if target != RUN_STEPS_MODULE for word in ("--tasks", target)]
    words = ["perago", "run", run.workflow_file, *tasks, *_from_current_head(given)]
    words += [*run.recompute.options, *(["--root", str(root.resolve())] if run.embedded else ["--remote"])]
    command = shlex.join(words)
    return command if os.getcwd() == run.folder else f"cd {shlex.quote(run.folder)} && {command}"


def retry_is_useless(state: WorkflowState) -> bool:
    """Return whether the workflow failed in a way that every retry would repeat."""
    latest = {task.reference: task for task in worker_tasks(state)}
    return any(
        RETRY_IS_USELESS in (task.reason or "") for task in latest.values() if task.status != "COMPLETED"
    )


def input_data_was_refused(state: WorkflowState) -> bool:
    """Return whether a pre check refused the data in the workflow's own input.

    A retry gets the same data: it only helps if the task or its check is changed.
    """
    given = {workspace.ref for workspace in workspaces_in(state.input)}
    return any(
        task.status == "FAILED_WITH_TERMINAL_ERROR"
        and (task.reason or "").startswith(PRE_CHECK)
        and given & {workspace.ref for workspace in workspaces_in(task.input, only="workspace")}
        for task in {task.reference: task for task in worker_tasks(state)}.values()
    )


def _submit_command(state: WorkflowState, where: Sequence[str]) -> str:
    """Return the command that starts the workflow anew: from the current head, with the other inputs as they were."""
    asks = ["--yes"] if "--remote" in where else ["--local"]
    rest = [option for option in where if option not in ("--remote", "--local")]
    return shlex.join(["perago", "submit", state.name, *_from_current_head(state.input), *rest, *asks])


def _from_current_head(values: Mapping[str, Any]) -> list[str]:
    """Return the options that give the same input again, with the current head of the workspace's branch."""
    given = dict(values)
    workspace = given.get("workspace")
    options: list[str] = []
    if isinstance(workspace, Mapping) and {"repository", "branch"} <= workspace.keys():
        del given["workspace"]
        options += ["--workspace", f"{workspace['repository']}@{workspace['branch']}"]
    if given:
        options += ["--input", json.dumps(given, ensure_ascii=False)]
    return options
