"""A task or a workflow tried in one call: a lake is made for it, filled, worked on, and gone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from perago.errors import RuntimeConfigError, TrialError
from perago.runtime.folder_upload import folder_uploads
from perago.testing.arguments import Task, Workflow, task_of
from perago.testing.clock import Clock
from perago.testing.environment import Bench, opened_bench
from perago.testing.faults import At
from perago.testing.lake import REPOSITORY, Files, checked_files
from perago.testing.results import Trial, WorkflowTrial
from perago.testing.worker import TrialWorker


def try_task(
    function: Callable[..., Any],
    files: Files | None = None,
    *,
    params: Mapping[str, Any] | BaseModel | None = None,
    root: Path | None = None,
    at: At | None = None,
    retries: int = 0,
) -> Trial:
    """Run one attempt of a task on a workspace whose prefix holds `files`, and as many retries as you ask for.

    Args:
        function: A function that is decorated with `@task`.
        files: What the task's prefix holds before, as str or bytes by path below the prefix.
        params: Its params, as the model that it takes or as a dict; a dict is checked as Conductor's input is.
        root: The folder to keep the lake and the workdirs in. Without it a temporary one, which goes afterwards.
        at: What happens at which step: `crash()`, `goes_stale()` or `head_moves(…)`, by the step's name.
        retries: How many retries may follow while attempts fail; not more than the task's `RetryPolicy` allows.
    """
    task = task_of(function)
    given = checked_files(files or {})
    if given and task.workspace is None:
        raise TrialError(f"task {task.name!r} has no workspace, so it can be given no files")
    prefix = task.workspace.object_prefix if task.workspace is not None else ""
    with opened_bench(root) as bench:
        worker = TrialWorker(bench)
        worker.lake.create({prefix + path: content for path, content in given.items()})
        return worker.try_task(function, params=params, at=at, retries=retries)


def try_workflow(
    workflow: Workflow,
    tasks: Task | Iterable[Task],
    data: Files | str | os.PathLike[str] | None = None,
    *,
    input: Mapping[str, Any] | None = None,
    root: Path | None = None,
    at: Mapping[str, At] | None = None,
    clock: Clock | None = None,
) -> WorkflowTrial:
    """Run a whole workflow on a repository that holds `data`, with every retry, and without waiting for any of them.

    Args:
        workflow: Its definition as a dict, or the path of the JSON file.
        tasks: The tasks that it uses: functions, modules, or paths of files with tasks. Others may be among them.
        data: What the repository holds before: str or bytes by path, or the folder to import.
        input: The workflow's input; `workspace` is added, and names the head of the repository's branch `main`.
        root: The folder to keep the lake and the workdirs in. Without it a temporary one, which goes afterwards.
        at: What happens at which step of which workflow step, such as `{"clean": {"publish": crash()}}`.
        clock: The clock that the workflow goes by, if you want to set it or to read it.
    """
    with opened_bench(root) as bench:
        worker = TrialWorker(bench)
        if isinstance(data, str | os.PathLike):
            _import(bench, Path(data))
        else:
            worker.lake.create(checked_files(data or {}, what="data"))
        return worker.try_workflow(workflow, tasks, input=input, at=at, clock=clock)


def _import(bench: Bench, folder: Path) -> None:
    lake = bench.lake
    try:
        uploads = folder_uploads(folder, lake.checksum_algorithm, leave_out=bench.settings.root)
    except RuntimeConfigError as error:
        raise TrialError(f"data: {error}") from error
    lake.create_repository(REPOSITORY, uploads, f"import of {folder}")
