"""Tasks for a worker with an engine: a plain one, a Spark one and a plain one, under the names of `steps.py`."""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel

from perago import SparkWorkspace, WorkspaceSpec, task
from tests.support.tasks.steps import CONTROLS, SUFFIX, Made, Params, act


class Rows(BaseModel):
    rows: int


@task(
    name=f"worker_step_1_{SUFFIX}",
    owner_email="tests@example.com",
    workspace=WorkspaceSpec(prefix="/data"),
    controls=CONTROLS,
)
def plain(workspace: Path, params: Params) -> Made:
    """Do what the params say; for "leave once", only the first execution leaves."""
    left = Path(os.environ["TEST_NOTES"] + ".left")
    if params.do == "leave once" and not left.exists():
        left.touch()
        act(workspace, params.model_copy(update={"do": "leave"}))
    return act(workspace, params)


@task(
    name=f"worker_step_2_{SUFFIX}",
    owner_email="tests@example.com",
    workspace=WorkspaceSpec(prefix="/data"),
    controls=CONTROLS,
)
def on_spark(workspace: SparkWorkspace, params: Rows) -> Made:
    """Write a table, and return the master of the session."""
    workspace.write(workspace.spark.range(params.rows).coalesce(1), "numbers")
    return Made(said=workspace.spark.sparkContext.master)
