"""Runs a task or a workflow in one call, on a lake that is created, filled and removed for that trial."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from perago.errors import RuntimeConfigError, TrialError
from perago.runtime.folder_upload import folder_uploads
from perago.testing.arguments import Task, Workflow, task_of
from perago.testing.environment import Clock, TrialEnvironment, open_environment
from perago.testing.faults import Faults, renamed_argument
from perago.testing.lake import REPOSITORY, Files, checked_files
from perago.testing.results import Trial, WorkflowTrial
from perago.testing.worker import TrialWorker


def try_task(
    function: Callable[..., Any],
    files: Files | None = None,
    *,
    params: Mapping[str, Any] | BaseModel | None = None,
    root: Path | None = None,
    faults: Faults | None = None,
    retries: int = 0,
    at: Faults | None = None,
) -> Trial:
    """Run one attempt of a task on a workspace whose prefix contains `files`, and as many retries as you ask for.

    Args:
        function: A function decorated with `@task`.
        files: The initial files under the task's prefix, as str or bytes keyed by path relative to the prefix.
        params: The task's params, as its params model or as a dict. A dict is validated like Conductor's input.
        root: The folder for the lake and the workdirs. The default is a temporary folder that is removed afterwards.
        faults: `crash()`, `lose_lease()` or `advance_head(…)`, keyed by the name of the step at which it fires.
        retries: The maximum number of retries if attempts fail. The task's `RetryPolicy` must allow as many.
        at: The old name of `faults`.
    """
    task = task_of(function)
    faults = renamed_argument(faults, at)
    given = checked_files(files or {})
    if given and task.workspace is None:
        raise TrialError(f"task {task.name!r} has no workspace, so it can be given no files")
    prefix = task.workspace.object_prefix if task.workspace is not None else ""
    with open_environment(root) as environment:
        worker = TrialWorker(environment)
        worker.lake.create({prefix + path: content for path, content in given.items()})
        return worker.try_task(function, params=params, faults=faults, retries=retries)


def try_workflow(
    workflow: Workflow,
    tasks: Task | Iterable[Task],
    data: Files | str | os.PathLike[str] | None = None,
    *,
    input: Mapping[str, Any] | None = None,
    root: Path | None = None,
    faults: Mapping[str, Faults] | None = None,
    clock: Clock | None = None,
    at: Mapping[str, Faults] | None = None,
) -> WorkflowTrial:
    """Run a whole workflow on a repository that contains `data`, including every retry, but without the delays.

    Args:
        workflow: The workflow's definition as a dict, or the path of its JSON file.
        tasks: The tasks that it uses: functions, modules, or paths of task files. Unused tasks are ignored.
        data: The initial content of the repository: str or bytes keyed by path, or the path of a folder to import.
        input: The workflow's input. If it has no `workspace`, one is added that names the head of `main`.
        root: The folder for the lake and the workdirs. The default is a temporary folder that is removed afterwards.
        faults: The faults for each workflow step, such as `{"clean": {"publish": crash()}}`.
        clock: The workflow's clock, if you want to set it or to read it.
        at: The old name of `faults`.
    """
    faults = renamed_argument(faults, at)
    with open_environment(root) as environment:
        worker = TrialWorker(environment)
        if isinstance(data, str | os.PathLike):
            _import(environment, Path(data))
        else:
            worker.lake.create(checked_files(data or {}, what="data"))
        return worker.try_workflow(workflow, tasks, input=input, faults=faults, clock=clock)


def _import(environment: TrialEnvironment, folder: Path) -> None:
    lake = environment.lake
    try:
        uploads = folder_uploads(folder, lake.checksum_algorithm, leave_out=environment.settings.root)
    except RuntimeConfigError as error:
        raise TrialError(f"data: {error}") from error
    lake.create_repository(REPOSITORY, uploads, f"import of {folder}")
