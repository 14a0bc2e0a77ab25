"""The tasks of the fork tests: eight writers that publish concurrently below one prefix, and a reader of all of it.

Each writer sees the common input and its own table, and writes one part file there with a unique name.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, task
from perago.declare.controls import RetryPolicy, TaskControls, TimeoutPolicy

EIGHT = 8
SUFFIX = os.environ.get("TEST_SUFFIX", "here")
CONTROLS = TaskControls(
    retry=RetryPolicy(count=1, delay_seconds=0),
    timeout=TimeoutPolicy(response_seconds=int(os.environ.get("TEST_RESPONSE_SECONDS", "60"))),
)


class Params(BaseModel):
    """`crowd` bodies wait for each other in the folder `gate`; without a gate none waits."""

    gate: str = ""
    crowd: int = 1


class Made(BaseModel):
    """The one file that the execution wrote."""

    part: str


class Nothing(BaseModel):
    """No params."""


class Seen(BaseModel):
    """The part files that the joined step found, with their contents."""

    parts: dict[str, str]


def meet(params: Params) -> None:
    """Wait until `crowd` bodies have started."""
    if not params.gate:
        return
    gate = Path(params.gate)
    (gate / uuid.uuid4().hex).touch()
    while len(list(gate.iterdir())) < params.crowd:
        time.sleep(0.02)


def declare(number: int) -> None:
    """Declare one writer."""

    @task(
        name=f"forked_{number}_{SUFFIX}",
        owner_email="tests@example.com",
        workspace=WorkspaceSpec(
            prefix="/data",
            reads=("input.txt",),
            writes=(f"t{number}",),
            on_advanced="rebase",
            on_abandoned="supersede",
        ),
        controls=CONTROLS,
    )
    def run(workspace: Path, params: Params) -> Made:
        meet(params)
        table, part = workspace / f"t{number}", f"part-{uuid.uuid4().hex}"
        table.mkdir(exist_ok=True)
        (table / part).write_text(f"{number} from {(workspace / 'input.txt').read_text()}")
        return Made(part=f"t{number}/{part}")

    setattr(sys.modules[__name__], f"writer_{number}", run)


for _number in range(EIGHT):
    declare(_number)


@task(
    name=f"forked_joined_{SUFFIX}",
    owner_email="tests@example.com",
    workspace=WorkspaceSpec(prefix="/data", read_only=True),
    controls=CONTROLS,
)
def joined(workspace: Path, params: Nothing) -> Seen:
    """Return the part files of all writers."""
    parts = sorted(workspace.glob("t*/part-*"))
    return Seen(parts={part.relative_to(workspace).as_posix(): part.read_text() for part in parts})
