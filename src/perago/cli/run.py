"""`perago run`: a whole workflow with its worker, from one command.

On the embedded lake and orchestrator, unless lakeFS and Conductor are both configured and no --root is given.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perago.cli import output
from perago.cli.options import AsJson
from perago.cli.progress import transfer_bar
from perago.cli.run_input import check_known, read_definition, read_import, read_payload, uses_embedded
from perago.cli.run_view import Viewer, as_json, summary
from perago.declare.discovery import load_tasks
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.errors import RuntimeConfigError
from perago.settings import Settings, load_settings

if TYPE_CHECKING:
    from perago.lake.base import Lake
    from perago.orchestrator.base import Orchestrator, WorkflowState
    from perago.runtime.runs import Run

WorkflowFile = Annotated[
    str | None,
    typer.Argument(
        metavar="WORKFLOW.json",
        help="The workflow's definition; with --resume the run's id, or nothing for the newest.",
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
    """Run a workflow and the worker for it, show its steps, and end with its result."""
    settings = load_settings(os.environ, root=root)
    local = uses_embedded(settings, root)
    if not resume and (workflow is None or not tasks):
        raise typer.BadParameter("give WORKFLOW.json and --tasks, or --resume")
    session = Session(settings, local=local, quiet=as_json_)
    if resume:
        current = session.resume(workflow)
    else:
        session.check_root()
        for item in imports:
            session.bring_in(item)
        current = session.begin(Path(workflow or ""), tasks, input_, workspace)
    ended = session.drive(current, jobs)
    if as_json_:
        output.data(as_json(ended, current))
    else:
        for line, style in summary(ended, current):
            output.say(line, style)
    if ended.status != "COMPLETED":
        raise typer.Exit(output.FAILED)


class Session:
    """One call of the command, on one pair of servers."""

    def __init__(self, settings: Settings, *, local: bool, quiet: bool) -> None:
        self._settings = settings
        self._local = local
        self._quiet = quiet

    def check_root(self) -> None:
        """Make sure, before anything is written, that nobody else works on the root."""
        from perago.runtime.root.lock import locked_root

        with locked_root(self._settings.workspace_root):
            return

    def bring_in(self, item: str) -> None:
        """Make a repository of a folder."""
        from perago.runtime.folder_import import folder_uploads

        name, folder = read_import(item)
        with ExitStack() as opened:
            lake, _ = self._ports(opened, None)
            if name in lake.repositories():
                raise RuntimeConfigError(
                    f"repository {name!r} exists already: leave out --import to go on with it, or give another "
                    "name or --root"
                )
            files = folder_uploads(folder, lake.checksum_algorithm, leave_out=self._settings.root)
            with transfer_bar(f"import {name}", files, quiet=self._quiet) as progress:
                lake.create_repository(name, files, f"import of {folder}", progress)

    def begin(self, workflow: Path, targets: list[str], given: str, workspace: str | None) -> Run:
        """Register everything and start the workflow; nothing runs yet."""
        from perago.connect import check_places
        from perago.runtime.runs import Run, new_run_id, save_run

        definition = read_definition(workflow)
        known = load_tasks(targets)
        check_known(definition, {task.name for task in known})
        check_places(self._settings, known, local=self._local)
        run_id = new_run_id(time.time())
        with ExitStack() as opened:
            lake, orchestrator = self._ports(opened, run_id)
            payload = read_payload(given, workspace, lake)
            orchestrator.register_taskdefs([build_taskdef(task) for task in known])
            orchestrator.register_workflow(definition)
            workflow_id = orchestrator.start_workflow(
                definition["name"], version=definition.get("version"), input=payload
            )
        begun = Run(
            run_id, workflow_id, definition["name"], tuple(targets), os.getcwd(), embedded=self._local
        )
        save_run(self._settings.root, begun)
        return begun

    def resume(self, run_id: str | None) -> Run:
        """Take up a run whose process is gone: on the embedded servers its attempts are timed out at once."""
        from perago.connect import open_local_orchestrator
        from perago.runtime.root.lock import locked_root
        from perago.runtime.runs import find_run

        found = find_run(self._settings.root, run_id)
        if found.embedded != self._local:
            where = (
                "the embedded servers: give its --root"
                if found.embedded
                else "lakeFS and Conductor: configure them"
            )
            raise RuntimeConfigError(f"run {found.id} is on {where}")
        with locked_root(self._settings.workspace_root):
            # The lock is ours, so whoever held these attempts is dead.
            if found.embedded:
                orchestrator = open_local_orchestrator(self._settings, self._state_file(found.id))
                orchestrator.time_out_in_progress("the process that ran it is gone")
                orchestrator.close()
        return found

    def drive(self, current: Run, jobs: int) -> WorkflowState:
        """Work until the workflow is over; a signal leaves it to be resumed."""
        from perago.runtime.observe.logs import logging_to

        os.chdir(current.folder)
        tasks = load_tasks(current.targets)
        with ExitStack() as opened:
            _, orchestrator = self._ports(opened, current.id)
            viewer = opened.enter_context(Viewer(quiet=self._quiet))
            opened.enter_context(logging_to(self._settings, name="run", level=logging.ERROR))
            state = orchestrator.workflow(current.workflow_id)

            def over() -> bool:
                nonlocal state
                state = orchestrator.workflow(current.workflow_id)
                viewer.show(state)
                return not state.running

            if not over():
                self._work(current, tasks, jobs, over, viewer)
                over()
        if state.running:
            output.fail(f"stopped; `perago run --resume {current.id}` goes on with it")
        return state

    def _work(
        self, current: Run, tasks: list[TaskDefinition], jobs: int, over: Callable[[], bool], viewer: Viewer
    ) -> None:
        from perago.connect import max_result_bytes, open_places, open_ports
        from perago.runtime.worker.executor import ExecutorSpec
        from perago.runtime.worker.plan import WorkerPlan
        from perago.runtime.worker.supervisor import Supervisor

        ports = partial(
            open_ports, self._settings, local=self._local, orchestrator_file=self._state_file(current.id)
        )
        spec = ExecutorSpec(
            self._settings,
            tuple(current.targets),
            ports,
            max_result_bytes(),
            log_level=logging.ERROR,
            open_places=partial(open_places, self._settings, local=self._local),
        )
        plan = WorkerPlan({task.name: task for task in tasks}, jobs, spec)
        with ExitStack() as opened:
            lake, orchestrator = self._ports(opened, current.id)
            Supervisor(plan, orchestrator, lake).run(until=over, on_event=viewer.heard)

    def _ports(self, opened: ExitStack, run_id: str | None) -> tuple[Lake, Orchestrator]:
        from perago.connect import open_ports

        file = self._state_file(run_id) if run_id is not None else None
        lake, orchestrator = open_ports(self._settings, local=self._local, orchestrator_file=file)
        opened.callback(lake.close)
        opened.callback(orchestrator.close)
        return lake, orchestrator

    def _state_file(self, run_id: str) -> Path:
        from perago.runtime.runs import runs_folder

        path = runs_folder(self._settings.root) / run_id / "orchestrator.db"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
