"""A Spark task whose jobs end only if those of four attempts run at the same time."""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import BaseModel

from perago import RetryPolicy, SparkWorkspace, TaskControls, TimeoutPolicy, WorkspaceSpec, task

ATTEMPTS = 4
PARTS = 4
"""The parts of each job: more than a driver has cores by default."""


class Meeting(BaseModel):
    folder: str
    name: str


class Met(BaseModel):
    parts: int


@task(
    name="meet",
    owner_email="tests@example.com",
    workspace=WorkspaceSpec(prefix="/data", placement="direct", read_only=True),
    controls=TaskControls(retry=RetryPolicy(count=0), timeout=TimeoutPolicy(response_seconds=60)),
)
def meet(workspace: SparkWorkspace, params: Meeting) -> Met:
    """Run a job whose parts wait until the jobs of all attempts have begun."""
    folder, name, everyone = params.folder, params.name, ATTEMPTS

    def wait(part):
        Path(folder, name).touch()
        ends = time.monotonic() + 180
        while (there := len(list(Path(folder).iterdir()))) < everyone:
            if time.monotonic() > ends:
                raise TimeoutError(f"only {there} attempts run side by side")
            time.sleep(0.05)
        return part

    context = workspace.spark.sparkContext
    return Met(parts=len(context.parallelize(range(PARTS), PARTS).map(wait).collect()))
