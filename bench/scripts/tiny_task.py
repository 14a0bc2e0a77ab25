"""The task of the worker bench, as a module that perago 0.6.1 and this version both accept.

The task's name comes from the environment.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, WorkspaceSpec, task


class Params(BaseModel):
    number: int


class Result(BaseModel):
    began: float


@task(
    name=os.environ["PERAGO_BENCH_TASK"],
    owner_email="bench@example.com",
    description="Changes the one file.",
    workspace=WorkspaceSpec(prefix="/data"),
    controls=TaskControls(retry=RetryPolicy(count=0)),
)
def tiny(workspace: Path, params: Params) -> Result:
    """Change the only file, and return the time at which the body began."""
    began = time.time()
    (workspace / "file.txt").write_text(f"number {params.number}")
    return Result(began=began)
