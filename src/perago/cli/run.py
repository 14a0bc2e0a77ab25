"""`perago run`: a whole workflow with its worker, from one command.

On the embedded lake and orchestrator, unless lakeFS and Conductor are both configured and no --root is given.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli import output, run_again
from perago.cli.options import AsJson
from perago.cli.progress import transfer_bar
from perago.cli.run_input import read_definition, read_import, read_payload
from perago.cli.run_view import Viewer, as_json, summary
from perago.declare.discovery import load_tasks
from perago.settings import load_settings

if TYPE_CHECKING:
    from perago.connect import Embedded, Real
    from perago.runtime.runs.record import Run
    from perago.runtime.worker.plan import WorkerPlan

WorkflowFile = Annotated[
    str | None,
    typer.Argument(
        metavar="WORKFLOW.json",
        help="The workflow's definition; with --resume or --from the run's id, or nothing for the newest.",
    ),
]
Tasks = Annotated[
    list[str],
    typer.Option("--tasks", metavar="TARGET", help="A module or file with tasks; repeat it for more."),
]
Input = Annotated[str, typer.Option("--input", metavar="FILE|JSON", help="The workflow's input.")]
Import = Annotated[
    list[str],
    typer.Option("--import", metavar="REPO=DIR", help="Make a repository whose first commit is the folder."),
]
WorkspaceOption = Annotated[
    str | None,
    typer.Option(
        "--workspace", metavar="REPO[@BRANCH]", help="Put that branch's head into the input as `workspace`."
    ),
]
RootOption = Annotated[
    Path | None,
    typer.Option(
        "--root", metavar="DIR", help="Use the embedded lake and orchestrator in this folder (.perago)."
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Go on with a run that failed or was stopped, with the tasks as they are now."
    ),
]
FromStep = Annotated[
    str | None,
    typer.Option("--from", metavar="STEP", help="Start a new run at this step of a run, on a new branch."),
]
Jobs = Annotated[int, typer.Option("-j", "--jobs", min=1, help="How many attempts at once.")]


def run(
    workflow: WorkflowFile = None,
    tasks: Tasks = [],  # noqa: B006 - typer reads the default, nobody writes it
    input_: Input = "{}",
    imports: Import = [],  # noqa: B006
    workspace: WorkspaceOption = None,
    root: RootOption = None,
    resume: Resume = False,
    from_: FromStep = None,
    jobs: Jobs = 2,
    as_json_: AsJson = False,
) -> None:
    """Run a workflow and the worker for it, show its steps, and end with its result."""
    if not resume and from_ is None and (workflow is None or not tasks):
        raise typer.BadParameter("give WORKFLOW.json and --tasks, or --resume, or --from STEP")
    if resume and from_ is not None:
        raise typer.BadParameter("--resume goes on with a run, --from starts a new one: give one of them")
    # The runtime brings the process machinery along: other commands go without.
    from perago.connect import servers_of_run
    from perago.runtime.runs import session
    from perago.runtime.runs.going_on import only_lost, resume_command, try_again

    servers = servers_of_run(load_settings(os.environ, root=root), root)
    lost: frozenset[str] = frozenset()
    if resume:
        current, done = run_again.finished(servers, workflow)
        if done is not None:
            if as_json_:
                output.data(as_json(done, current))
            else:
                output.say(f"run {current.id} is COMPLETED: there is nothing to go on with")
            return
        plan, lost = run_again.taken_up(servers, current, jobs)
    elif from_ is not None:
        current, plan = run_again.from_step(servers, workflow, from_, jobs=jobs)
    else:
        wanted = _Wanted(Path(workflow or ""), tuple(tasks), input_, workspace)
        current, plan = _begun(servers, wanted, imports, jobs=jobs, quiet=as_json_)
    with Viewer(quiet=as_json_) as viewer:
        ended = session.drive(current, plan, viewer)
        if only_lost(ended, lost):
            try_again(plan.spec.servers, current)
            ended = session.drive(current, plan, viewer)
    if ended.running:
        output.fail(f"stopped; `{resume_command(current, servers.settings.root)}` goes on with it")
    if as_json_:
        output.data(as_json(ended, current))
    else:
        for line, style in summary(ended, current):
            output.say(line, style)
    if ended.status != "COMPLETED":
        command = resume_command(current, servers.settings.root)
        output.note(f"when the cause is mended, `{command}` goes on from there")
        raise typer.Exit(output.FAILED)


@dataclass(frozen=True, slots=True)
class _Wanted:
    workflow: Path
    targets: tuple[str, ...]
    given: str
    workspace: str | None


def _begun(
    servers: Embedded | Real, wanted: _Wanted, imports: list[str], *, jobs: int, quiet: bool
) -> tuple[Run, WorkerPlan]:
    from perago.connect import assemble_worker
    from perago.runtime.folder_import import import_folder
    from perago.runtime.runs import session
    from perago.runtime.runs.record import new_run_id
    from perago.runtime.runs.workflow import side_by_side, used_tasks
    from perago.runtime.servers import opened

    folders = [read_import(item) for item in imports]
    definition, payload = read_definition(wanted.workflow), read_payload(wanted.given)
    known = load_tasks(wanted.targets)
    used = used_tasks(definition, {task.name for task in known})
    run_id = new_run_id(time.time())
    tasks = [task for task in known if task.name in used]
    plan = assemble_worker(
        servers.of_run(run_id),
        wanted.targets,
        tasks,
        slots=min(jobs, side_by_side(definition) or jobs),
        log_level=session.LOG_LEVEL,
    )
    session.check_root(servers.settings)
    for name, folder in folders:
        with opened(servers) as (lake, _):
            shown = partial(transfer_bar, quiet=quiet)
            import_folder(lake, name, folder, leave_out=servers.settings.root, shown=shown)
    start = session.Start(definition, payload, wanted.workspace, file=str(wanted.workflow))
    return session.begin(run_id, plan, start), plan
