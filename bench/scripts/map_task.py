"""The task of the map bench. It changes the only file in its repository."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, WorkspaceSpec, task


class Params(BaseModel):
    number: int


class Result(BaseModel):
    number: int


@task(
    name="change_one",
    owner_email="bench@example.com",
    workspace=WorkspaceSpec(prefix="/data"),
    controls=TaskControls(retry=RetryPolicy(count=0)),
)
def change_one(workspace: Path, params: Params) -> Result:
    """Change the only file."""
    (workspace / "file.txt").write_text(f"number {params.number}")
    return Result(number=params.number)
