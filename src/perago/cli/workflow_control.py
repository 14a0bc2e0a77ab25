"""`perago retry`, `resume`, `pause` and `terminate`: change a workflow that failed, runs or waits.

They share this module because they differ in a single call.  On the real servers they show the workflow and ask.
"""

from __future__ import annotations

import re
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, Root, Yes
from perago.cli.server_choice import ServerChoice, choose_servers, need_servers
from perago.errors import OrchestratorNotFound, RuntimeConfigError
from perago.protocol.suggestions import did_you_mean

if TYPE_CHECKING:
    from perago.orchestrator.base import Orchestrator, WorkflowState
    from perago.runtime.runs.control import Action
    from perago.runtime.runs.inspect import RunHandle

Name = Annotated[str, typer.Argument(metavar="WORKFLOW_ID", help="A workflow's id, or a run's.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="The reason that the workflow shows.")]
_NEWEST = 100


def retry(
    workflow: Name, root: Root = None, remote: Remote = None, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Retry a failed workflow at its failed steps, even if no retries are left; continue a run of `perago run`."""
    _change("retry", workflow, choose_servers(root, remote, asks="before it writes", yes=yes), root, as_json)


def resume(
    workflow: Name, root: Root = None, remote: Remote = None, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Resume a paused workflow; continue a run of `perago run` that failed or was stopped."""
    _change("resume", workflow, choose_servers(root, remote, asks="before it writes", yes=yes), root, as_json)


def pause(
    workflow: Name, root: Root = None, remote: Remote = None, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Pause a running workflow: steps in progress finish, and no other is scheduled until it is resumed."""
    _change("pause", workflow, choose_servers(root, remote, asks="before it writes", yes=yes), root, as_json)


def terminate(
    workflow: Name,
    reason: Reason = "terminated by `perago terminate`",
    root: Root = None,
    remote: Remote = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Terminate a workflow that is running, paused or stopped; what its steps published stays."""
    choice = choose_servers(root, remote, asks="before it writes", yes=yes)
    _change("terminate", workflow, choice, root, as_json, reason)


def _change(
    action: Action, name: str, choice: ServerChoice, root: Path | None, as_json: bool, reason: str = ""
) -> None:
    from perago.backend import Embedded, Real
    from perago.runtime.runs.control import applicable, continues_run, refusal
    from perago.runtime.runs.inspect import find

    if not re.fullmatch(r"[\w.:@-]+", name):
        raise RuntimeConfigError(f"{name!r} is not the id of a workflow or a run; `perago runs` lists them")
    if choice.remote:
        need_servers(choice.settings, lakefs=False)
    found = find(Real(choice.settings) if choice.remote else Embedded(choice.settings), name)
    state = _read(found, choice)
    where = choice.options(root)
    if action not in applicable(found, state):
        output.fail(refusal(found, state, action, where))
    was = found.status(state)
    _show(choice, state, was)
    choice.agree(f"{action.capitalize()} it?")
    continues = continues_run(found, action)
    if not continues or state.status == "PAUSED":
        _apply(action, found, choice, reason)
    if continues:
        from perago.cli.run import run

        run(found.id, root=root, remote=choice.remote, resume=True, as_json_=as_json)
        return
    after = _read(found, choice)
    if as_json:
        ids = {"run": found.run.id if found.run else None, "workflow_id": state.id, "workflow": state.name}
        output.data({"action": action, **ids, "was": was, "status": found.status(after)})
    else:
        output.say(f"workflow {state.name} ({state.id}) is {found.status(after)}, was {was}")


def _read(found: RunHandle, choice: ServerChoice) -> WorkflowState:
    """Return the workflow's state.  Raises `RuntimeConfigError`, with a similar recent id, if it is unknown."""
    with closing(found.open()) as orchestrator:
        try:
            return orchestrator.workflow(found.workflow_id)
        except OrchestratorNotFound as missing:
            recent = [one.id for one in orchestrator.workflows(_NEWEST)]
            lists = f"; `perago runs{' --remote' if choice.remote else ''}` lists the newest"
            hint = did_you_mean(found.workflow_id, recent, otherwise=lists)
            raise RuntimeConfigError(f"no workflow {found.workflow_id!r} there{hint}") from missing


def _show(choice: ServerChoice, state: WorkflowState, status: str) -> None:
    """Show the workflow that would be changed, and why it failed."""
    from perago.runtime.runs.run import failed_step

    if choice.remote and choice.settings.conductor is not None:
        from perago.settings import shown_address

        output.note(f"Conductor: {shown_address(choice.settings.conductor.url)}")
    output.note(f"workflow {state.name} ({state.id}): {status}")
    if failed := failed_step(state):
        output.note(f"failed: {failed}")


def _apply(action: Action, found: RunHandle, choice: ServerChoice, reason: str) -> None:
    from perago.backend import Embedded, Real
    from perago.runtime.runs.record import holding, runs_folder, save_end
    from perago.runtime.runs.run import end_of

    settings = choice.settings
    servers: Embedded | Real = Real(settings) if choice.remote else Embedded(settings)
    own = found.run is not None and not found.may_progress
    folder = runs_folder(settings.root) / found.id
    with (
        # Nobody resumes a run on the embedded servers while it is changed.
        holding(folder) if own else nullcontext(),
        closing((servers.of_run(found.id) if found.run else servers).open_orchestrator()) as orchestrator,
    ):
        _call(orchestrator, action, found.workflow_id, reason)
        if own:
            save_end(settings.root, found.id, end_of(orchestrator.workflow(found.workflow_id)))


def _call(orchestrator: Orchestrator, action: Action, workflow_id: str, reason: str) -> None:
    match action:
        case "retry":
            orchestrator.retry_workflow(workflow_id)
        case "resume":
            orchestrator.resume_workflow(workflow_id)
        case "pause":
            orchestrator.pause_workflow(workflow_id)
        case "terminate":
            orchestrator.terminate_workflow(workflow_id, reason)
