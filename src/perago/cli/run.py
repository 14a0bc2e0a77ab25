"""`perago run`: a whole workflow on this machine, on the embedded lake and orchestrator."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Any

import typer

from perago.cli import output
from perago.cli.lakes import AsJson
from perago.cli.run_view import Viewer, as_json, summary
from perago.connect import open_local_lake, open_local_orchestrator
from perago.declare.discovery import load_tasks
from perago.declare.taskdef import build_taskdef
from perago.errors import RuntimeConfigError
from perago.lake.base import Lake
from perago.orchestrator.base import WorkflowState
from perago.runtime.executor import Executor
from perago.runtime.importing import folder_uploads
from perago.runtime.inline import working
from perago.runtime.lock import locked_root
from perago.runtime.runs import Run, find_run, new_run_id, runs_folder, save_run
from perago.runtime.sweep import sweep_workdirs
from perago.runtime.transaction import Surroundings
from perago.settings import Settings, load_settings

_LOOK_SECONDS = 0.05

WorkflowFile = Annotated[
    str | None,
    typer.Argument(
        metavar="WORKFLOW.json",
        help="The workflow's definition; with --resume the run's id, or nothing for the last.",
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
    typer.Option("--root", metavar="DIR", help="Where the lake and the runs are; .perago by default."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run that was killed.")]
Jobs = Annotated[int, typer.Option("-j", "--jobs", min=1, help="How many attempts at once.")]


def run(
    workflow: WorkflowFile = None,
    tasks: Tasks = [],  # noqa: B006 - typer reads the default, nobody writes it
    input_: Input = "{}",
    imports: Import = [],  # noqa: B006
    workspace: WorkspaceOption = None,
    root: RootOption = None,
    resume: Resume = False,
    jobs: Jobs = 2,
    as_json_: AsJson = False,
) -> None:
    """Run a workflow on the embedded lake and orchestrator, show its steps, and end with its result."""
    settings = load_settings(os.environ, root=root)
    logging.getLogger("perago").addHandler(logging.NullHandler())
    with locked_root(settings.workspace_root), ExitStack() as stack:
        sweep_workdirs(settings.workspace_root, now=time.time(), ttl=settings.workspace_gc_ttl)
        lake = stack.enter_context(closing(open_local_lake(settings)))
        if resume:
            current = find_run(settings.root, workflow)
        else:
            if workflow is None or not tasks:
                raise typer.BadParameter("give WORKFLOW.json and --tasks, or --resume")
            for item in imports:
                name, folder = _import(item, lake.repositories())
                files = folder_uploads(folder, lake.checksum_algorithm, leave_out=settings.root)
                lake.create_repository(name, files, f"import of {folder}")
            payload = _input(input_, workspace, lake)
            current = _begin(settings, Path(workflow), tasks, payload)
        ended = _drive(settings, lake, current, jobs, quiet=as_json_, resumed=resume)
    if as_json_:
        output.data(as_json(ended, current))
    else:
        for line, style in summary(ended, current):
            output.say(line, style)
    if ended.status != "COMPLETED":
        raise typer.Exit(output.FAILED)


def _begin(settings: Settings, workflow: Path, targets: list[str], payload: Mapping[str, Any]) -> Run:
    """Register everything in a fresh orchestrator and start the workflow; nothing runs yet."""
    definition = _read_json(
        workflow.read_text(encoding="utf-8") if workflow.is_file() else None, str(workflow)
    )
    known = load_tasks(targets)
    run_id = new_run_id(time.time())
    with closing(open_local_orchestrator(settings, _state_file(settings, run_id))) as orchestrator:
        orchestrator.register_taskdefs([build_taskdef(task) for task in known])
        orchestrator.register_workflow(definition)
        _check_known(definition, {task.name for task in known})
        workflow_id = orchestrator.start_workflow(
            definition["name"], version=definition.get("version"), input=payload
        )
    begun = Run(run_id, workflow_id, definition["name"], tuple(targets), os.getcwd())
    save_run(settings.root, begun)
    return begun


def _drive(
    settings: Settings, lake: Lake, current: Run, jobs: int, *, quiet: bool, resumed: bool
) -> WorkflowState:
    """Work until the workflow is over; Ctrl-C leaves it to be resumed."""
    os.chdir(current.folder)
    tasks = {task.name: task for task in load_tasks(current.targets)}
    opened = open_local_orchestrator(settings, _state_file(settings, current.id))
    with closing(opened) as orchestrator, Viewer(quiet=quiet) as viewer:
        if resumed:
            # The root's lock is ours, so the process that held these attempts is dead.
            orchestrator.time_out_in_progress("the process that ran it is gone")
        around = Surroundings(
            lake, orchestrator, settings.workspace_root, require_hard_fence=settings.fence == "hard"
        )
        executor = Executor(tasks, around, f"run-{current.id}", settings.failure_reason_max_length)
        try:
            with working(executor, jobs):
                while (state := orchestrator.workflow(current.workflow_id)).running:
                    viewer.show(state)
                    time.sleep(_LOOK_SECONDS)
        except KeyboardInterrupt:
            output.fail(f"stopped; `perago run --resume {current.id}` goes on with it")
        state = orchestrator.workflow(current.workflow_id)
        viewer.show(state)
    return state


def _state_file(settings: Settings, run_id: str) -> Path:
    path = runs_folder(settings.root) / run_id / "orchestrator.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _import(item: str, existing: Sequence[str]) -> tuple[str, Path]:
    name, separator, folder = item.partition("=")
    if not separator or not name or not folder:
        raise typer.BadParameter(f"--import takes REPO=DIR, not {item!r}")
    if name in existing:
        raise RuntimeConfigError(
            f"repository {name!r} exists already in this root: leave out --import to go on with it, or give "
            "another --root"
        )
    return name, Path(folder)


def _input(given: str, workspace: str | None, lake: Lake) -> dict[str, Any]:
    text = given if given.lstrip().startswith(("{", "[")) else None
    if text is None and not Path(given).is_file():
        raise RuntimeConfigError(f"--input {given!r} is neither JSON nor a file")
    payload = _read_json(text or Path(given).read_text(encoding="utf-8"), "--input")
    if workspace is not None:
        repository, _, branch = workspace.partition("@")
        branch = branch or "main"
        head = lake.head(repository, branch).id
        payload["workspace"] = {"repository": repository, "branch": branch, "ref_type": "commit", "ref": head}
    return payload


def _read_json(text: str | None, what: str) -> dict[str, Any]:
    if text is None:
        raise RuntimeConfigError(f"{what} is not a file")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RuntimeConfigError(f"{what} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise RuntimeConfigError(f"{what} must be a JSON object, not {type(value).__name__}")
    return value


def _check_known(definition: Mapping[str, Any], known: set[str]) -> None:
    """Every SIMPLE task of the workflow must be in the modules, or it would wait for ever."""
    missing = sorted(_simple_tasks(definition.get("tasks", [])) - known)
    if missing:
        raise RuntimeConfigError(
            f"the workflow names tasks that no --tasks module declares: {', '.join(missing)}; "
            f"declared are {', '.join(sorted(known))}"
        )


def _simple_tasks(node: Any) -> set[str]:
    if isinstance(node, list):
        return {name for item in node for name in _simple_tasks(item)}
    if not isinstance(node, Mapping):
        return set()
    nested: set[str] = set()
    for field in ("loopOver", "forkTasks", "defaultCase"):
        nested |= _simple_tasks(node.get(field, []))
    for case in (node.get("decisionCases") or {}).values():
        nested |= _simple_tasks(case)
    return nested | ({node["name"]} if node.get("type", "SIMPLE") == "SIMPLE" and "name" in node else set())
