"""`perago logs`: show what the tasks in a run printed and logged.  With --follow, lines are shown as they arrive."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, Root, RunName
from perago.cli.server_choice import servers_to_read

if TYPE_CHECKING:
    from perago.orchestrator.base import TaskState
    from perago.runtime.runs.log import BodyLine

Step = Annotated[str | None, typer.Argument(metavar="STEP", help="A step's reference; all by default.")]
Follow = Annotated[
    bool, typer.Option("--follow", "-f", help="Keep showing new lines until the run has ended.")
]


def logs(
    run: RunName = None,
    step: Step = None,
    follow: Follow = False,
    root: Root = None,
    remote: Remote = None,
    as_json: AsJson = False,
) -> None:
    """Show what the tasks of a run printed and logged; the newest run by default."""
    from perago.runtime.runs import log
    from perago.runtime.runs.inspect import attempts_of

    found, step = log.run_and_step(servers_to_read(root, remote), run, step)
    with closing(found.open()) as orchestrator:
        if follow:
            for one in log.follow(found, orchestrator, step):
                if as_json:
                    output.json_text(json.dumps(_as_json(one), ensure_ascii=False))
                else:
                    output.say_printed(_text(one))
            return
        attempts = attempts_of(orchestrator, orchestrator.workflow(found.workflow_id))
    lines = log.printed_lines(attempts, step)
    if as_json:
        output.data([_as_json(one) for one in lines])
        return
    for one in lines:
        output.say_printed(_text(one))
    if not lines:
        output.note(f"no task of {found.id} printed anything" if step is None else f"{step} printed nothing")
    _print_failures([one.task for one in attempts if step is None or log.of_step(one.task, step)])


def _print_failures(tasks: list[TaskState]) -> None:
    """Print why attempts failed. Their logs do not contain the reason, but users expect to see it with the logs."""
    from perago.runtime.runs.format import status_line

    for task in tasks:
        if task.reason and task.status not in ("COMPLETED", "SCHEDULED", "IN_PROGRESS"):
            output.note(f"{status_line(task)}: {task.reason}", lines=True)


def _text(one: BodyLine) -> str:
    from perago.runtime.runs.format import body_line

    return body_line(one.task.reference, one.task.retry_count, one.line.text)


def _as_json(one: BodyLine) -> dict[str, Any]:
    return {
        "at": one.line.at,
        "step": one.task.reference,
        "retry_count": one.task.retry_count,
        "task_id": one.task.task_id,
        "text": one.line.text,
    }
