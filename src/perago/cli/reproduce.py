"""`perago reproduce`: make a publication again from the same input, and compare the files.

Exit codes: 0 if all files are identical; 1 if one differs, or the step failed; 2 if the command line is invalid.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import AsJson, Remote, Repository, Root, Yes
from perago.cli.server_choice import ServerChoice, choose_servers
from perago.cli.workflow_input import read_payload
from perago.declare.discovery import load_tasks
from perago.errors import OrchestratorError, RuntimeConfigError

if TYPE_CHECKING:
    from perago.lake.base import Lake
    from perago.runtime.attempt.context import AttemptContext
    from perago.runtime.reproduce import Original, Reproduction

Which = Annotated[str, typer.Argument(metavar="COMMIT", help="The commit that a step has published.")]
Tasks = Annotated[
    list[str],
    typer.Option("--tasks", metavar="TARGET", help="A module or file with the task; repeat it for more."),
]
Params = Annotated[
    str | None,
    typer.Option("--params", metavar="FILE|JSON", help="The step's params; by default those of its run."),
]
_SHOWN = 20
_SIGNS = {"added": "+", "removed": "-", "changed": "~"}


def reproduce(
    repository: Repository,
    commit: Which,
    tasks: Tasks,
    params: Params = None,
    root: Root = None,
    remote: Remote = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Run the step that made COMMIT again, from the same input and on a hidden branch, and compare what it wrote."""
    from perago.runtime.lake_lookup import suggesting_existing_names
    from perago.runtime.reproduce import choose_task, find_original
    from perago.runtime.reproduce import reproduce as make_again

    choice = choose_servers(root, remote, asks="before it writes", yes=yes, lake_only=params is not None)
    definitions = load_tasks(tasks)
    with choice.open_lake() as lake, ExitStack() as stack:
        with suggesting_existing_names(lake, repository, commit):
            original = find_original(lake, repository, commit)
        task = choose_task(original, definitions)
        values = read_payload(params) if params is not None else _recorded_params(choice, original)
        choice.agree(f"Run {task.name} again on a hidden branch of {repository}?")
        folder = stack.enter_context(_folder(choice.settings.root))
        context, orchestrator = _context(choice, lake, task, folder, stack)
        branch = time.time(), uuid.uuid4().hex[:12]
        made = make_again(original, task, values, context, branch=branch, orchestrator=orchestrator)
    if as_json:
        output.data(_as_json(made))
    else:
        for line in lines_of(made):
            output.say(line)
    if not made.identical:
        raise typer.Exit(output.FAILED)


def lines_of(made: Reproduction) -> Iterator[str]:
    """Yield the outcome for people."""
    from perago.runtime.reproduce import MOST_CHANGES, describe_differences

    yield from describe_differences(made.original.made_with, made.made_with)
    if not made.same_params:
        yield "params: not those of the commit"
    short, count = made.original.commit.id[:12], len(made.changes)
    if made.identical:
        yield f"identical: the step has made what commit {short} has"
        return
    more = "more than " if count == MOST_CHANGES else ""
    yield f"different from commit {short}: {more}{count} file{'s' if count != 1 else ''}"
    for change in made.changes[:_SHOWN]:
        yield f"  {_SIGNS[change.kind]} {change.path}"
    if count > _SHOWN:
        yield f"  … and {count - _SHOWN} more (--json)"


def _recorded_params(choice: ServerChoice, original: Original) -> Mapping[str, Any]:
    """Return the params with which the original ran, from its run's record or from Conductor."""
    from perago.runtime.runs.inspect import find
    from perago.runtime.runs.run_input import params_of

    maker = original.maker
    try:
        found = find(choice.backend(), maker.workflow_id)
        with closing(found.open()) as orchestrator:
            state = orchestrator.workflow(found.workflow_id)
        params = next(params_of(task.input) for task in state.tasks if task.task_id == maker.task_id)
    except (RuntimeConfigError, OrchestratorError, StopIteration) as error:
        reason = f" ({error})" if str(error) else ""
        raise RuntimeConfigError(
            f"the params of step {maker.reference} of workflow {maker.workflow_id} are not known any more{reason}: give "
            "--params '{…}'"
        ) from error
    if not isinstance(params, Mapping):
        raise RuntimeConfigError("the recorded params are no object: give --params '{…}'")
    return params


@contextmanager
def _folder(root: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="reproduce-", dir=root))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _context(
    choice: ServerChoice, lake: Lake, task: Any, folder: Path, stack: ExitStack
) -> tuple[AttemptContext, Any]:
    """Return the attempt's context, and the orchestrator that only this process uses."""
    from perago.assembly import max_result_bytes
    from perago.backend import open_local_orchestrator
    from perago.runtime.attempt.context import AttemptContext
    from perago.runtime.observe.sanitize import Masker, secrets_of

    settings = choice.settings
    orchestrator = open_local_orchestrator(settings, folder / "orchestrator.db")
    stack.callback(orchestrator.close)
    context = AttemptContext(
        lake,
        orchestrator,
        folder / "workspaces",
        fence="soft",  # nobody else knows the hidden branch
        max_result_bytes=max_result_bytes(),
        open_place=choice.backend(conductor=False).open_places([task]),
        wrong_input="terminal",
        image=settings.image,
        mask=Masker(secrets_of(settings)),
    )
    return context, orchestrator


def _as_json(made: Reproduction) -> dict[str, Any]:
    original = made.original
    files: Sequence[dict[str, str]] = [{"path": one.path, "change": one.kind} for one in made.changes]
    return {
        "repository": original.repository,
        "commit": original.commit.id,
        "task": original.task,
        "input": original.maker.input_ref,
        "identical": made.identical,
        "files": files,
        "same_params": made.same_params,
        "then": asdict(original.made_with),
        "now": asdict(made.made_with),
    }
