"""`perago plan`: say which steps of a run would be skipped, which would run, and why.  Runs and writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import AsJson, Force, Full, Remote, Root, read_repository
from perago.cli.run import Input, Tasks, WorkspaceOption
from perago.cli.server_choice import choose_servers
from perago.cli.workflow_input import check_forced, read_definition, read_payload, refuse_diagnostics
from perago.declare.discovery import load_tasks
from perago.declare.run_steps import needs_no_ref, with_run_steps
from perago.protocol.ledger import Recompute
from perago.workflow.model.expressions import UNKNOWN

if TYPE_CHECKING:
    from perago.runtime.plan.planner import Plan, PlannedStep

WorkflowFile = Annotated[
    str, typer.Argument(metavar="WORKFLOW", help="The workflow: flow.py:NAME, or a JSON file.")
]


def plan(
    workflow: WorkflowFile,
    tasks: Tasks = [],  # noqa: B006 - typer reads the default, and never writes it
    input_: Input = "{}",
    workspace: WorkspaceOption = None,
    force: Force = [],  # noqa: B006
    full: Full = False,
    root: Root = None,
    remote: Remote = None,
    as_json: AsJson = False,
) -> None:
    """Say for each step of a workflow whether a run would skip it or run it, and why; run and write nothing."""
    # Imported here because the runtime imports the process machinery, which other commands do not need.
    from perago.assembly import open_planner
    from perago.runtime.lake_lookup import head_of
    from perago.workflow.model.requirements import used_tasks

    if not tasks:
        raise typer.BadParameter("give the tasks of the workflow (--tasks TARGET)")
    if workspace is not None:
        read_repository(workspace)
    definition, payload = read_definition(workflow), read_payload(input_)
    recompute = Recompute(full, frozenset(force))
    known = with_run_steps(load_tasks(tuple(tasks)), definition)
    given = payload if workspace is None else {**payload, "workspace": UNKNOWN}
    refuse_diagnostics(definition, known, file=workflow, given=given)
    check_forced(definition, recompute)
    used = used_tasks(definition, {task.name for task in known})
    serving = [task for task in known if task.name in used]
    with choose_servers(root, remote, lake_only=True).open_lake() as lake:
        if workspace is not None:
            payload["workspace"] = head_of(lake, workspace, with_ref=not needs_no_ref(definition))
        with open_planner(lake, serving, recompute) as planner:
            found = planner.plan(definition, payload)
    if as_json:
        output.data(_as_json(found, payload))
        return
    for line, style in _lines(found.steps):
        output.say(line, style)
    output.note(_summary(found.steps))
    if found.failure is not None:
        output.warn(f"the run would fail: {found.failure}")


def _lines(steps: Sequence[PlannedStep]) -> list[tuple[str, str | None]]:
    width = max((len(step.reference) for step in steps), default=0)
    return [
        (
            f"{step.reference:<{width}}  {'skip' if step.skips else 'run '}  {step.reason}",
            "dim" if step.skips else None,
        )
        for step in steps
    ]


def _summary(steps: Sequence[PlannedStep]) -> str:
    skipped = sum(step.skips for step in steps)
    plural = "" if len(steps) == 1 else "s"
    return f"{len(steps)} step{plural}: {skipped} to skip, {len(steps) - skipped} to run"


def _as_json(found: Plan, payload: dict[str, Any]) -> dict[str, Any]:
    steps = [
        {
            "step": step.reference,
            "task": step.task,
            "decision": "skip" if step.skips else "run",
            **{name: value for name, value in asdict(step).items() if name in _FIELDS},
        }
        for step in found.steps
    ]
    return {
        "workflow": found.workflow,
        "workspace": payload.get("workspace"),
        "steps": steps,
        "failure": found.failure,
    }


_FIELDS = ("kind", "reason", "commit", "changed", "paths", "after")
