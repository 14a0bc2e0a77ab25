"""Decides where Spark tasks keep their data: in the workdir (local), or on the staging branch over s3a (direct).

    placement     master      lake        result
    local         here        any         the workdir
    local         elsewhere   any         rejected at start
    auto          local       any         the workdir
    auto          here        embedded    the workdir
    auto          elsewhere   embedded    rejected at start
    auto          a cluster   lakeFS      direct
    direct        any         lakeFS      direct
    direct        any         embedded    rejected at start

A cluster is any master that is not local.  A master is "here" if all its executors are on this machine, and otherwise
"elsewhere": executors on other machines do not see the workdir, and whatever they wrote would be lost.  Impossible
placements are rejected before a worker polls, not during an attempt.  This module does not import pyspark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from perago.declare.checks import label, needs_path
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError, TaskDefinitionError
from perago.settings import Settings
from perago.spark.config import is_local, runs_here
from perago.spark.master import check_master
from perago.spark.project_code import project_files
from perago.spark.session_spec import session_spec, settings_for
from perago.spark_defaults import parse_conf

Where = Literal["local", "direct"]


def placement_of(task: TaskDefinition, settings: Settings, *, embedded: bool) -> Where:
    """Return the placement of a Spark task: local or direct. `embedded` tells whether the lake is the embedded one."""
    spec = task.workspace
    wanted = spec.placement if spec is not None else "local"
    if wanted == "auto":
        return "local" if embedded or is_local(settings_for(task, settings).spark_master) else "direct"
    return wanted


def check_placement(tasks: Sequence[TaskDefinition], settings: Settings, *, embedded: bool) -> None:
    """Raise `RuntimeConfigError` or `TaskDefinitionError` if a Spark task cannot run with its placement."""
    parse_conf(settings.spark_conf)
    for master in {settings_for(task, settings).spark_master for task in tasks if task.kind == "spark"}:
        check_master(master)
    for task in tasks:
        spec = task.workspace
        if task.kind != "spark" or spec is None:
            continue
        master = settings_for(task, settings).spark_master
        if placement_of(task, settings, embedded=embedded) == "local" and not runs_here(master):
            raise RuntimeConfigError(_unreachable_workdir_message(task, spec.placement, master, embedded))
        _check_code(task, master)
        if placement_of(task, settings, embedded=embedded) == "local":
            continue
        if embedded:
            raise RuntimeConfigError(
                f'task {task.name!r} has placement="direct", which needs lakeFS: the embedded lake has no s3a'
            )
        wanting = [label(check) for check in (*spec.pre, *spec.post) if needs_path(check)]
        if wanting:
            raise TaskDefinitionError(
                f"{task.place}: {', '.join(wanting)}: needs a folder on disk, and with direct placement there is none; "
                "use the require_… checks"
            )


def _check_code(task: TaskDefinition, master: str) -> None:
    """Raise `RuntimeConfigError` if a file of the task is missing, or its code cannot be sent to executors elsewhere."""
    modules = session_spec(task).modules
    if not runs_here(master):
        project_files(modules)


def _unreachable_workdir_message(task: TaskDefinition, placement: str, master: str, embedded: bool) -> str:
    remedy = "work on lakeFS (--remote)" if embedded else 'declare placement="direct" or "auto"'
    return (
        f'task {task.name!r} has placement="{placement}", and would work in a folder of this machine, which the executors '
        f"of {master} do not share: {remedy}, or set PERAGO_SPARK_MASTER to a local master"
    )
