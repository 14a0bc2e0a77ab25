"""`perago submit`: start a registered workflow for existing workers to run.  With --follow, also show its progress.

Exit codes: 0 if the workflow was started or, with --follow, is COMPLETED; 1 if it was not started or did not complete,
or if following was stopped; 2 if the command line is invalid.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import AsJson, Local, Root, Yes, read_repository
from perago.cli.run_view import Viewer, as_json, summary
from perago.cli.server_choice import ServerChoice, need_servers, refuse_without_terminal
from perago.cli.workflow_input import read_definition, read_payload
from perago.errors import OrchestratorError, RuntimeConfigError
from perago.settings import Settings, load_settings

if TYPE_CHECKING:
    from perago.lake.base import Lake
    from perago.orchestrator.base import Orchestrator, TaskState, WorkflowState
    from perago.runtime.runs.inspect import LoggedAttempt
    from perago.runtime.runs.log import NewLines
    from perago.runtime.submit import PreparedSubmission

Name = Annotated[str, typer.Argument(metavar="NAME", help="The workflow's name, as it is registered.")]
Input = Annotated[str, typer.Option("--input", metavar="FILE|JSON", help="The workflow's input.")]
WorkspaceOption = Annotated[
    str | None,
    typer.Option(
        "--workspace", metavar="REPO[@BRANCH]", help="Put that branch's head into the input as `workspace`."
    ),
]
Version = Annotated[
    int | None, typer.Option("--version", metavar="N", help="The version; the newest by default.")
]
Follow = Annotated[bool, typer.Option("--follow", help="Show its steps until it has ended, as `run` does.")]


def submit(
    name: Name,
    workspace: WorkspaceOption = None,
    input_: Input = "{}",
    version: Version = None,
    follow: Follow = False,
    local: Local = False,
    root: Root = None,
    yes: Yes = False,
    as_json_: AsJson = False,
) -> None:
    """Start a workflow that is registered on the Conductor at CONDUCTOR_SERVER_URL; workers run its steps."""
    if root is not None and not local:
        raise typer.BadParameter("--root is where the embedded orchestrator keeps its state: add --local")
    payload = read_payload(input_)
    if workspace is not None and "workspace" in payload:
        raise typer.BadParameter("the workspace is given twice: by --workspace and in --input")
    if workspace is not None:
        read_repository(workspace)
    where = _Where(load_settings(os.environ, root=root, remote=not local), local=local, root=root)
    _refuse_file(name, where)
    if not local:
        need_servers(where.settings, lakefs=workspace is not None)
        refuse_without_terminal("before it writes", yes=yes)
    from perago.runtime.runs.inspect import attempts_of
    from perago.runtime.submit import SubmitRequest, prepare, start

    with ExitStack() as closing:
        orchestrator = where.orchestrator()
        closing.callback(orchestrator.close)
        lake = where.lake() if workspace is not None else None
        if lake is not None:
            closing.callback(lake.close)
        wanted = SubmitRequest(name, payload, workspace, version)
        prepared = prepare(orchestrator, lake, wanted, remedy=where.command("register", "WORKFLOW"))
        for text in prepared.warnings:
            output.warn(text)
        _agree(ServerChoice(where.settings, yes), prepared)
        workflow_id = start(orchestrator, prepared)
        started = {"workflow_id": workflow_id, "name": name, "version": prepared.version}
        if not as_json_:
            output.say(workflow_id)
            output.note(where.inspect_hint(workflow_id))
        if follow:
            ended = _follow(orchestrator, workflow_id, where, silent=as_json_)
            _print_outcome(
                ended,
                attempts_of(orchestrator, ended),
                {**started, "input": dict(prepared.input)},
                as_data=as_json_,
            )
        elif as_json_:
            output.data({**started, "input": dict(prepared.input)})


def _agree(choice: ServerChoice, prepared: PreparedSubmission) -> None:
    """Show what would be started on Conductor, and ask for confirmation."""
    if choice.remote and not choice.yes:
        output.note(f"input: {json.dumps(prepared.input, ensure_ascii=False)}")
        choice.agree(f"Start workflow {prepared.name} version {prepared.version} there?")


@dataclass(frozen=True, slots=True)
class _Where:
    """The servers on which a workflow is started. Each is named on stderr when it is opened."""

    settings: Settings
    local: bool
    root: Path | None

    def orchestrator(self) -> Orchestrator:
        # Imported here because the adapters import HTTP and S3 libraries, which other commands do not need.
        from perago.backend import open_conductor, open_local_orchestrator

        if not self.local:
            orchestrator = open_conductor(self.settings)
            output.note(f"Conductor: {orchestrator.address}")
            return orchestrator
        if not (self.settings.root / "orchestrator.db").is_file():
            raise RuntimeConfigError(
                f"nothing is registered below {self.settings.root}: "
                f"`{self.command('register', 'TARGET', 'WORKFLOW')}` does "
                "that, and --root says where"
            )
        output.note(f"embedded servers: {self.settings.root}")
        return open_local_orchestrator(self.settings)

    def lake(self) -> Lake:
        from perago.backend import open_lakefs, open_local_lake

        if self.local:
            return open_local_lake(self.settings)
        ServerChoice(self.settings).name_lake()
        return open_lakefs(self.settings)

    def command(self, name: str, *arguments: str) -> str:
        """Return a `perago` command line that uses the same servers as this command."""
        root = ["--root", str(self.root)] if self.root is not None else []
        return shlex.join(["perago", name, *arguments, *(["--local", *root] if self.local else [])])

    def inspect_hint(self, workflow_id: str) -> str:
        """Return a hint with the commands that show the workflow."""
        root = str(self.root or self.settings.root)
        named = [workflow_id, "--root", root] if self.local else ["--remote", workflow_id]
        show, logs = (shlex.join(["perago", command, *named]) for command in ("show", "logs"))
        return f"`{show}` shows it, `{logs}` what its steps print"


@dataclass(frozen=True, slots=True)
class _SubmitProgress:
    """Shows the progress of a workflow whose workers run elsewhere, using the same view as `perago run`."""

    viewer: Viewer
    lines: NewLines
    where: _Where

    def show(self, state: WorkflowState) -> None:
        for one in self.lines.read(state):
            self.viewer.print_line(one.task.reference, one.task.retry_count, one.line.text)
        self.viewer.show(state)

    def on_step_waiting(self, step: TaskState, seconds: float) -> None:
        output.warn(
            f"no worker has taken the step {step.reference!r} for {seconds:.0f} s: is one running that has the task "
            f"{step.task_name!r}? `{self.where.command('start', 'TARGET')}` starts one"
        )


def _refuse_file(name: str, where: _Where) -> None:
    file = Path(name.partition(":")[0])
    if file.suffix in {".json", ".py"}:
        known = read_definition(name)["name"] if file.is_file() else file.stem
        raise RuntimeConfigError(
            f"{name} is a file, and submit takes the name of a registered workflow: "
            f"`{where.command('register', name)}`, then `{where.command('submit', known)}`"
        )


def _follow(orchestrator: Orchestrator, workflow_id: str, where: _Where, *, silent: bool) -> WorkflowState:
    from perago.runtime.runs.log import NewLines
    from perago.runtime.submit import follow

    try:
        with Viewer(silent=silent) as viewer:
            observer = _SubmitProgress(viewer, NewLines(orchestrator), where)
            return follow(orchestrator, workflow_id, observer, time.sleep)
    except KeyboardInterrupt:
        why = "stopped following"
    except OrchestratorError as error:
        why = str(error)
    raise RuntimeConfigError(f"{why}; workflow {workflow_id} continues: {where.inspect_hint(workflow_id)}")


def _print_outcome(
    ended: WorkflowState, attempts: Sequence[LoggedAttempt], started: dict[str, Any], *, as_data: bool
) -> None:
    if as_data:
        output.data({**started, **as_json(ended, attempts)})
    else:
        for line, style in summary(ended, attempts):
            output.say(line, style, lines=True)
    if ended.status != "COMPLETED":
        raise typer.Exit(output.FAILED)
