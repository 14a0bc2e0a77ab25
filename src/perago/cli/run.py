"""`perago run`: run a whole workflow and its worker, on the embedded servers or, with --remote, on lakeFS and Conductor."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli import output
from perago.cli.options import (
    Archives,
    AsJson,
    Force,
    Full,
    Jars,
    PyFiles,
    Remote,
    Root,
    Yes,
    read_repository,
    spark_files,
)
from perago.cli.run_view import Viewer, as_json, summary
from perago.cli.server_choice import ServerChoice, agree_to_run, choose_servers, resumes_remotely
from perago.cli.ui import check_page, serving_page
from perago.cli.workflow_input import (
    check_forced,
    read_definition,
    read_import,
    read_payload,
    refuse_diagnostics,
)
from perago.declare.discovery import load_tasks
from perago.declare.run_steps import with_run_steps
from perago.protocol.ledger import Recompute
from perago.workflow.model.expressions import UNKNOWN

if TYPE_CHECKING:
    from perago.backend import Embedded, Real
    from perago.orchestrator.base import WorkflowState
    from perago.runtime.runs.record import Run
    from perago.runtime.runs.rerun import Sibling
    from perago.runtime.worker.plan import WorkerPlan

LONGEST_DELAY_SECONDS = 1.0
"""The longest delay before a retry on the embedded servers: the author sits and waits."""
WorkflowFile = Annotated[
    str | None,
    typer.Argument(
        metavar="WORKFLOW",
        help="The workflow: flow.py:NAME, or a JSON file. "
        "With --resume or --from the run's id, or nothing for the newest.",
    ),
]
Tasks = Annotated[
    list[str],
    typer.Option("--tasks", metavar="TARGET", help="A module or file with tasks; repeat it for more."),
]
Input = Annotated[str, typer.Option("--input", metavar="FILE|JSON", help="The workflow's input.")]
Import = Annotated[
    list[str],
    typer.Option(
        "--import", metavar="REPO=DIR", help="Create a repository from a folder; repeat it for more."
    ),
]
WorkspaceOption = Annotated[
    str | None,
    typer.Option(
        "--workspace", metavar="REPO[@BRANCH]", help="Put that branch's head into the input as `workspace`."
    ),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Resume a run that failed or was stopped, with the tasks as they are now."),
]
FromStep = Annotated[
    str | None,
    typer.Option("--from", metavar="STEP", help="Start a new run at this step of a run, on a new branch."),
]
Page = Annotated[
    bool, typer.Option("--ui", help="Serve a page that shows the run until it ends, and print its address.")
]
KeepDelays = Annotated[
    bool,
    typer.Option(
        "--keep-delays",
        help="Wait between retries as the tasks declare, not just for a second (embedded servers).",
    ),
]
NoRetries = Annotated[
    bool, typer.Option("--no-retries", help="End a step at its first failure (embedded servers).")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not show what the tasks print.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", help="Show all that the tasks print, with the stacks of Spark's JVM.")
]
Jobs = Annotated[int, typer.Option("-j", "--jobs", min=1, help="How many attempts to run at once.")]


def run(
    workflow: WorkflowFile = None,
    tasks: Tasks = [],  # noqa: B006 - typer reads the default, and never writes it
    input_: Input = "{}",
    imports: Import = [],  # noqa: B006
    workspace: WorkspaceOption = None,
    root: Root = None,
    remote: Remote = None,
    yes: Yes = False,
    resume: Resume = False,
    from_: FromStep = None,
    force: Force = [],  # noqa: B006
    full: Full = False,
    jobs: Jobs = 2,
    keep_delays: KeepDelays = False,
    no_retries: NoRetries = False,
    ui: Page = False,
    quiet: Quiet = False,
    py_files: PyFiles = [],  # noqa: B006
    archives: Archives = [],  # noqa: B006
    jars: Jars = [],  # noqa: B006
    verbose: Verbose = False,
    as_json_: AsJson = False,
) -> None:
    """Run a workflow and the worker for it, show its steps, and end with its result."""
    if not resume and from_ is None and (workflow is None or not tasks):
        raise typer.BadParameter(
            "give a workflow (flow.py:NAME or a JSON file) and its tasks (--tasks TARGET), or --resume, or --from STEP"
        )
    if resume and from_ is not None:
        raise typer.BadParameter("--resume continues a run, --from starts a new one: give one of them")
    if workspace is not None:
        read_repository(workspace)
    if ui:
        check_page()
    # Imported here because the runtime imports the process machinery, which other commands do not need.
    from perago.assembly import build_archive_for_next_run, prepare_executors
    from perago.runtime.runs.run import drive, drive_resumed

    existing = resume or from_ is not None
    if existing:
        from perago.cli import run_resume

        remote = resumes_remotely(root, workflow, remote=remote)
    # The user agreed to a resumed run when it was first started.
    choice = choose_servers(root, remote, asks="before it writes", yes=yes or existing)
    files = spark_files(py_files, archives, jars)
    choice = replace(choice, settings=replace(choice.settings, spark_files=files))
    servers = _with_limits(choice.backend(), keep_delays=keep_delays, no_retries=no_retries)
    prepare_executors(servers)
    recompute = Recompute(full, frozenset(force))
    lost: frozenset[str] = frozenset()
    siblings: list[Sibling] = []
    if resume:
        current, done = run_resume.find_completed(servers, workflow)
        if done is not None:
            if as_json_:
                _print_outcome(servers, current, done, as_json_=True)
            else:
                output.say(f"run {current.id} is COMPLETED: there is nothing to resume")
            return
        choice.name_lake()
        plan, lost = run_resume.resume_run(servers, current, recompute, jobs=jobs)
    elif from_ is not None:
        choice.name_lake()
        current, plan, siblings = run_resume.from_step(servers, workflow, from_, recompute, jobs=jobs)
    else:
        request = _RunRequest(workflow or "", tuple(tasks), input_, workspace, recompute)
        current, plan = _begin(choice, servers, request, imports, jobs=jobs, quiet=as_json_)
    with ExitStack() as stack:
        if ui:
            served = stack.enter_context(serving_page(servers))
            output.note(f"page: {served.address('/run', id=current.id)}")
        viewer = stack.enter_context(Viewer(silent=as_json_, prints=not quiet, verbose=verbose))
        ended = drive_resumed(current, plan, viewer, lost=lost) if resume else drive(current, plan, viewer)
    build_archive_for_next_run(plan.settings, list(plan.tasks.values()))
    _print_outcome(servers, current, ended, as_json_=as_json_)
    if siblings:
        run_resume.say_how_to_merge(siblings, choice.options(root))


def _with_limits(servers: Embedded | Real, *, keep_delays: bool, no_retries: bool) -> Embedded | Real:
    """Return the servers with the retries of a run whose author waits for it. Conductor applies the TaskDefs as they are."""
    from perago.backend import Real
    from perago.orchestrator.base import RetryLimits

    if isinstance(servers, Real):
        if no_retries or keep_delays:
            option = "--no-retries" if no_retries else "--keep-delays"
            raise typer.BadParameter(
                f"{option} needs the embedded servers: Conductor retries as the registered TaskDef says; for no retries, "
                "declare RetryPolicy(count=0)"
            )
        return servers
    delay = None if keep_delays else LONGEST_DELAY_SECONDS
    return replace(servers, limits=RetryLimits(delay, no_retries, stop_if_useless=True))


def _print_outcome(servers: Embedded | Real, current: Run, ended: WorkflowState, *, as_json_: bool) -> None:
    """Print the outcome of a run, and the command that resumes it if it did not complete."""
    from perago.runtime.observe.sanitize import Masker, secrets_of
    from perago.runtime.runs.control import input_data_was_refused, new_run_command, retry_is_useless
    from perago.runtime.runs.inspect import attempts_at
    from perago.runtime.runs.record import log_file, resume_command

    command = resume_command(current, servers.settings.root)
    if ended.running:
        output.fail(f"stopped; continue with `{command}`")
    attempts = attempts_at(servers.of_run(current.id), ended)
    log = log_file(servers.settings.root, current.id)
    if as_json_:
        output.data({"run": current.id, **as_json(ended, attempts), "log": str(log)})
    else:
        for line, style in summary(ended, attempts):
            output.say(line, style, lines=True)
        output.note(f"log: {log}")
    if ended.status != "COMPLETED":
        restart = new_run_command(current, ended.input, servers.settings.root)
        how = f" with `{Masker(secrets_of(servers.settings))(restart)}`" if restart else ""
        if retry_is_useless(ended):
            output.note(f"retrying is useless: start a new run from the current head{how}")
        elif input_data_was_refused(ended):
            output.note(f"once the data is there, start a new run{how}")
            output.note(f"once you have changed the task or its check, continue with `{command}`")
        else:
            output.note(f"once you have fixed the cause, continue with `{command}`")
        raise typer.Exit(output.FAILED)


@dataclass(frozen=True, slots=True)
class _RunRequest:
    workflow: str
    targets: tuple[str, ...]
    given: str
    workspace: str | None
    recompute: Recompute


def _begin(
    choice: ServerChoice,
    servers: Embedded | Real,
    request: _RunRequest,
    imports: list[str],
    *,
    jobs: int,
    quiet: bool,
) -> tuple[Run, WorkerPlan]:
    from perago.assembly import assemble_run
    from perago.backend import Real
    from perago.runtime.runs import run
    from perago.runtime.runs.record import new_run_id
    from perago.workflow.model.requirements import side_by_side, used_tasks

    folders = [read_import(item) for item in imports]
    definition, payload = read_definition(request.workflow), read_payload(request.given)
    known = with_run_steps(load_tasks(request.targets), definition)
    # The commit that --workspace refers to is known only once the lake is open.
    given = payload if request.workspace is None else {**payload, "workspace": UNKNOWN}
    refuse_diagnostics(definition, known, file=request.workflow, given=given)
    check_forced(definition, request.recompute)
    used = used_tasks(definition, {task.name for task in known})
    run_id = new_run_id(time.time())
    tasks = [task for task in known if task.name in used]
    own, width = servers.of_run(run_id), side_by_side(definition)
    plan = assemble_run(
        own, request.targets, tasks, jobs=jobs, side_by_side=width, recompute=request.recompute
    )
    run.check_root(servers.settings)
    if isinstance(servers, Real):
        agree_to_run(choice, servers, tasks, definition, imports=folders)
    else:
        choice.name_lake()
    start = run.RunInput(definition, payload, request.workspace, file=request.workflow, imports=folders)
    return run.begin(run_id, plan, start, show_progress=partial(output.transfer_bar, quiet=quiet)), plan
